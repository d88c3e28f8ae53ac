package embedded_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/wire"
)

// metric reads a number from the answer to mntr.
func metric(t testing.TB, s *embeddedtest.Server, name string) int {
	t.Helper()
	answer := assert.Value(s.FourLetter("mntr"))(t)
	for line := range strings.Lines(answer) {
		if rest, ok := strings.CutPrefix(line, "zk_"+name+"\t"); ok {
			n := assert.Value(strconv.Atoi(strings.TrimSpace(rest)))(t)
			return n
		}
	}
	t.Fatalf("no %s in %s", name, answer)
	return 0
}

func TestAThousandHalfOpenConnectionsDisturbNoClientAndAreClosed(t *testing.T) {
	testkit.NoLeaks(t)
	s := embeddedtest.RunT(t, embeddedtest.With(func(c *embedded.Config) { c.HandshakeTimeout = 2 * time.Second }))
	other := openRaw(t, s, time.Minute)
	beginnings := [][]byte{nil, {0}, {0, 0, 0, 44}, append([]byte{0, 0, 0, 44}, make([]byte, 43)...), {0, 0xf, 0xff, 0xff, 1}, []byte("ruo")}
	var half []net.Conn
	for i := range 1000 {
		nc := assert.Value(net.Dial("tcp", s.Addr()))(t)
		defer nc.Close()
		assert.Value(nc.Write(beginnings[i%len(beginnings)]))(t)
		half = append(half, nc)
		if i%100 == 0 {
			other.ping()
		}
	}
	other.create("/a", nil, 0)
	for _, nc := range half {
		assert.NoError(t, nc.SetReadDeadline(time.Now().Add(patience)))
		n, err := nc.Read(make([]byte, 1))
		assert.Must(t, n == 0 && !strings.Contains(fmt.Sprint(err), "timeout"), "not closed: %d, %v", n, err)
	}
	other.ping()
	testkit.Eventually(t, patience, func() bool { return metric(t, s, "num_alive_connections") == 2 }, "the other and the asking connection are left")
}

func TestConnectionsAreBounded(t *testing.T) {
	for name, c := range map[string]func(*embedded.Config){
		"in all":        func(c *embedded.Config) { c.MaxConns = 3 },
		"of an address": func(c *embedded.Config) { c.MaxConnsPerIP = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			s := embeddedtest.RunT(t, embeddedtest.With(c))
			var open []*raw
			for range 3 {
				open = append(open, openRaw(t, s, time.Minute))
			}
			reply, err := dialRaw(t, s).Connect(&wire.ConnectRequest{TimeoutMs: 5000, Passwd: make([]byte, 16)})
			assert.That(t, err != nil, "one too many was answered with %+v", reply)
			for _, c := range open {
				c.ping()
			}
			open[0].close()
			testkit.Eventually(t, patience, func() bool {
				answer, err := s.FourLetter("ruok")
				return err == nil && answer == "imok"
			}, "a place becomes free")
		})
	}
}

func TestAFrameAboveTheLimitEndsItsConnectionAlone(t *testing.T) {
	s := embeddedtest.RunT(t)
	other := openRaw(t, s, time.Minute)
	for _, length := range []uint32{0x100000, 0x7fffffff, 0x80000000, 0xffffffff} {
		head := []byte{byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}
		c := openRaw(t, s, time.Minute)
		assert.NoError(t, c.Write(append(rawzk.Request(wire.XidPing, wire.OpPing, nil), head...)))
		c.drained("a frame of impossible length")
		unborn := dialRaw(t, s)
		assert.NoError(t, unborn.Write(head))
		unborn.ended("a connect request of impossible length")
		other.ping()
	}
	// The longest that is allowed is served.
	c := openRaw(t, s, time.Minute)
	fixed := len(rawzk.Request(1, wire.OpCreate, &wire.CreateRequest{Path: "/large", Data: []byte{}, ACL: everyone})) - 4
	c.create("/large", make([]byte, 0xfffff-fixed), 0)
	other.exists("/large")
}

// drained reads what has been sent until the connection ends.
func (r *raw) drained(why string) {
	r.t.Helper()
	for range 100_000 {
		switch _, err := r.Next(); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.t.Fatalf("%s: the connection lives on", why)
		case err != nil:
			return
		}
	}
	r.t.Fatalf("%s: the connection lives on", why)
}

func TestAClientThatNeverReadsIsHeldBackAndOthersGoOn(t *testing.T) {
	s := embeddedtest.RunT(t)
	slow, other := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
	data := bytes.Repeat([]byte("x"), 200<<10)
	other.create("/large", data, 0)

	const asked = 500 // 100 MB of replies
	var burst []byte
	for i := range int32(asked) {
		burst = append(burst, rawzk.Request(i+1, wire.OpGetData, &wire.ReadRequest{Path: "/large"})...)
	}
	assert.NoError(t, slow.Write(burst))
	for range 50 {
		other.ping()
	}
	sent := metric(t, s, "packets_sent")
	assert.That(t, sent <= asked/2, "%d frames were made for a client that reads none", sent)
	// When it reads after all, everything comes, in order.
	for i := range int32(asked) {
		g := slow.receive()
		assert.Must(t, g.Xid == i+1 && len(g.Body) >= len(data), "reply %d: xid %d, %d bytes", i, g.Xid, len(g.Body))
	}
}

func TestAWatcherThatNeverReadsIsClosedAtTheBound(t *testing.T) {
	s := embeddedtest.RunT(t, embeddedtest.With(func(c *embedded.Config) { c.MaxUnread = 1 << 20 }))
	slow, other := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
	path := "/" + strings.Repeat("long", 5000)
	other.create(path, nil, 0)
	slow.must(wire.OpAddWatch, &wire.AddWatchRequest{Path: path, Mode: wire.WatchPersistent})
	for range 20_000 { // the kernel takes some megabytes first
		other.must(wire.OpSetData, &wire.SetDataRequest{Path: path, Version: -1})
		if metric(t, s, "num_alive_connections") == 2 {
			break // other and the one that asks
		}
	}
	slow.drained("it did not read")
	other.ping()
}

func TestWatchersThatNeverReadAreClosedAtTheBoundForAllOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a pipe holds nothing: what is sent and not read is the server's
		s := embeddedtest.RunT(t, embeddedtest.Pipes(), embeddedtest.With(func(c *embedded.Config) { c.MaxUnreadTotal = 20 << 20 }))
		path := "/" + strings.Repeat("long", 5000)
		other := openRaw(t, s, time.Minute)
		other.create(path, nil, 0)
		var slow []*raw
		for range 8 {
			slow = append(slow, openRaw(t, s, time.Minute))
			slow[len(slow)-1].must(wire.OpAddWatch, &wire.AddWatchRequest{Path: path, Mode: wire.WatchPersistent})
		}
		modest := openRaw(t, s, time.Minute)
		modest.must(wire.OpGetData, &wire.ReadRequest{Path: path, Watch: true})
		most := 0
		for range 500 { // 10 MB for each of 8
			other.must(wire.OpSetData, &wire.SetDataRequest{Path: path, Version: -1})
			most = max(most, s.Unread())
		}
		assert.That(t, most <= 21<<20, "%d bytes were kept for clients that do not read", most)
		assert.That(t, most >= 10<<20, "closed with no more than %d bytes in all", most)
		assert.Equal(t, modest.event().Path, path, "who left little unread")
		for _, r := range slow {
			r.Conn.Close()
		}
		synctest.Wait()
		assert.Equal(t, s.Unread(), 0, "bytes are counted that no connection waits for")
	})
}

// stepped runs a server over pipes that counts its batches, and waits with the one that follows a hold.
func stepped(t *testing.T, change ...func(*embedded.Config)) (s *embeddedtest.Server, hold func(), batches func() int) {
	t.Helper()
	var mu sync.Mutex
	gates, held := 0, false
	options := []embeddedtest.Option{embeddedtest.Pipes(), embeddedtest.With(func(c *embedded.Config) {
		c.Gate = func(stop <-chan struct{}) {
			mu.Lock()
			gates++
			wait := held
			held = false
			mu.Unlock()
			if wait {
				time.Sleep(50 * time.Millisecond) // of the bubble's time: until nothing else moves
			}
		}
	})}
	for _, f := range change {
		options = append(options, embeddedtest.With(f))
	}
	hold = func() {
		mu.Lock()
		defer mu.Unlock()
		gates, held = 0, true
	}
	batches = func() int {
		mu.Lock()
		defer mu.Unlock()
		return gates
	}
	return embeddedtest.RunT(t, options...), hold, batches
}

func TestALongBurstLetsOthersHaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hold, _ := stepped(t)
		greedy, other := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
		greedy.create("/large", make([]byte, 200<<10), 0) // so that the server reads much at a time
		before := other.must(wire.OpExists, &wire.ReadRequest{Path: "/"}).Zxid
		const asked = 1500
		var burst []byte
		for i := range int32(asked) {
			burst = append(burst, rawzk.Request(i+1, wire.OpSetData, &wire.SetDataRequest{Path: "/", Data: []byte{}, Version: -1})...)
		}
		hold()
		if err := greedy.Write(burst); err != nil { // one write to a pipe is one burst
			t.Fatal(err)
		}
		synctest.Wait()
		done := other.must(wire.OpExists, &wire.ReadRequest{Path: "/"}).Zxid - before
		assert.That(t, done != 0 && done < asked/2, "%d of %d requests of another connection came first", done, asked)
		for i := range int32(asked) { // all come, in order, once
			g := greedy.receive()
			assert.Must(t, g.Xid == i+1 && g.Err == wire.OK && g.Zxid == before+int64(i)+1, "reply %d: %+v", i, g.ReplyHeader)
		}
	})
}

func TestABatchIsBoundedByItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hold, batches := stepped(t)
		var readers []*raw
		for range 64 {
			readers = append(readers, openRaw(t, s, time.Minute))
		}
		readers[0].create("/large", make([]byte, 1_000_000), 0)
		hold()
		for _, r := range readers {
			r.send(wire.OpGetData, &wire.ReadRequest{Path: "/large"})
		}
		synctest.Wait()
		for _, r := range readers {
			r.receive()
		}
		n := batches()
		assert.That(t, n >= 4, "64 MB of replies were made in %d batches", n)
	})
}

// A multi of a megabyte makes tens of thousands of events at once for each watcher.
func TestAWatcherIsClosedAtTheBoundWithinABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := stepped(t, func(c *embedded.Config) { c.MaxUnread = 100 << 10 })
		watcher, other := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
		watcher.must(wire.OpAddWatch, &wire.AddWatchRequest{Path: "/", Mode: wire.WatchRecursive})
		var ops wire.MultiRequest
		for range 10_000 {
			ops.Ops = append(ops.Ops, wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: "/", Data: []byte{}, Version: -1}})
		}
		other.send(wire.OpMulti, &ops)
		watcher.ended("its events are above the bound")
		synctest.Wait() // the server lets go of the connection's watches after that
		n := metric(t, s, "packets_sent")
		assert.That(t, n <= 5000, "%d frames were made", n)
		assert.Equal(t, metric(t, s, "watch_count"), 0, "watches are left")
	})
}

func TestAMultiReadCannotTakeAllMemory(t *testing.T) {
	s := embeddedtest.RunT(t, embeddedtest.With(func(c *embedded.Config) { c.MaxUnread = 4 << 20 }))
	c, other := openRaw(t, s, time.Minute), openRaw(t, s, time.Minute)
	other.create("/large", make([]byte, 1_000_000), 0)
	var reads wire.MultiRequest
	for range 20_000 { // 20 GB
		reads.Ops = append(reads.Ops, wire.MultiOp{Op: wire.OpGetData, Record: &wire.ReadRequest{Path: "/large"}})
	}
	c.send(wire.OpMultiRead, &reads)
	c.drained("a reply above the bound")
	other.ping()
}

// While a client's unread output keeps its further requests waiting, its pings wait, too. That it reads is a sign of life then.
func TestAClientThatReadsSlowlyKeepsItsSessionAndOneThatDoesNotReadLosesIt(t *testing.T) {
	for name, reads := range map[string]bool{"reads slowly": true, "reads nothing": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := embeddedtest.RunT(t, embeddedtest.Pipes())
				slow, other := openRaw(t, s, 4*time.Second), openRaw(t, s, time.Minute)
				slow.create("/mine", nil, wire.FlagEphemeral)
				other.create("/large", make([]byte, 1_000_000), 0)
				const asked = 4
				var burst []byte
				for i := range int32(asked) {
					burst = append(burst, rawzk.Request(i+1, wire.OpGetData, &wire.ReadRequest{Path: "/large"})...)
				}
				assert.NoError(t, slow.Write(burst))
				slow.Frames = wire.NewFrameReader(bufio.NewReaderSize(crawl{slow.Conn}, 64<<10), 64<<20)
				if !reads {
					time.Sleep(10 * time.Second)
					assert.That(t, !other.exists("/mine"), "the session lives on")
					return
				}
				stop, stopped := make(chan struct{}), make(chan struct{})
				go func() { // pings, which wait in the pipe while the server does not read
					defer close(stopped)
					for {
						select {
						case <-stop:
							return
						case <-time.After(time.Second):
							_ = slow.Write(rawzk.Request(wire.XidPing, wire.OpPing, nil)) // fails when the test has
						}
					}
				}()
				defer func() {
					close(stop)
					slow.Conn.Close()
					<-stopped
				}()
				for i := range int32(asked) {
					g := slow.receive()
					assert.Must(t, g.Xid == i+1 && len(g.Body) >= 1_000_000, "reply %d: xid %d, %d bytes", i, g.Xid, len(g.Body))
					other.ping()
				}
				assert.That(t, other.exists("/mine"), "the session is over")
			})
		})
	}
}

// crawl reads 64 kB a second: a megabyte takes four times the session's timeout.
type crawl struct{ nc net.Conn }

func (c crawl) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return c.nc.Read(p[:min(len(p), 64<<10)])
}
