package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// A drain ends the acquires that wait, and no other request, also where they share a connection.
func TestADrainEndsOnlyWhatWaits(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		g := serve(t)
		begun, free := make(chan string, 2), make(chan struct{})
		g.acquire = func(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
			begun <- req.Lock
			if req.Wait == 0 {
				select {
				case <-free:
					return locks.AcquireResult{Lease: held()}, nil
				case <-ctx.Done():
				}
			}
			<-ctx.Done()
			return locks.AcquireResult{}, &locks.Error{Code: locks.CodeCancelled, Err: context.Cause(ctx)}
		}
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
		transport.Protocols.SetUnencryptedHTTP2(protocol == "HTTP/2.0")
		defer transport.CloseIdleConnections()
		answers := map[string]chan *http.Response{}
		for lock, query := range map[string]string{"at-once": "", "waits": "?wait=1m"} {
			answer := make(chan *http.Response, 1)
			answers[lock] = answer
			go func() {
				a, err := (&http.Client{Transport: transport}).Post(g.url+"/v1/locks/"+lock+"/leases"+query, "", nil)
				assert.Nil(t, err)
				answer <- a
			}()
			assert.Equal(t, <-begun, lock)
		}
		g.server.Drain()
		a := <-answers["waits"]
		assert.Must(t, a != nil && a.StatusCode == 503 && a.Proto == protocol, "%s: the one that waits: %+v", protocol, a)
		_ = a.Body.Close()
		close(free)
		a = <-answers["at-once"]
		assert.Must(t, a != nil && a.StatusCode == 201 && a.Proto == protocol, "%s: the other one: %+v", protocol, a)
		_ = a.Body.Close()
	}
}

// The contexts of a connection that a drain has ended are ended for good.
func TestAConnectionOfAnAcquireThatADrainHasEndedIsClosed(t *testing.T) {
	g := serve(t)
	begun, _ := blocking(g)
	conn, err := net.Dial("tcp", g.address())
	assert.NoError(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(within))
	_, _ = io.WriteString(conn, "POST /v1/locks/a/leases?wait=1m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
	<-begun
	g.server.Drain()
	all, err := io.ReadAll(bufio.NewReader(conn))
	assert.NoError(t, err)
	assert.That(t, strings.HasPrefix(string(all), "HTTP/1.1 503") && strings.Contains(string(all), "Connection: close\r\n"), "%s", all)
}

func TestConnectionsEnterAndLeaveTheQueueInAnyOrder(t *testing.T) {
	var q queueing
	var ended sync.Map
	all := make([]*connection, 5)
	for i := range all {
		all[i] = &connection{end: func(error) { ended.Store(i, true) }}
		for range 2 {
			assert.That(t, q.enter(all[i], auth.Caller{}), "%d was refused", i)
		}
	}
	for _, i := range []int{2, 4, 0, 2} { // in the middle, the first and the last; one of them twice
		q.leave(all[i])
	}
	assert.That(t, q.enter(all[4], auth.Caller{}), "refused")
	q.drain()
	q.leave(all[1])
	for i := range all {
		_, got := ended.Load(i)
		assert.Equal(t, got, i == 1 || i == 3 || i == 4, fmt.Sprint(i))
	}
	assert.That(t, !q.enter(all[0], auth.Caller{}), "one enters after the drain")
}
