package httpapi

import (
	"net/http"
	"strconv"
	"strings"
)

// accepted gives the weight of each media type of an Accept header (RFC 9110, section 12.4.2); no header weighs all the same.
func accepted(h http.Header, weigh func(mediaType string, q float64)) {
	for _, values := range h["Accept"] {
		for part := range strings.SplitSeq(values, ",") {
			mediaType, params, _ := strings.Cut(part, ";")
			q := 1.0
			for param := range strings.SplitSeq(params, ";") {
				if s, ok := strings.CutPrefix(strings.TrimSpace(param), "q="); ok {
					if f, err := strconv.ParseFloat(s, 64); err == nil {
						q = f
						break
					}
				}
			}
			weigh(strings.ToLower(strings.TrimSpace(mediaType)), q)
		}
	}
}

// prefersText reports whether the Accept header asks for text rather than JSON. Among equals JSON is given: curl and browsers
// accept everything.
func prefersText(h http.Header) bool {
	accept := h["Accept"]
	if len(accept) == 0 || len(accept) == 1 && (accept[0] == "*/*" || accept[0] == "application/json") {
		return false
	}
	var plain, structured float64
	anyType := -1.0
	accepted(h, func(mediaType string, q float64) {
		switch mediaType {
		case "text/plain":
			plain = q
		case "application/json", "application/*":
			structured = max(structured, q)
		case "*/*":
			anyType = q
		}
	})
	return plain > max(structured, anyType)
}

// streamType is the form of a stream: what format says, or what Accept prefers. Among equals it is server-sent events: curl
// and browsers accept everything.
func streamType(format string, h http.Header) []string {
	switch format {
	case "sse":
		return typeSSE
	case "jsonl":
		return typeJSONL
	}
	var sse, jsonl, ndjson, anyType float64
	accepted(h, func(mediaType string, q float64) {
		switch mediaType {
		case "text/event-stream", "text/*":
			sse = max(sse, q)
		case "application/jsonl", "application/*":
			jsonl = max(jsonl, q)
		case "application/x-ndjson":
			ndjson = max(ndjson, q)
		case "*/*":
			anyType = q
		}
	})
	switch {
	case max(jsonl, ndjson) <= max(sse, anyType):
		return typeSSE
	case ndjson > jsonl:
		return typeNDJSON
	}
	return typeJSONL
}
