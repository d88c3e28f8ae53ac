// Package gzipped compresses whole answers, for those that accept it. What may be compressed is for its callers to decide: the
// length of a compressed answer tells how much of one text in it stands there twice (BREACH).
package gzipped

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Least is the size, in bytes, from which on it is worth while to compress a text.
const Least = 1 << 10

// Writers, which take some hundred kilobytes each, by their level. One is in use for no longer than a text takes.
var quick, small = pool(gzip.BestSpeed), pool(gzip.DefaultCompression)

func pool(level int) *sync.Pool {
	return &sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(nil, level) // it is a level
		return w
	}}
}

// Pack is the body in gzip, quickly.
func Pack(body []byte) []byte { return with(quick, body) }

// Small is the body in gzip, a fifth smaller than Pack makes it, in twice the time.
func Small(body []byte) []byte { return with(small, body) }

func with(p *sync.Pool, body []byte) []byte {
	w := p.Get().(*gzip.Writer)
	defer p.Put(w)
	return pack(w, body)
}

// Best is the body in gzip, as small as that gets: for what is compressed once and sent often.
func Best(body []byte) []byte {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestCompression) // it is a level
	return pack(w, body)
}

func pack(w *gzip.Writer, body []byte) []byte {
	var b bytes.Buffer
	w.Reset(&b)
	_, _ = w.Write(body) // into a buffer
	_ = w.Close()
	return b.Bytes()
}

// Accepts reports whether a request's Accept-Encoding names gzip and does not forbid it (RFC 9110, section 12.5.3).
func Accepts(h http.Header) bool {
	for _, list := range h["Accept-Encoding"] {
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

// Varies says to caches that the answer depends on what its request accepts.
func Varies(h http.Header) { h["Vary"] = append([]string{"Accept-Encoding"}, h["Vary"]...) }
