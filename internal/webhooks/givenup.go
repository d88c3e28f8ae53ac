package webhooks

import "time"

// What a notify_url has not taken is logged when it is given up, as there is nowhere else to look. A host that is
// dead may have very many of them at once, and leases that end wait meanwhile: few are logged in a minute, the others counted.

const loggedAMinute = 20

// givenUp is guarded by Service.mu.
type givenUp struct {
	since  time.Time // when the minute began
	logged int       // in it
	more   int       // that were not, and have not been told of
}

// GivenUp implements Keeper.
func (k *outboxKeeper) GivenUp(e *Event, host, why string) {
	s := (*Service)(k)
	s.mu.Lock()
	g := &s.givenUp
	if now := time.Now(); now.Sub(g.since) >= time.Minute {
		g.since, g.logged = now, 0
	}
	one := g.logged < loggedAMinute
	if one {
		g.logged++
	} else {
		g.more++
	}
	s.mu.Unlock()
	if one {
		s.log.Warn("webhooks: a notify_url was tried for the last time and did not take the message", "lease_id", e.LeaseID, "type", e.Type, "host", host, "err", why)
	}
}

// tellGivenUp logs how many there were besides.
func (s *Service) tellGivenUp() {
	s.mu.Lock()
	more := s.givenUp.more
	s.givenUp.more = 0
	s.mu.Unlock()
	if more > 0 {
		s.log.Warn("webhooks: more notify_urls were tried for the last time and did not take their message", "messages", more)
	}
}
