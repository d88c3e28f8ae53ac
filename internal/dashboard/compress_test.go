package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// manyRows lets the fake show locks that fill a page.
func (f *fakeLocks) manyRows() {
	f.set(func() {
		f.locks = func(r locks.LockFilter) (page locks.LockPage, _ error) {
			for i := range 40 {
				page.Items = append(page.Items, locks.Lock{NS: r.NS, Name: fmt.Sprint("job-", i), State: locks.LockHeld})
			}
			return page, nil
		}
	})
}

// Another site can have a browser ask for an address of its choice. The length of the answer must not tell what stands in it.
func TestWhatAnotherSiteHasAskedForIsNotCompressed(t *testing.T) {
	r := newRig(t)
	r.fake.manyRows()
	for _, c := range []struct {
		from, proto string
		tls         bool
		accept      string
		want        bool
	}{
		{from: "same-origin", accept: "gzip", want: true},
		{from: "none", accept: "gzip, br", want: true},
		{from: "cross-site", accept: "gzip"},
		{from: "same-site", accept: "gzip"},
		{from: "nonsense", accept: "gzip"},
		{from: "cross-site", accept: "gzip", tls: true},
		{from: "same-origin", accept: "gzip", tls: true, want: true},
		{accept: "gzip", want: true},
		{accept: "gzip", tls: true},
		{accept: "gzip", proto: "https"},
		{accept: "gzip", proto: "http", want: true},
		{from: "same-origin", accept: "br"},
		{from: "same-origin"},
	} {
		for _, target := range []string{"/", pollURL(overview)} {
			ask := func(method string) *httptest.ResponseRecorder {
				req := httptest.NewRequest(method, target, nil)
				for name, value := range map[string]string{"Sec-Fetch-Site": c.from, "X-Forwarded-Proto": c.proto, "Accept-Encoding": c.accept} {
					if value != "" {
						req.Header.Set(name, value)
					}
				}
				if c.tls {
					req.TLS = new(tls.ConnectionState)
				}
				w := httptest.NewRecorder()
				r.ServeHTTP(w, req)
				return w
			}
			w := ask(http.MethodGet)
			got := w.Header().Get("Content-Encoding") == "gzip"
			assert.That(t, got == c.want, "%s, %+v: compressed: %v", target, c, got)
			assert.Equal(t, w.Header().Get("Vary"), "Accept-Encoding", "%s: Vary", target)
			assert.Equal(t, w.Header().Get("Content-Length"), strconv.Itoa(w.Body.Len()), "%s, %+v: Content-Length", target, c)
			body := w.Body.Bytes()
			if got {
				unzip, err := gzip.NewReader(bytes.NewReader(body))
				assert.NoError(t, err)
				body, err = io.ReadAll(unzip)
				assert.NoError(t, err)
				assert.That(t, w.Body.Len() < len(body)/3, "%s: %d bytes of %d", target, w.Body.Len(), len(body))
			}
			assert.That(t, bytes.Contains(body, []byte("job-39")), "%s, %+v: the page is not whole", target, c)
			head := ask(http.MethodHead)
			assert.That(t, head.Body.Len() == 0 && head.Header().Get("Content-Length") != "" && head.Header().Get("Content-Encoding") == w.Header().Get("Content-Encoding"),
				"HEAD %s, %+v: %d bytes, %v", target, c, head.Body.Len(), head.Header())
		}
	}
}
