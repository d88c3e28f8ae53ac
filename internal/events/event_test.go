package events

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockkeeper/internal/test/assert"
)

// apiNames are the names that clients have written into their programs.
var apiNames = map[Type]string{
	Resync: "resync", LeaseQueued: "lease.queued", LeaseGranted: "lease.granted", LeaseReleased: "lease.released",
	LeaseExpired: "lease.expired", LeaseCancelled: "lease.cancelled", LeaseUnclaimed: "lease.unclaimed", LeaseRemoved: "lease.removed",
	LeaseUpdated: "lease.updated", LeaseRevokeRequested: "lease.revoke_requested", LeaseRevokeWithdrawn: "lease.revoke_withdrawn", LeaseEnding: "lease.ending", LeaseRevoked: "lease.revoked", LockDestroyed: "lock.destroyed", LockHazard: "lock.hazard", LockHazardCleared: "lock.hazard_cleared", DeadlockDetected: "deadlock.detected", DeadlockCleared: "deadlock.cleared",
	WebhookDropped: "webhook.dropped", AuthLoaded: "auth.loaded", AuthRefused: "auth.refused",
	GatewayJoined: "gateway.joined", GatewayLeft: "gateway.left", ZooKeeperConnected: "zookeeper.connected",
	ZooKeeperSuspended: "zookeeper.suspended", ZooKeeperExpired: "zookeeper.expired",
	NodeCreated: "node.created", NodeChanged: "node.changed", NodeDeleted: "node.deleted",
}

func TestEveryTypeHasItsNameInTheAPI(t *testing.T) {
	assert.That(t, len(apiNames) == int(typeCount), "%d names for %d types", len(apiNames), typeCount)
	for typ := range typeCount {
		name := apiNames[typ]
		assert.That(t, typ.String() == name, "type %d is %q, not %q", typ, typ, name)
		set, err := ParseTypes(name)
		assert.That(t, err == nil && set == Types(typ), "ParseTypes(%q) = %b, %v", name, set, err)
		if node := strings.HasPrefix(name, "node."); typ.IsNode() != node || DefaultTypes.Has(typ) == node {
			t.Errorf("%s: a node event: %v, told to those who ask for nothing: %v", name, typ.IsNode(), DefaultTypes.Has(typ))
		}
		assert.That(t, AllTypes.Has(typ), "%s is not in AllTypes", name)
	}
	assert.Equal(t, Type(200).String(), "type(200)", "a type that does not exist")
	assert.That(t, !AllTypes.Has(200), "a type that does not exist is in AllTypes")
}

func TestAListOfTypesMeansWhatItSays(t *testing.T) {
	lease := Types(LeaseQueued, LeaseGranted, LeaseReleased, LeaseExpired, LeaseCancelled, LeaseUnclaimed, LeaseRemoved, LeaseUpdated, LeaseRevokeRequested, LeaseRevokeWithdrawn, LeaseEnding, LeaseRevoked)
	node := Types(NodeCreated, NodeChanged, NodeDeleted)
	for _, c := range []struct {
		list string
		want TypeSet
	}{
		{"lease.granted", Types(LeaseGranted)},
		{"lease.granted,node.created", Types(LeaseGranted, NodeCreated)},
		{"lease.granted,lease.granted", Types(LeaseGranted)},
		{"lease.*", lease},
		{"node.*", node},
		{"auth.*", Types(AuthLoaded, AuthRefused)},
		{"gateway.*", Types(GatewayJoined, GatewayLeft)},
		{"zookeeper.*", Types(ZooKeeperConnected, ZooKeeperSuspended, ZooKeeperExpired)},
		{"lease.*,lease.granted,node.*", lease | node},
		{"*", AllTypes},
		{"*,node.created", AllTypes},
	} {
		got, err := ParseTypes(c.list)
		assert.That(t, err == nil && got == c.want, "ParseTypes(%q) = %b, %v; want %b", c.list, got, err, c.want)
	}
}

func TestATypingErrorInAListOfTypesIsNamed(t *testing.T) {
	for list, culprit := range map[string]string{
		"":                         `""`,
		",":                        `""`,
		"lease.granted,":           `""`,
		",lease.granted":           `""`,
		"lease.granted,,node.*":    `""`,
		"lease.grantd":             `"lease.grantd"`,
		"node.*,lease.grantd":      `"lease.grantd"`,
		"lease":                    `"lease"`,
		"lease.":                   `"lease."`,
		"lease*":                   `"lease*"`,
		"lease.g*":                 `"lease.g*"`,
		"l*":                       `"l*"`,
		".*":                       `".*"`,
		"**":                       `"**"`,
		"*.granted":                `"*.granted"`,
		"leases.*":                 `"leases.*"`,
		"lease.granted, node.*":    `" node.*"`,
		"Lease.Granted":            `"Lease.Granted"`,
		"lease.granted\x1b[2J":     `\x1b`,
		"lease.granted\nlease.all": `\n`,
	} {
		set, err := ParseTypes(list)
		if err == nil || set != 0 {
			t.Errorf("ParseTypes(%q) = %b, %v", list, set, err)
			continue
		}
		assert.That(t, strings.Contains(err.Error(), culprit) && strings.Contains(err.Error(), "lease.unclaimed"),
			"ParseTypes(%q) names neither %s nor the types: %v", list, culprit, err)
		assert.That(t, !strings.ContainsAny(err.Error(), "\x1b\n"), "ParseTypes(%q) hands on control characters: %q", list, err)
	}
}

func TestAPathIsPutTogetherFromItsParts(t *testing.T) {
	for want, e := range map[string]*Event{"": {}, "/l/deploy": {Dir: "/l/deploy"}, "/l/deploy/lk-1": {Dir: "/l/deploy", Name: "lk-1"}} {
		assert.Equal(t, e.Path(), want)
	}
}

func TestAnEventHasNoIDBeforeItIsPublished(t *testing.T) {
	e := &Event{}
	assert.That(t, e.ID() == "", "the ID is %q", e.ID())
	h := New(Options{})
	h.Publish(e)
	assert.That(t, e.ID() == h.id(1), "the ID is %q", e.ID())
}

func TestPublishingAnEventTwicePanics(t *testing.T) {
	h, e := New(Options{}), &Event{}
	h.Publish(e)
	defer func() {
		assert.That(t, recover() != nil, "no panic")
		h.Publish(&Event{}) // the hub is not left locked
		assert.Equal(t, len(h.Recent(Filter{Rules: seesAll, Types: AllTypes}, 9)), 2, "events")
	}()
	h.Publish(e)
}

func TestAnEventIsEncodedOnceForAll(t *testing.T) {
	h := New(Options{})
	h.Publish(&Event{Type: LeaseGranted, Lock: "deploy"})
	var encoded atomic.Int64
	encode := func(e *Event) []byte { encoded.Add(1); return []byte(e.ID() + " " + e.Lock) }
	e := h.Recent(Filter{Rules: seesAll}, 1)[0]
	want := string(e.Encoded(encode))
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() { assert.Equal(t, string(h.Recent(Filter{Rules: seesAll}, 1)[0].Encoded(encode)), want) })
	}
	readers.Wait()
	assert.That(t, encoded.Load() == 1, "encoded %d times", encoded.Load())
}

// Several may find it not encoded at the same time; all of them get it whole.
func TestAnEventMayBeEncodedByManyAtOnce(t *testing.T) {
	h := New(Options{})
	for range 200 {
		h.Publish(&Event{Type: LeaseGranted, Lock: "deploy"})
		e := h.Recent(Filter{Rules: seesAll}, 1)[0]
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				assert.Equal(t, string(e.Encoded(func(e *Event) []byte { return []byte(e.ID()) })), e.ID(), "%q is encoded as", e.ID())
			})
		}
		readers.Wait()
	}
}
