package gzipped

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestWhatIsPackedUnpacksToTheSame(t *testing.T) {
	body := []byte(strings.Repeat("<tr><td>held</td></tr>\n", 500))
	for name, packed := range map[string][]byte{"quickly": Pack(body), "again, with a used writer": Pack(body), "small": Small(body), "best": Best(body)} {
		r, err := gzip.NewReader(bytes.NewReader(packed))
		assert.NoError(t, err, name)
		got, err := io.ReadAll(r)
		assert.That(t, err == nil && bytes.Equal(got, body), "%s: %v, %d bytes", name, err, len(got))
		assert.That(t, len(packed) < len(body)/10, "%s: %d bytes of %d", name, len(packed), len(body))
	}
}

func TestGzipIsAcceptedWhereItIsNamedAndNotForbidden(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip;q=0.0": false, "identity": false,
		"gzip; q=1": true, "gzip;q=x": false, "xgzip": false, "deflate": false,
	} {
		assert.Equal(t, Accepts(http.Header{"Accept-Encoding": {accept}}), want, "%q", accept)
	}
	assert.That(t, !Accepts(http.Header{}), "a request that says nothing")
}
