package proxies

import (
	"iter"
	"slices"
	"strings"
)

// fromTheEnd gives the elements of a header's lines, the last one first. Quotes are matched from the end, too: what the nearest
// proxy has added is well formed, and what stands before it may be anything that a client has sent.
func fromTheEnd(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range slices.Backward(lines) {
			end, quoted := len(line), false
			for i := len(line) - 1; i >= 0; i-- {
				switch {
				case line[i] == '"':
					quoted = !quoted
				case line[i] == ',' && !quoted:
					if !yield(strings.Trim(line[i+1:end], " \t")) {
						return
					}
					end = i
				}
			}
			if !yield(strings.Trim(line[:end], " \t")) {
				return
			}
		}
	}
}

// hop is one element of Forwarded.
type hop struct{ from, proto string }

// parseElement reads an element of Forwarded (RFC 7239, section 4). An address needs no escapes, so a quoted text has none.
func parseElement(text string) (h hop, ok bool) {
	if strings.Contains(text, `\`) {
		return hop{}, false
	}
	for text = strings.TrimLeft(text, "; \t"); text != ""; text = strings.TrimLeft(text, "; \t") {
		name, rest, found := strings.Cut(text, "=")
		if !found {
			return hop{}, false
		}
		var value string
		if quoted, begins := strings.CutPrefix(strings.TrimLeft(rest, " \t"), `"`); begins {
			if value, rest, found = strings.Cut(quoted, `"`); !found || rest != "" && !strings.ContainsAny(rest[:1], "; \t") {
				return hop{}, false
			}
		} else {
			value, rest, _ = strings.Cut(rest, ";")
		}
		if !h.take(strings.ToLower(strings.TrimRight(name, " \t")), strings.Trim(value, " \t")) {
			return hop{}, false
		}
		text = rest
	}
	return h, true
}

// take takes a pair over. It is false for what may be given once and comes again.
func (h *hop) take(name, value string) bool {
	to := &h.from
	switch name {
	case "for":
	case "proto":
		to = &h.proto
	default:
		return true
	}
	first := *to == ""
	*to = value
	return first
}
