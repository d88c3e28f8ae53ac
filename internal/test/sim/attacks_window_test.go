package sim

import (
	"net/http"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zktest"
)

// The old owner answers heartbeats until its promise window closes, and its session ends before.
func TestAttack54ASuccessorKeepsWhatTheOldOwnerPromised(t *testing.T) {
	play(t, windowOutlivesSession, 2, 2, func(s *scene) {
		old := s.startBehind(0, zktest.FollowerName(1))
		next := s.startBehind(1, zktest.LeaderName)
		c := s.client(old)
		l := s.take(c, "a", "held", "ttl", "5s")
		s.zk.Follower(1).CutOff()
		cut := time.Now()
		var last time.Time // of the newest heartbeat that was answered with success
		var taken time.Time
		for time.Since(cut) < s.window {
			sent := time.Now()
			if a := s.beat(c, l); a.status == http.StatusOK {
				last = sent
			}
			if taken.IsZero() && s.takenOver() {
				taken = time.Now()
			}
			time.Sleep(50 * time.Millisecond)
		}
		assert.Must(s, !taken.IsZero(), "it was not taken over within the promise window")
		if !last.After(taken) {
			s.Fatalf("the old owner answered nothing after the takeover: its last success was %v before", taken.Sub(last))
		}
		c.at = next
		s.zk.Follower(1).Heal()
		time.Sleep(time.Until(last.Add(5*time.Second - 100*time.Millisecond)))
		assert.That(s, s.there(l), "the successor has ended the lease %v after the last heartbeat; its TTL is 5 s", time.Since(last))
		s.beatUntil(c, l, time.Second)
		c.release(l)
	})
}
