package sim

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// askToRelease revokes a lock's leases; force is when they end if their holders do not release, 0 for never.
func (s *scene) askToRelease(c *client, lock string, force time.Duration) {
	s.Helper()
	done, _ := s.exemptions.intervene(intervention{lock: lock, force: force}, force > 0)
	query := url.Values{"reason": {"now"}}
	if force > 0 {
		query.Set("force_after", force.String())
	}
	a, err := c.do(5*time.Second, http.MethodPost, "/v1/locks/"+lock+"/revoke", query, nil)
	assert.Must(s, err == nil && a.status == http.StatusOK, "a revocation: %d %s, %v", a.status, a.raw, err)
	done()
}

// Force is due at the owner after the withdrawal was written, and before the owner's replica shows it.
func TestAttack52ForceDoesNotOvertakeAWithdrawal(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		owner, other := s.start(0), s.start(1)
		holder, admin := s.client(owner), s.client(other)
		l := s.take(holder, "a", "held", "ttl", "60s")
		const force = 3 * time.Second
		asked := time.Now()
		s.askToRelease(admin, "a", force)
		s.within(time.Second, "the owner knows of the revocation", func() bool { return s.beat(holder, l).Revoke != nil })
		known := time.Now()
		time.Sleep(time.Until(asked.Add(force - 200*time.Millisecond)))
		stalled := s.observer(owner)
		stalled.StallReplies()
		admin.withdraw("a")
		assert.Must(s, time.Since(asked) < force, "the withdrawal was written when force was due already")
		time.Sleep(time.Until(known.Add(force + 200*time.Millisecond)))
		assert.Must(s, s.observer(owner) == stalled, "the owner's observer has connected anew")
		stalled.Resume()
		s.stillHeld(holder, l, time.Second)
		holder.release(l)
	})
}

// The owner learns of the withdrawal and of the next revocation at once.
func TestAttack53ARevocationAfterAWithdrawalHasNothingOfTheOldForce(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		owner, other := s.start(0), s.start(1)
		holder, admin := s.client(owner), s.client(other)
		l := s.take(holder, "a", "held", "ttl", "60s")
		const force = 5 * time.Second
		s.askToRelease(admin, "a", force)
		s.within(time.Second, "the owner knows of the revocation", func() bool { return s.beat(holder, l).Revoke != nil })
		stalled := s.observer(owner)
		stalled.StallReplies()
		admin.withdraw("a")
		s.askToRelease(admin, "a", 0)
		assert.Must(s, s.beat(holder, l).Revoke != nil, "the owner has heard of the withdrawal alone")
		stalled.Resume()
		s.stillHeld(holder, l, force+time.Second)
		assert.That(s, s.beat(holder, l).Revoke != nil, "its holder is not asked to release any more")
		holder.release(l)
	})
}

// stillHeld checks that a lease that was revoked is there after that time.
func (s *scene) stillHeld(c *client, l *lease, after time.Duration) {
	s.Helper()
	time.Sleep(after)
	a := s.beat(c, l)
	assert.That(s, s.there(l) && a.status == http.StatusOK, "force that was withdrawn has ended the lease: %d %s", a.status, a.raw)
}
