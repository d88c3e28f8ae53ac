package observer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// blindSink takes everything and does nothing.
type blindSink struct {
	until chan struct{} // closed at the first DirRemoved
}

func (s *blindSink) Apply(changes []zk.Change) {
	for i := range changes {
		if changes[i].Kind == zk.DirRemoved {
			close(s.until)
		}
	}
}

// BenchmarkEvents measures what one watch event costs from the bytes of a
// burst to the Sink: half of them create a contender, half delete it.
func BenchmarkEvents(b *testing.B) {
	const locks = 256
	var frames []byte
	for i := range locks {
		path := fmt.Sprintf("/lockkeeper/locks/job-%04d/write-lk1abcdefgh0123456789abcdefghijklmnopqrstuvwxyz-lock-%010d", i, i)
		frames = append(frames, event(wire.EventCreated, path)...)
		frames = append(frames, event(wire.EventDeleted, path)...)
	}
	o := New(zk.Config{Servers: []string{"a:1"}}, nil, &blindSink{}, nil)
	c := &observation{Observer: o, replied: true, synced: true}
	root := c.replica.add(zk.WatchRoot{Path: "/lockkeeper/locks", Depth: 2}, "/lockkeeper/locks")
	root.listed, root.synced = true, true
	for i := range locks {
		c.replica.event(wire.EventCreated, fmt.Appendf(nil, "/lockkeeper/locks/job-%04d", i))
	}
	in := bytes.NewReader(frames)
	c.s = &stream{frames: wire.NewFrameReader(in, maxObserved)}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		in.Reset(frames)
		for in.Len() > 0 || c.s.frames.Buffered() {
			if err := c.burst(); err != nil {
				b.Fatal(err)
			}
		}
		n += 2 * locks
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/event")
}

// BenchmarkEventsOverTCP is the same with everything around it: a server that sends events as fast as they are taken.
func BenchmarkEventsOverTCP(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	const burst = 500
	var frames []byte
	for i := range burst / 2 {
		path := fmt.Sprintf("/locks/job/write-lk1abcdefgh0123456789abcdefghijklmnopqrstuvwxyz-lock-%010d", i)
		frames = append(frames, event(wire.EventCreated, path)...)
		frames = append(frames, event(wire.EventDeleted, path)...)
	}
	pump := make(chan int)
	served := make(chan struct{})
	go func() {
		defer close(served)
		nc, err := listener.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		z := newFakeZK(b)
		z.tree = map[string][]string{"/locks": {"job"}, "/locks/job": nil}
		c := &fakeConn{zk: z, nc: nc}
		in := wire.NewFrameReader(nc, 1<<20)
		in.Next()
		c.write(wire.AppendFrame(nil, &wire.ConnectReply{TimeoutMs: 60_000, SessionID: 1, Passwd: make([]byte, 16)}))
		for range 4 { // watch, ping, two listings
			frame, err := in.Next()
			if err != nil {
				return
			}
			c.handle(frame)
		}
		for n := range pump {
			for range n {
				c.write(frames)
			}
			c.write(event(wire.EventDeleted, "/locks/job"))
		}
	}()
	sink := &blindSink{until: make(chan struct{})}
	o := New(zk.Config{Servers: []string{listener.Addr().String()}, SessionTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)},
		[]zk.WatchRoot{{Path: "/locks", Depth: 2}}, sink, nil)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- o.Run(ctx) }()
	b.ReportAllocs()
	b.ResetTimer()
	pump <- b.N/burst + 1
	<-sink.until
	b.StopTimer()
	close(pump)
	cancel()
	<-ended
	<-served
}
