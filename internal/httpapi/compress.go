package httpapi

import "lockkeeper/internal/gzipped"

// Large answers are compressed for clients that say so, if they hold no secret. The length of a compressed answer tells how
// much of a client's words stands in it twice: with a secret beside them that could be tried letter by letter (BREACH). So
// only answers whose handler says that they are open to all are compressed: lists, queues, the specification, the documentation
// with the pages of problems. No token, key or secret is in one. Grants, leases and webhooks never are, nor are
// streams. The dashboard decides by itself (internal/dashboard/compress.go).

// compressFrom is the least size of an answer that is compressed.
const compressFrom = 8 << 10

// compressed is the buffer in gzip, when the answer is one that is compressed.
func (x *exchange) compressed() (body []byte, ok bool) {
	if !x.open || x.out.Len() < compressFrom || x.peer != nil {
		return nil, false
	}
	h := x.Header()
	gzipped.Varies(h)
	if !gzipped.Accepts(x.r.Header) {
		return nil, false
	}
	h["Content-Encoding"] = []string{"gzip"}
	return gzipped.Pack(x.out.Bytes()), true
}
