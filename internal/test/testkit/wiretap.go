package testkit

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// Wiretap is a TCP proxy that keeps what clients send through it.
type Wiretap struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	sent  []*bytes.Buffer // of each connection
	conns []net.Conn
}

// Tap listens on loopback and passes everything on to target until the test ends.
func Tap(t testing.TB, target string) *Wiretap {
	t.Helper()
	listener := assert.Value(net.Listen("tcp4", "127.0.0.1:0"))(t)
	w := &Wiretap{listener: listener, target: target}
	w.running.Go(w.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		w.mu.Lock()
		for _, nc := range w.conns {
			_ = nc.Close()
		}
		w.mu.Unlock()
		w.running.Wait()
	})
	return w
}

// Addr is where the proxy listens.
func (w *Wiretap) Addr() string { return w.listener.Addr().String() }

func (w *Wiretap) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		sent := &bytes.Buffer{}
		w.mu.Lock()
		w.sent, w.conns = append(w.sent, sent), append(w.conns, client, server)
		w.mu.Unlock()
		w.running.Go(func() {
			// Kept first: an answer must not come before its request is known.
			_, _ = io.Copy(io.MultiWriter(kept{w, sent}, server), client)
			_ = server.Close()
		})
		w.running.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		})
	}
}

type kept struct {
	w  *Wiretap
	to *bytes.Buffer
}

func (k kept) Write(b []byte) (int, error) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	return k.to.Write(b)
}

// Requests are the bytes of each HTTP request so far whose head contains the text.
func (w *Wiretap) Requests(text string) (found [][]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sent := range w.sent {
		for rest := sent.Bytes(); ; {
			head, _, whole := bytes.Cut(rest, []byte("\r\n\r\n"))
			if !whole {
				break
			}
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(rest)))
			if err != nil {
				break
			}
			end := len(head) + 4 + int(max(r.ContentLength, 0))
			if end > len(rest) {
				break
			}
			if bytes.Contains(head, []byte(text)) {
				found = append(found, bytes.Clone(rest[:end]))
			}
			rest = rest[end:]
		}
	}
	return found
}

// SendRaw sends the bytes of an HTTP request from another address of loopback and returns the answer, of a stream what comes soon.
func SendRaw(t testing.TB, target string, request []byte) (status int, body string) {
	t.Helper()
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 10 * time.Second}
	nc := assert.Value(from.Dial("tcp", target))(t)
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	assert.Value(nc.Write(request))(t)
	response := assert.Value(http.ReadResponse(bufio.NewReader(nc), nil))(t)
	defer response.Body.Close()
	_ = nc.SetReadDeadline(time.Now().Add(5 * time.Second)) // a stream has no end
	text, err := io.ReadAll(response.Body)
	assert.Must(t, err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	return response.StatusCode, strings.TrimSpace(string(text))
}
