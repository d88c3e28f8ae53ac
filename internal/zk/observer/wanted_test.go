package observer

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

func TestTheServerIsAskedAtOnceWhenACommitWouldMakeTheReplicaCurrent(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.pass(100 * time.Millisecond) // between two pings
		began := time.Now()
		s.zk.mu.Lock()
		s.zk.zxid++
		zxid := s.zk.zxid
		s.zk.mu.Unlock()
		s.o.Freshness().Committed(s.cfg.Clock.Now(), zxid)
		synctest.Wait()
		assert.That(t, s.o.Freshness().Current(s.cfg.Clock.Now()) && time.Since(began) == 0,
			"not current, %v after the commit", time.Since(began))
		// Once it is current, the next tick is soon enough: a busy writer is no reason for more pings.
		s.zk.mu.Lock()
		pings := s.zk.conns[0].pings
		s.zk.mu.Unlock()
		for i := range int64(100) {
			s.o.Freshness().Committed(s.cfg.Clock.Now(), zxid+i+1)
			synctest.Wait()
		}
		s.zk.mu.Lock()
		defer s.zk.mu.Unlock()
		assert.Equal(t, s.zk.conns[0].pings-pings, 0, "pings for commits while current")
	})
}
