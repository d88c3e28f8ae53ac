package standalone

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

func TestWhatIsWrittenArrivesInOrderHoweverItIsCut(t *testing.T) {
	testkit.NoLeaks(t)
	a, b := newPipe()
	want := make([]byte, 5*pipeBuffer)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(want) // never fails
	var writing sync.WaitGroup
	writing.Go(func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), rand.IntN(3*pipeBuffer/2)+1)
			m, err := a.Write(rest[:n])
			assert.That(t, m == n && err == nil, "wrote %d of %d: %v", m, n, err)
			rest = rest[n:]
		}
		a.Close()
	})
	var got []byte
	for {
		p := make([]byte, rand.IntN(pipeBuffer)+1)
		n, err := b.Read(p)
		got = append(got, p[:n]...)
		if err == io.EOF {
			break
		}
		assert.NoError(t, err)
	}
	writing.Wait()
	assert.That(t, bytes.Equal(got, want), "got %d bytes of %d, or others", len(got), len(want))
}

func TestReadsTakeTogetherWhatWasWrittenOneAfterTheOther(t *testing.T) {
	a, b := newPipe()
	for range 3 {
		assert.Value(a.Write([]byte("xyz")))(t)
	}
	p := make([]byte, 100)
	n, err := b.Read(p)
	assert.That(t, n == 9 && err == nil, "read %d: %v", n, err)
}

func TestDeadlinesEndWaitingInVirtualTime(t *testing.T) {
	full := make([]byte, pipeBuffer+1)
	for name, c := range map[string]struct {
		set  func(net.Conn, time.Time) error
		wait func(net.Conn) error
	}{
		"read":  {net.Conn.SetReadDeadline, func(c net.Conn) error { _, err := c.Read(make([]byte, 1)); return err }},
		"write": {net.Conn.SetWriteDeadline, func(c net.Conn) error { _, err := c.Write(full); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _ := newPipe()
				began := time.Now()
				assert.NoError(t, c.set(a, began.Add(time.Second)))
				err := c.wait(a)
				assert.That(t, errors.Is(err, os.ErrDeadlineExceeded) && time.Since(began) == time.Second,
					"%v after %v", err, time.Since(began))
				var timeout net.Error
				assert.That(t, errors.As(err, &timeout) && timeout.Timeout(), "%v is no timeout", err)
				// Set while a reader waits: earlier, and later again.
				assert.NoError(t, c.set(a, time.Time{}))
				ended := make(chan error)
				began = time.Now()
				go func() { ended <- c.wait(a) }()
				synctest.Wait()
				assert.NoError(t, c.set(a, began.Add(time.Hour)))
				synctest.Wait()
				assert.NoError(t, c.set(a, began.Add(time.Minute)))
				if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}

func TestClosingEitherEndEndsEverything(t *testing.T) {
	testkit.NoLeaks(t)
	a, b := newPipe()
	reading := make(chan error)
	go func() { _, err := b.Read(make([]byte, 1)); reading <- err }()
	writing := make(chan error)
	go func() { _, err := b.Write(make([]byte, pipeBuffer+1)); writing <- err }()
	a.Close()
	assert.Equal(t, <-reading, io.EOF, "reading from a closed end")
	assert.Equal(t, <-writing, io.ErrClosedPipe, "writing to a closed end")
	_, err := a.Read(make([]byte, 1))
	assert.Equal(t, err, io.ErrClosedPipe, "reading on the closed end")
	_, err = a.Write([]byte("x"))
	assert.Equal(t, err, io.ErrClosedPipe, "writing on the closed end")
	assert.Equal(t, a.SetDeadline(time.Now()), io.ErrClosedPipe, "a deadline on the closed end")
	a.Close()
	b.Close()
}
