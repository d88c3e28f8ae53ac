package httpapi

import (
	"bytes"
	"compress/gzip"
	"strconv"
	"strings"
	"sync"
)

// Large answers are compressed for clients that say so, if they hold no secret. The length of a compressed answer tells how
// much of a client's words stands in it twice: with a secret beside them that could be tried letter by letter (BREACH). So
// only answers whose handler says that they are open to all are compressed: lists, queues, the specification, the documentation
// with the pages of problems. No token, key or secret is in one. Grants, leases, webhooks and the dashboard's pages never are, nor are streams.

// compressFrom is the least size of an answer that is compressed.
const compressFrom = 8 << 10

var gzips = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // it is a level
	return w
}}

// compressed is the buffer in gzip, when the answer is one that is compressed.
func (x *exchange) compressed() (body []byte, ok bool) {
	if !x.open || x.out.Len() < compressFrom || x.peer != nil {
		return nil, false
	}
	h := x.Header()
	h["Vary"] = append([]string{"Accept-Encoding"}, h["Vary"]...)
	if !acceptsGzip(x.r.Header["Accept-Encoding"]) {
		return nil, false
	}
	var b bytes.Buffer
	w := gzips.Get().(*gzip.Writer)
	defer gzips.Put(w)
	w.Reset(&b)
	_, _ = w.Write(x.out.Bytes()) // into a buffer
	_ = w.Close()
	h["Content-Encoding"] = []string{"gzip"}
	return b.Bytes(), true
}

// acceptsGzip reports whether an Accept-Encoding names gzip and does not forbid it (RFC 9110, section 12.5.3).
func acceptsGzip(values []string) bool {
	for _, list := range values {
		for part := range strings.SplitSeq(list, ",") {
			coding, weight, weighed := strings.Cut(part, ";")
			if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				continue
			}
			q, ok := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			if n, err := strconv.ParseFloat(q, 64); !weighed || ok && err == nil && n > 0 {
				return true
			}
		}
	}
	return false
}
