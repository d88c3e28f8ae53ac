package manager

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func TestAnEndThatWasNotDoneAfterAllIsToldWhenAnotherHandEndsTheLease(t *testing.T) {
	for _, lost := range []string{"the answer", "the session"} {
		withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second, NotifyURL: someURL})
			s.mu.Lock()
			if lost == "the answer" {
				s.vague, s.drop = writeTo(l.Znode), true
			} else {
				s.loseReply = writeTo(l.Znode)
				s.refuse = refusing(writeTo(l.Znode), -1, errors.New("lost"))
			}
			session := s.sessions[g.m.GatewayID()]
			s.mu.Unlock()
			time.Sleep(10*time.Second + 500*time.Millisecond) // it expires, and nobody knows whether it has
			s.set(func() { s.vague, s.drop, s.loseReply, s.refuse = nil, false, nil, nil })
			if lost == "the session" {
				session.expire()
				time.Sleep(5 * time.Second)
			}
			synctest.Wait()
			assert.Value(g.heartbeat(l))(t, "%s is lost", lost)
			s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
			if gone := g.outbox.gone; len(gone) != 1 || gone[0].LeaseID != l.ID || gone[0].Reason != locks.ReasonRemoved || gone[0].Notify != someURL {
				t.Errorf("%s is lost: told %+v", lost, gone)
			}
		})
	}
}
