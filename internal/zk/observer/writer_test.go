package observer

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// breaking is a connection whose writes, once it breaks, wait for fail and then fail.
type breaking struct {
	net.Conn
	breaks atomic.Bool
	fail   chan struct{}
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.breaks.Load() {
		<-b.fail
		return 0, errors.New("broken")
	}
	return b.Conn.Write(p)
}

// The failure of a write interrupts a read, and there is none while the sink is told something.
func TestAFailedWriteEndsTheConnectionAtOnceAlsoWhenTheSinkWasBusyMeanwhile(t *testing.T) {
	first := &breaking{fail: make(chan struct{})}
	play(t, func(s *stage) {
		s.cfg.Dial = func(ctx context.Context, network, server string) (net.Conn, error) {
			c, err := s.zk.dial(ctx, network, server)
			if err == nil && first.Conn == nil {
				first.Conn = c
				c = first
			}
			return c, err
		}
	}, func(s *stage) {
		s.pass(1500 * time.Millisecond)
		first.breaks.Store(true)
		s.pass(700 * time.Millisecond) // a ping is being written; the next work is due in 800 ms
		s.m.mu.Lock()
		s.m.onApply = func([]zk.Change) {
			if s.m.onApply = nil; first.fail != nil {
				close(first.fail)
				time.Sleep(time.Millisecond) // the writer has said so, and no read was interrupted
			}
		}
		s.m.mu.Unlock()
		s.zk.conn(0).write(event(wire.EventCreated, "/locks/a/y"))
		s.pass(100 * time.Millisecond)
		assert.That(t, s.zk.sessions() == 2, "%d connections, 100 ms after the write has failed", s.zk.sessions())
	})
}

// A server that does not know the fleet by its certificate shows not all that there is: nothing is read from it.
func TestNothingIsReadFromAServerThatTakesTheFleetForAnother(t *testing.T) {
	names := []string{"CN=fleet", "CN=other", "", "CN=fleet"}
	var asked atomic.Int32
	play(t, func(s *stage) {
		s.cfg.Certificate = new(zk.CertificateAuth)
		s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
			if r.op != wire.OpWhoAmI {
				return false
			}
			who := &wire.WhoAmIReply{}
			if name := names[min(int(asked.Add(1)), len(names))-1]; name != "" {
				who.Clients = []wire.ClientInfo{{Scheme: zk.SchemeX509, User: name}}
			}
			c.write(reply(r.xid, 100, wire.OK, who))
			return true
		}
	}, func(s *stage) {
		assert.Equal(t, s.cfg.Certificate.Name(), "CN=fleet")
		assert.Must(t, s.o.State().Synced, "not synced")
		s.zk.conn(0).nc.Close()
		for s.zk.sessions() < len(names) {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		s.pass(time.Second)
		for i, name := range names {
			requests := strings.Join(s.zk.conn(i).requests(), ", ")
			assert.That(t, strings.HasPrefix(requests, "107") && strings.Contains(requests, "106 /locks") == (name == "CN=fleet"), "the connection of %q: %s", name, requests)
		}
		assert.That(t, s.o.State().Synced, "not synced again")
	})
}
