package webhooks

import (
	"context"
	"slices"

	"lockkeeper/internal/locks/access"
)

// A subscription belongs to the caller that made it, and gets only what that caller may read. The rules of now decide, not those
// of the day on which it was made: once when an end is noted, at the gateway that runs the lease, and once more right before a
// message is sent. What the maker may not read any more is not sent, and forgotten.
//
// A maker that is not let in any more (its API token was revoked) pauses its subscriptions: a paused one gets what a disabled one
// gets, and goes on when its maker is let in again. While a gateway cannot know (it has not read the tokens yet), ends are noted
// and nothing is sent.
//
// A subscription without a maker was made where no caller was authenticated. It belongs to the administrators, and gets everything.

// MaxOfMaker is how many subscriptions a maker may have. As many receivers that answer slowly take half of attemptsAtOnce.
const MaxOfMaker = 16

// Maker is the caller that made a subscription, with what decides later what the caller may read.
type Maker struct {
	Name       string   `json:"name"`                 // as the rules name callers
	Kind       string   `json:"kind"`                 // of its credential
	Credential string   `json:"credential,omitempty"` // its id, where that can be looked up again
	Roles      []string `json:"roles,omitempty"`      // that it had when it made the subscription, or changed it last
}

// Standing is what a maker may do now. The zero value gives nothing.
type Standing struct {
	Rules   *access.Rules
	Paused  string // why the maker is not let in; "": it is
	Unknown bool   // this gateway cannot know it yet
}

// unauthenticated pauses the subscriptions with a maker at a gateway that authenticates no callers: it has no rules to decide by.
const unauthenticated = "this gateway authenticates no callers, so it does not know what the webhook's maker may read: start it with --auth-file, or make the webhook anew"

// decided is the subscription with what its maker may do now.
func (r *registry) decided(sub *Subscription) *Subscription {
	if sub.Maker == nil {
		return sub
	}
	now := *sub
	now.Standing = Standing{Paused: unauthenticated}
	if r.standing != nil {
		m := sub.Maker
		rules, paused, known := r.standing(m.Name, m.Kind, m.Credential, m.Roles)
		if known && paused == "" && rules.Nothing() {
			paused = "the rules give " + m.Name + " nothing any more"
		}
		now.Standing = Standing{Rules: rules, Paused: paused, Unknown: !known}
	}
	return &now
}

// sameStanding reports whether both may get the same.
func sameStanding(a, b *Subscription) bool {
	return a.Standing.Paused == b.Standing.Paused && a.Standing.Unknown == b.Standing.Unknown && a.Standing.Rules.Key() == b.Standing.Rules.Key()
}

// redecide puts into force what the makers may do now.
func (r *registry) redecide(context.Context) error {
	r.applying.Lock()
	defer r.applying.Unlock()
	r.mu.Lock()
	before := r.inForce
	r.mu.Unlock()
	if before == nil || before.unchecked {
		return nil
	}
	next := *before
	next.subscriptions = slices.Clone(before.subscriptions)
	changed := false
	for i, sub := range next.subscriptions {
		next.subscriptions[i] = r.decided(sub)
		changed = changed || !sameStanding(sub, next.subscriptions[i])
	}
	if !changed {
		return nil
	}
	r.apply(&next)
	r.tellPaused(before, &next)
	r.mu.Lock()
	r.inForce = &next
	r.mu.Unlock()
	if r.changed != nil {
		r.changed()
	}
	return nil
}

// tellPaused logs which subscriptions are paused, and which go on. before may be nil.
func (r *registry) tellPaused(before, now *snapshot) {
	for _, sub := range now.subscriptions {
		was := ""
		if before != nil {
			if old := before.find(sub.ID); old != nil {
				was = old.Standing.Paused
			}
		}
		switch {
		case sub.Standing.Paused != "" && was == "":
			r.log.Warn("webhooks: a subscription is paused", "webhook", sub.ID, "maker", sub.Maker.Name, "why", sub.Standing.Paused)
		case sub.Standing.Paused == "" && was != "":
			r.log.Info("webhooks: a subscription goes on", "webhook", sub.ID)
		}
	}
}

// active reports whether messages are for the subscription, if it may get them.
func (s *Subscription) active() bool { return s.Enabled && s.Standing.Paused == "" }

// mayGet reports whether an event about the lock may be noted for the subscription.
func (s *Subscription) mayGet(ns, lock string) bool {
	return s.Maker == nil || s.Standing.Unknown || s.Standing.Rules.May(access.Read, ns, lock)
}

// whose names the owner of a subscription's share of the outbox: its maker, or the subscription itself.
func (s *snapshot) whose(id string) string {
	if s != nil {
		if sub := s.find(id); sub != nil && sub.Maker != nil {
			return sub.Maker.Name
		}
	}
	return id
}

// madeBy is how many subscriptions the maker of that name has.
func (s *snapshot) madeBy(name string) (n int) {
	for _, sub := range s.subscriptions {
		if sub.Maker != nil && sub.Maker.Name == name {
			n++
		}
	}
	return n
}
