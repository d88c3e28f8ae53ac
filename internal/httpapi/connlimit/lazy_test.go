package connlimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// countingConn is a connection that counts what is asked of it.
type countingConn struct {
	net.Conn
	deadlines, ones atomic.Int64 // deadlines set, and reads of one byte
	got             atomic.Int64 // of these, those that have got it
}

func (c *countingConn) SetReadDeadline(t time.Time) error {
	c.deadlines.Add(1)
	return c.Conn.SetReadDeadline(t)
}

func (c *countingConn) SetWriteDeadline(t time.Time) error {
	c.deadlines.Add(1)
	return c.Conn.SetWriteDeadline(t)
}

func (c *countingConn) Read(p []byte) (int, error) {
	if len(p) == 1 {
		c.ones.Add(1)
	}
	n, err := c.Conn.Read(p)
	if len(p) == 1 && n == 1 {
		c.got.Add(1)
	}
	return n, err
}

// countingListener keeps the connections that it has accepted.
type countingListener struct {
	net.Listener
	last atomic.Pointer[countingConn]
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	counted := &countingConn{Conn: c}
	l.last.Store(counted)
	return counted, nil
}

// serveLazily starts a server with the gateway's kind of deadlines, and returns a connection to it.
func serveLazily(t *testing.T, handler http.HandlerFunc) (client net.Conn, server *countingListener) {
	t.Helper()
	limiter := New(Limits{Connections: 10, PerAddress: 10}, slog.New(slog.DiscardHandler))
	s := httptest.NewUnstartedServer(handler)
	s.Config.ReadHeaderTimeout, s.Config.ReadTimeout = 10*time.Second, 30*time.Second
	s.Config.WriteTimeout, s.Config.IdleTimeout = time.Minute, 5*time.Minute
	limiter.Bound(s.Config)
	server = &countingListener{Listener: s.Listener}
	s.Listener = limiter.Listener(server)
	s.Start()
	t.Cleanup(s.Close)
	client, err := net.Dial("tcp", s.Listener.Addr().String())
	assert.NoError(t, err)
	t.Cleanup(func() { client.Close() }) // before the server's Close, which waits for requests
	assert.NoError(t, client.SetDeadline(time.Now().Add(time.Minute)))
	return client, server
}

func get(t *testing.T, client net.Conn, answers *bufio.Reader, path string) string {
	t.Helper()
	fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	return answerOf(t, answers)
}

func answerOf(t *testing.T, answers *bufio.Reader) string {
	t.Helper()
	answer, err := http.ReadResponse(answers, nil)
	assert.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	assert.NoError(t, err)
	return string(body)
}

func TestARequestThatIsAnsweredAtOnceTakesNoDeadlineAndNoReadOfItsOwn(t *testing.T) {
	client, server := serveLazily(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	answers := bufio.NewReader(client)
	assert.MustEqual(t, get(t, client, answers, "/first"), "/first")
	const requests = 100
	begun := time.Now()
	before := server.last.Load()
	deadlines := before.deadlines.Load()
	for range requests {
		assert.MustEqual(t, get(t, client, answers, "/more"), "/more")
	}
	// What took longer than watchAfter is watched: on a busy machine a few are, each with a few deadlines.
	most := int64(time.Since(begun)/watchAfter) + 1
	c := server.last.Load()
	assert.That(t, c.ones.Load() <= most, "%d reads of one byte", c.ones.Load())
	assert.That(t, c.deadlines.Load()-deadlines <= 4*most, "%d deadlines", c.deadlines.Load()-deadlines)
}

func TestTheRequestOfAClientThatGoesAwayEnds(t *testing.T) {
	ended := make(chan error, 1)
	client, _ := serveLazily(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil || r.URL.Path == "/first" {
			return
		}
		select {
		case <-r.Context().Done():
			ended <- nil
		case <-time.After(time.Minute):
			ended <- errors.New("the request did not end")
		}
	})
	assert.MustEqual(t, get(t, client, bufio.NewReader(client), "/first"), "")
	fmt.Fprint(client, "POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
	client.Close()
	assert.NoError(t, <-ended)
}

// With TLS in between net/http watches by itself, and the limiter reads none of its bytes.
func TestWithTLSTheRequestOfAClientThatGoesAwayEnds(t *testing.T) {
	limiter := New(Limits{Connections: 10, PerAddress: 10}, slog.New(slog.DiscardHandler))
	begun, ended := make(chan bool), make(chan error, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/wait" {
			testkit.Eventually(t, 30*time.Second, func() bool {
				limiter.mu.Lock()
				defer limiter.mu.Unlock()
				return limiter.unwatched.first == nil
			}, "the limiter has looked at the request")
			return
		}
		close(begun)
		select {
		case <-r.Context().Done():
			ended <- nil
		case <-time.After(time.Minute):
			ended <- errors.New("the request did not end")
		}
	}))
	limiter.Bound(s.Config)
	s.Listener = limiter.Listener(s.Listener)
	s.StartTLS()
	t.Cleanup(s.Close)
	for range 3 {
		answer, err := s.Client().Get(s.URL + "/")
		assert.NoError(t, err)
		answer.Body.Close()
	}
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-begun
		leave()
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/wait", nil)
	assert.NoError(t, err)
	_, err = s.Client().Do(request)
	assert.That(t, errors.Is(err, context.Canceled), "the client ended with %v", err)
	assert.NoError(t, <-ended)
}

// A request that is sent before the one before it is answered: its first byte is read by the watch.
func TestWhatTheWatchHasReadBelongsToTheNextRequest(t *testing.T) {
	answer := make(chan struct{})
	client, server := serveLazily(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-answer
		}
		_, _ = io.WriteString(w, r.Method+r.URL.Path)
	})
	fmt.Fprint(client, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
	awaitWatch(t, server)
	fmt.Fprint(client, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
	testkit.Eventually(t, 30*time.Second, func() bool { return server.last.Load().got.Load() == 1 }, "the watch has read a byte")
	close(answer)
	answers := bufio.NewReader(client)
	assert.MustEqual(t, answerOf(t, answers), "GET/wait")
	assert.MustEqual(t, answerOf(t, answers), "GET/next")
	assert.MustEqual(t, get(t, client, answers, "/last"), "GET/last")
}

// awaitWatch waits until the connection is being watched.
func awaitWatch(t *testing.T, server *countingListener) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() bool {
		c := server.last.Load()
		return c != nil && c.ones.Load() > 0
	}, "the connection is watched")
}

func TestAHijackedConnectionIsWatchedNoLonger(t *testing.T) {
	server := make(chan *countingListener, 1)
	ended := make(chan bool, 1)
	client, listener := serveLazily(t, func(w http.ResponseWriter, r *http.Request) {
		awaitWatch(t, <-server)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "go on\n")
		line, err := rw.ReadString('\n')
		assert.That(t, err == nil && line == "abc\n", "read %q, %v", line, err)
		_, _ = io.WriteString(c, "go on\n")
		for _, want := range "de" { // a byte at a time is its reader's own business
			var one [1]byte
			n, err := c.Read(one[:])
			assert.That(t, n == 1 && one[0] == byte(want), "read %q, %v", one[:n], err)
		}
		ended <- r.Context().Err() != nil
	})
	server <- listener
	fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	answers := bufio.NewReader(client)
	for _, text := range []string{"abc\n", "de"} {
		line, err := answers.ReadString('\n')
		assert.That(t, err == nil && line == "go on\n", "read %q, %v", line, err)
		fmt.Fprint(client, text)
	}
	assert.That(t, !<-ended, "the context of the request had ended")
}

// pipe is a lazy connection whose other end the test has, in virtual time.
func pipe() (*lazyConn, net.Conn) {
	here, there := net.Pipe()
	return &lazyConn{Conn: here, gone: func() {}}, there
}

func TestAReadEndsAtTheDeadlineThatWasAskedForLast(t *testing.T) {
	for _, test := range []struct {
		name    string
		before  time.Duration // of an earlier read; 0: none
		asked   time.Duration
		instead time.Duration // asked for while it reads; 0: nothing
		want    time.Duration
	}{
		{"the first", 0, time.Second, 0, time.Second},
		{"later than the one before", time.Second, time.Minute, 0, time.Minute},
		{"earlier than the one before", time.Minute, time.Second, 0, time.Second},
		{"moved forward", 0, time.Minute, time.Second, time.Second},
		{"moved back", 0, time.Second, time.Minute, time.Minute},
		{"gone by", time.Minute, -time.Second, 0, 0},
		{"at once", time.Minute, time.Minute, -time.Second, time.Second / 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, other := pipe()
				defer other.Close()
				begun := time.Now()
				at := func(d time.Duration) {
					assert.NoError(t, c.SetDeadline(begun.Add(d)))
				}
				if test.before != 0 {
					at(test.before)
					go func() { _, _ = other.Write([]byte("x")) }()
					_, err := c.Read(make([]byte, 2))
					assert.NoError(t, err)
					go func() { _, _ = other.Read(make([]byte, 2)) }()
					_, err = c.Write([]byte("x"))
					assert.NoError(t, err)
				}
				at(test.asked)
				if test.instead != 0 {
					time.AfterFunc(time.Second/2, func() { at(test.instead) })
				}
				ended := make(chan error)
				go func() {
					_, err := c.Write([]byte("x"))
					ended <- err
				}()
				_, err := c.Read(make([]byte, 2))
				assert.That(t, errors.Is(err, os.ErrDeadlineExceeded), "the read ended with %v", err)
				err = <-ended
				assert.That(t, errors.Is(err, os.ErrDeadlineExceeded), "the write ended with %v", err)
				assert.Equal(t, time.Since(begun), test.want)
			})
		})
	}
}

func TestWithoutADeadlineAReadOutlastsThoseOfEarlierOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := pipe()
		defer other.Close()
		assert.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
		go func() { _, _ = other.Write([]byte("x")) }()
		_, err := c.Read(make([]byte, 2))
		assert.NoError(t, err)
		assert.NoError(t, c.SetReadDeadline(time.Time{}))
		time.AfterFunc(time.Hour, func() { _, _ = other.Write([]byte("late")) })
		text := make([]byte, 8)
		n, err := c.Read(text)
		assert.That(t, err == nil && string(text[:n]) == "late", "read %q, %v", text[:n], err)
	})
}

// A deadline of an earlier write ends a later one in the middle of its bytes.
func TestAWriteGoesOnAfterADeadlineThatIsNotItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := pipe()
		defer other.Close()
		received := make(chan string, 2)
		read := func(n int) {
			text := make([]byte, n)
			_, _ = io.ReadFull(other, text)
			received <- string(text)
		}
		assert.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Second)))
		go read(1)
		_, err := c.Write([]byte("a"))
		assert.NoError(t, err)
		assert.Equal(t, <-received, "a")
		assert.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Minute)))
		go func() {
			read(3)
			time.Sleep(10 * time.Second)
			read(3)
		}()
		n, err := c.Write([]byte("abcdef"))
		assert.That(t, n == 6 && err == nil, "written: %d, %v", n, err)
		assert.Equal(t, <-received, "abc")
		assert.Equal(t, <-received, "def")
	})
}

func TestTheWatchTellsThatTheConnectionHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := pipe()
		gone := 0
		c.gone = func() { gone++ }
		c.arm()
		n, err := c.Read(make([]byte, 1))
		assert.That(t, n == 0 && err == nil, "the read that is spared got %d, %v", n, err)
		c.startWatch()
		c.startWatch()
		synctest.Wait()
		other.Close()
		synctest.Wait()
		assert.Equal(t, gone, 1)
		_, err = c.Read(make([]byte, 10))
		assert.That(t, err == io.EOF, "read: %v", err)
	})
}

// net/http may start its read later than the watch would begin.
func TestAReadThatComesLateIsNotSpared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := pipe()
		defer other.Close()
		c.arm()
		c.startWatch()
		go func() { _, _ = other.Write([]byte("x")) }()
		n, err := c.Read(make([]byte, 1))
		assert.That(t, n == 1 && err == nil, "read %d, %v", n, err)
	})
}

// With 4,095 bytes of a trailer in its buffer net/http reads one byte for the body. Its next read of one byte is its own then.
func TestNoWatchBeginsBesideAnotherRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := pipe()
		c.arm()
		n, err := c.Read(make([]byte, 1))
		assert.That(t, n == 0 && err == nil, "the read that is spared got %d, %v", n, err)
		go func() { _, _ = c.Read(make([]byte, 1)) }()
		synctest.Wait()
		c.startWatch()
		synctest.Wait()
		c.mu.Lock()
		assert.That(t, !c.watch.on && c.readers == 1, "%d reads at the same time", c.readers)
		c.mu.Unlock()
		other.Close()
	})
}
