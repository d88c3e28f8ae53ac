package httpapi

import (
	"slices"
	"strings"
)

// entityTags reads a list of entity tags (RFC 9110, section 8.8.3), without their quotes. any: the list is *.
func entityTags(list string) (tags []string, weak []bool, any, ok bool) {
	if strings.TrimSpace(list) == "*" {
		return nil, nil, true, true
	}
	for rest := list; ; {
		rest = strings.TrimLeft(rest, " \t,")
		if rest == "" {
			return tags, weak, false, len(tags) > 0
		}
		quoted, isWeak := strings.CutPrefix(rest, "W/")
		tag, opened := strings.CutPrefix(quoted, `"`)
		tag, after, closed := strings.Cut(tag, `"`)
		if !opened || !closed || strings.ContainsFunc(tag, func(r rune) bool { return r < '!' || r == 0x7f }) {
			return nil, nil, false, false
		}
		tags, weak, rest = append(tags, tag), append(weak, isWeak), after
	}
}

// ifMatch are the states that a change may replace; nil is any.
type ifMatch []string

func (m *ifMatch) read(name string, v value) error {
	tags, weak, any, ok := entityTags(v.text)
	switch {
	case !ok:
		return invalid(name, `If-Match must be the ETag of what was looked at, such as "3f-7", or *`)
	case any:
		return nil
	}
	*m = ifMatch{} // weak tags match nothing here (section 13.1.1)
	for i, tag := range tags {
		if !weak[i] {
			*m = append(*m, tag)
		}
	}
	return nil
}

// fresh reports whether the client has what the answer shows (RFC 9110, section 13.1.2). What cannot be read is no condition.
func (x *exchange) fresh() bool {
	if x.shown == "" || !x.reads() {
		return false
	}
	for _, list := range x.r.Header["If-None-Match"] {
		if tags, _, any, _ := entityTags(list); any || slices.Contains(tags, x.shown) {
			return true
		}
	}
	return false
}
