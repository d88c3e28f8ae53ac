package events

import (
	"testing"

	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

func limited(rules *access.Rules) Filter {
	f := Filter{Types: AllTypes}
	f.LimitTo(rules)
	return f
}

func TestAnEventIsForThoseWhoMayReadItsLock(t *testing.T) {
	grant := func(locks string, v access.Verb) *access.Rules {
		return assert.Value(access.New(access.Grant{NS: "*", Locks: locks, Verbs: []access.Verb{v}}))(t)
	}
	shop, all, admin := limited(grant("shop:*", access.Acquire)), limited(grant("*", access.Read)), limited(grant("*", access.Admin))
	none := limited(nil)
	for _, c := range []struct {
		e                      *Event
		shop, all, admin, none bool
	}{
		{&Event{Type: LeaseGranted, NS: "default", Lock: "shop:web"}, true, true, false, false},
		{&Event{Type: LeaseGranted, NS: "default", Lock: "other"}, false, true, false, false},
		{&Event{Type: LockHazard, NS: "default", Lock: "other"}, false, true, false, false},
		{&Event{Type: NodeCreated, NS: "default", Lock: "other"}, false, true, false, false},
		{&Event{Type: NodeCreated, Dir: "/elsewhere"}, false, true, false, false},
		{&Event{Type: WebhookDropped, Webhook: "wh_1"}, false, true, false, false},
		{&Event{Type: GatewayLeft}, true, true, true, false},
		{&Event{Type: ZooKeeperSuspended}, true, true, true, false},
		{&Event{Type: Resync}, true, true, true, true},
	} {
		for who, is := range map[*Filter]bool{&shop: c.shop, &all: c.all, &admin: c.admin, &none: c.none} {
			assert.Equal(t, who.Match(c.e), is, "%s of %q for %q", c.e.Type, c.e.Lock, who.rulesKey)
		}
	}
	again := limited(grant("shop:*", access.Acquire))
	assert.That(t, shop.key() == again.key() && shop.key() != all.key() && none.key() != Filter{Types: AllTypes}.key(), "equal rules are one group, and no rules are not all")
}
