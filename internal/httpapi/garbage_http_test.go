package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// Each connection gets one odd request and then a good one. Either the connection ends with the answer to the odd one, or
// the good one is the second: nothing in the odd one is taken for a request of its own.
func TestAnOddRequestIsOneRequestOrNone(t *testing.T) {
	g := serve(t)
	own := strings.TrimPrefix(g.url, "http://")
	const acquire, smuggled = "POST /v1/locks/a/leases HTTP/1.1\r\nHost: localhost\r\n", "DELETE /v1/locks/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
	const asJSON = "Content-Type: application/json\r\n"
	for name, c := range map[string]struct {
		request string
		answers []int // 200 as the last is the good one's
		asked   int   // how often the manager is
	}{
		"a good one":                        {acquire + "\r\n", []int{201, 200}, 1},
		"a length and chunks":               {acquire + asJSON + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", []int{201, 200}, 1},
		"chunks behind a length of 0":       {acquire + asJSON + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled), []int{400, 200}, 0},
		"two lengths":                       {acquire + asJSON + "Content-Length: 2\r\nContent-Length: 60\r\n\r\n{}" + smuggled, []int{400}, 0},
		"a length with a sign":              {acquire + "Content-Length: +0\r\n\r\n" + smuggled, []int{400}, 0},
		"a length of another base":          {acquire + "Content-Length: 0x0\r\n\r\n" + smuggled, []int{400}, 0},
		"a negative length":                 {acquire + "Content-Length: -1\r\n\r\n" + smuggled, []int{400}, 0},
		"chunks twice":                      {acquire + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", []int{501}, 0},
		"chunks, obfuscated":                {acquire + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled, []int{501}, 0},
		"chunks behind a space":             {acquire + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled, []int{400}, 0},
		"chunks behind a control character": {acquire + "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + smuggled, []int{400}, 0},
		"a line feed in a chunk's line":     {acquire + asJSON + "Transfer-Encoding: chunked\r\n\r\n2;a\nb\r\n{}\r\n0\r\n\r\n", []int{400}, 0},
		"a folded header":                   {acquire + "X-A: 1\r\n Content-Length: 50\r\n\r\n", []int{201, 200}, 1},
		"a header without a name":           {acquire + ": 1\r\n\r\n", []int{400}, 0},
		"NUL in a header":                   {acquire + "X-A: \x00\r\n\r\n", []int{400}, 0},
		"a body with GET":                   {"GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", []int{400, 200}, 0},
		"TRACE":                             {"TRACE /v1/locks HTTP/1.1\r\nHost: localhost\r\n\r\n", []int{405, 200}, 0},
		"CONNECT":                           {"CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", []int{421, 200}, 0},
		"HTTP/1 behind HTTP/2's preface":    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", nil, 0},
		"HTTP/2 by upgrade":                 {"GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n", []int{200, 200}, 1},
		"HTTP/3.0":                          {"GET /v1/locks HTTP/3.0\r\nHost: localhost\r\n\r\n", []int{505}, 0},
		"no request":                        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", []int{400}, 0},
		"a header of 24 kB":                 {acquire + "X-A: " + strings.Repeat("a", 24<<10) + "\r\n\r\n", []int{431}, 0},
		"3,000 headers":                     {acquire + strings.Repeat("X-A: aaaaaa\r\n", 3000) + "\r\n", []int{431}, 0},
		"65 kB of brackets":                 {acquire + asJSON + fmt.Sprintf("Content-Length: %d\r\n\r\n", 65_000) + strings.Repeat("[", 65_000), []int{400, 200}, 0},
		"members twice":                     {acquire + asJSON + "Content-Length: 29\r\n\r\n" + `{"owner":"me","owner":"them"}`, []int{422, 200}, 0},
		"a member of another case":          {acquire + asJSON + "Content-Length: 14\r\n\r\n" + `{"Owner":"me"}`, []int{422, 200}, 0},
		"dots in a lock's name":             {"GET /v1/locks/.. HTTP/1.1\r\nHost: localhost\r\n\r\n", []int{422, 200}, 0},
		"encoded dots in a lock's name":     {"GET /v1/locks/%2e%2e%2fnamespaces HTTP/1.1\r\nHost: localhost\r\n\r\n", []int{422, 200}, 0},
		"too much, and another one behind":  {acquire + asJSON + "Content-Length: 10000000\r\n\r\n" + smuggled, []int{413}, 0},
		"a profiler":                        {"GET /debug/pprof/ HTTP/1.1\r\nHost: localhost\r\n\r\n", []int{404, 200}, 0},
		"the process's variables":           {"GET /debug/vars HTTP/1.1\r\nHost: localhost\r\n\r\n", []int{404, 200}, 0},
		"the news of gateways without seal": {"GET /internal/v1/ends HTTP/1.1\r\nHost: localhost\r\n\r\n", []int{404, 200}, 0},
	} {
		g.asked()
		got := answersTo(t, own, c.request+"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		assert.That(t, slices.Equal(got, c.answers), "%s: answered %v, want %v", name, got, c.answers)
		if calls := g.asked(); len(calls) != c.asked || strings.Contains(fmt.Sprint(calls), "smuggled") {
			t.Errorf("%s: the manager was asked %q, want %d questions", name, calls, c.asked)
		}
	}
}

// answersTo are the status codes of all answers on one connection.
func answersTo(t *testing.T, address, requests string) (status []int) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	assert.NoError(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(within))
	go func() { _, _ = io.WriteString(conn, requests) }() // it may be cut off in the middle
	from := bufio.NewReader(conn)
	for {
		a, err := http.ReadResponse(from, nil)
		if err != nil {
			return status
		}
		_, _ = io.Copy(io.Discard, a.Body)
		status = append(status, a.StatusCode)
	}
}
