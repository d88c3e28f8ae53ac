package events

import (
	"reflect"
	"testing"

	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

// seesAll is what tests that are not about rules subscribe with.
var seesAll = access.Everything()

func limited(rules *access.Rules) Filter { return Filter{Rules: rules, Types: AllTypes} }

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
		{&Event{Type: WebhookDropped, Dropped: &Dropped{Webhook: "wh_1"}}, false, true, false, false},
		{&Event{Type: AuthRefused, Gateway: "gw-1", Detail: "auth.yaml:2:1"}, false, false, true, false},
		{&Event{Type: AuthLoaded, Gateway: "gw-1"}, false, false, true, false},
		{&Event{Type: GatewayLeft}, true, true, true, false},
		{&Event{Type: ZooKeeperSuspended}, true, true, true, false},
		{&Event{Type: Resync}, true, true, true, true},
	} {
		for who, is := range map[*Filter]bool{&shop: c.shop, &all: c.all, &admin: c.admin, &none: c.none} {
			assert.Equal(t, who.Match(c.e), is, "%s of %q for %q", c.e.Type, c.e.Lock, who.Rules.Key())
		}
	}
	again := limited(grant("shop:*", access.Acquire))
	assert.That(t, shop.key() == again.key() && shop.key() != all.key() && none.key() != all.key(), "equal rules are one group, and no rules are not all")
}

// What says nothing of rules must not see all: a filter is made in many places.
func TestAFilterWithoutRulesSeesNothing(t *testing.T) {
	for of := range typeCount {
		e := &Event{Type: of, NS: "default", Lock: "deploy", Owner: "ci", Gateway: "gw-1"}
		for _, e := range []*Event{e, {Type: of}} {
			for _, f := range []Filter{{}, {Types: AllTypes}, {Types: Types(of)}, {Types: AllTypes, NS: "default", Lock: "deploy", Owner: "ci"}, {Types: AllTypes, Rules: &access.Rules{}}} {
				assert.Equal(t, f.Match(e), of == Resync, "%+v lets %s through", f, of)
			}
		}
	}
	h := New(Options{})
	h.Publish(&Event{Type: LeaseGranted, NS: "default", Lock: "deploy"})
	assert.Equal(t, len(h.Recent(Filter{}, 9)), 0)
	assert.Equal(t, len(h.Recent(Filter{Rules: seesAll}, 9)), 1)
}

// Each field of a filter decides, so each is in the key: else subscribers with different filters were one group.
func TestFiltersThatDifferAreDifferentGroups(t *testing.T) {
	shop := assert.Value(access.New(access.Grant{NS: "*", Locks: "shop:*", Verbs: []access.Verb{access.Read}}))(t)
	whole := Filter{Types: AllTypes, NS: "default", Lock: "deploy", Owner: "ci", Purpose: "load test", Rules: shop}
	for i := range reflect.TypeFor[Filter]().NumField() {
		other := whole
		field := reflect.ValueOf(&other).Elem().Field(i)
		field.SetZero()
		assert.That(t, other.key() != whole.key(), "%s is not in the key", reflect.TypeFor[Filter]().Field(i).Name)
	}
}
