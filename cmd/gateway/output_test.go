package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// stuck is an output that takes nothing from when still is closed until free is.
type stuck struct {
	still, free chan struct{}
	mu          sync.Mutex
	took        bytes.Buffer
}

func newStuck() *stuck { return &stuck{still: make(chan struct{}), free: make(chan struct{})} }

func (s *stuck) Write(b []byte) (int, error) {
	select {
	case <-s.still:
		<-s.free
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.took.Write(b)
}

func TestAnOutputThatStandsStillIsGivenUpWhenTheProcessEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newStuck()
		o := newSharedOutput(to)
		defer o.stop()
		n, err := o.Write([]byte("one\n"))
		assert.That(t, n == 4 && err == nil && to.took.String() == "one\n", "%d, %v: %q", n, err, to.took.String())
		ctx, told := context.WithCancel(t.Context())
		defer o.end(ctx)()
		close(to.still)
		defer close(to.free)
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := o.Write([]byte("two\n"))
				ended <- err
			}()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.That(t, len(ended) == 0, "a write was given up while the process runs")
		told()
		for range 2 {
			assert.That(t, errors.Is(<-ended, errStalled), "a write")
		}
		_, err = o.Write([]byte("three\n"))
		assert.That(t, errors.Is(err, errStalled), "a later one: %v", err)
	})
}

func TestAnOutputThatIsSlowIsWaitedForWhenTheProcessEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := writerFunc(func(b []byte) (int, error) { time.Sleep(stalledWithin / 2); return len(b), nil })
		o := newSharedOutput(slow)
		defer o.stop()
		ctx, told := context.WithCancel(t.Context())
		defer o.end(ctx)()
		told()
		for range 20 {
			n, err := o.Write([]byte("line\n"))
			assert.That(t, n == 5 && err == nil, "%d, %v", n, err)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

// auditing runs a gateway with an audit log, and returns once it has answered a request.
func auditing(t *testing.T, to *stuck, audit string) (stop func(), ended chan error, url string) {
	t.Helper()
	address := testkit.FreeAddr(t)
	c := &config{DataDir: t.TempDir(), Root: "/lockkeeper", CreateRoot: true, SessionTimeout: 10 * time.Second, Listen: address, LogLevel: "info", LogFormat: "json", AccessLog: "all", AuditLog: audit}
	ctx, stop := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	go func() { ended <- serve(ctx, c, to) }()
	testkit.Eventually(t, 60*time.Second, func() bool {
		a, err := http.Post("http://"+address+"/v1/locks/a/leases?ttl=5m", "", nil)
		return err == nil && a.Body.Close() == nil && a.StatusCode == 201
	}, "the gateway serves")
	return stop, ended, "http://" + address
}

func post(t *testing.T, url string, n int) {
	t.Helper()
	for i := range n {
		a := assert.Value(http.Post(fmt.Sprintf("%s/v1/locks/x%d/leases?ttl=5m", url, i), "", nil))(t)
		_ = a.Body.Close()
		assert.Equal(t, a.StatusCode, 201)
	}
}

// Standard error is a pipe whose reader has stopped: requests are answered, and the gateway hands over and ends.
func TestAGatewayEndsAlsoWhenNothingReadsItsLogs(t *testing.T) {
	to := newStuck()
	defer close(to.free)
	stop, ended, url := auditing(t, to, "stderr")
	close(to.still)
	post(t, url, 20)
	stop()
	assert.NoError(t, testkit.Receive(t, 60*time.Second, ended, "the gateway ends"))
}

func TestAGatewayEndsAlsoWhenNothingReadsItsAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	assert.NoError(t, syscall.Mkfifo(path, 0o600))
	reader := assert.Value(os.OpenFile(path, os.O_RDWR, 0))(t)
	defer reader.Close()
	assert.Value(unix.FcntlInt(reader.Fd(), unix.F_SETPIPE_SZ, 4096))(t)
	to := newStuck()
	stop, ended, url := auditing(t, to, path)
	post(t, url, 60) // some 12 kB
	stop()
	assert.NoError(t, testkit.Receive(t, 60*time.Second, ended, "the gateway ends"))
	to.mu.Lock()
	defer to.mu.Unlock()
	assert.That(t, bytes.Contains(to.took.Bytes(), []byte("the audit log takes nothing")) && bytes.Contains(to.took.Bytes(), []byte(`"stopped"`)), "the log:\n%s", to.took.String())
}
