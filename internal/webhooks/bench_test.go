package webhooks

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/zk"
)

// BenchmarkMessage tells what the gateway itself spends on an end that one subscription wants: the entry and its data, the
// lane, the message and its signature, and the entry's removal. Neither the HTTP client's transport is in it nor ZooKeeper.
// Ends come 16 at a time, as from so many clients; cpu-ns/op is all of the process, the collector included.
func BenchmarkMessage(b *testing.B) {
	answers := make(chan struct{}, 1024)
	sender := NewSender(SenderOptions{Addresses: openAddresses(b)})
	sender.transports[""] = answering(func(*http.Request) { answers <- struct{}{} })
	store := &quickStore{tree: newTree()}
	s := New(Options{Store: store, Root: "/l", Addresses: sender.opt.Addresses, Transport: sender, Mine: func(string) bool { return true }})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	if _, err := s.Create(ctx, &Subscription{URL: "http://127.0.0.1:9/hook", Enabled: true}); err != nil {
		b.Fatal(err)
	}
	store.quick.Store(true)
	b.ReportAllocs()
	before := processorTime()
	const clients = 16
	n := 0
	for b.Loop() {
		n++
		lease := fmt.Sprintf("l_%016d", n)
		ops, entry, ready := s.Ending(false, func() *End {
			return &End{Entry: lease, Events: []Event{{Type: Released, Time: time.Now().UTC().Truncate(time.Millisecond), NS: "default", Lock: fmt.Sprint("own-", n%clients),
				LeaseID: lease, Znode: "/lockkeeper/locks/own/write-0-lock-0000000001", Owner: "127.0.0.1", Mode: "exclusive", FencingToken: int64(n), Reason: "released", Gateway: "g_0123456789abcdef"}}}
		})
		if !ready || entry == nil {
			b.Fatal("no entry")
		}
		s.Ended(entry, ops, zk.Result{Outcome: zk.Done, Zxid: int64(n), Culprit: -1})
		if n%clients == 0 {
			for range clients {
				<-answers
			}
		}
	}
	b.StopTimer()
	b.ReportMetric(float64((processorTime()-before).Nanoseconds())/float64(n), "cpu-ns/op")
}

// answering is a transport that accepts every message.
type answering func(*http.Request)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	a(r)
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}

// quickStore commits everything at once.
type quickStore struct {
	*tree
	quick atomic.Bool
}

func (s *quickStore) Commit(ctx context.Context, ops []zk.Op) zk.Result {
	if s.quick.Load() {
		return zk.Result{Outcome: zk.Done, Culprit: -1}
	}
	return s.tree.Commit(ctx, ops)
}

func openAddresses(tb testing.TB) *Addresses {
	a, err := NewAddresses(false, []string{"127.0.0.1"})
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
