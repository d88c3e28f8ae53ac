package observer

import (
	"math"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// What stands in a directory's place is told by its listing, and that its data was set by an event.
func TestAListingTellsWhatIsMoreThanADirectory(t *testing.T) {
	b := newBook(t, locksRoot)
	for _, test := range []struct {
		stat wire.Stat
		told bool
	}{
		{wire.Stat{}, false},
		{wire.Stat{DataLength: 1}, true},
		{wire.Stat{EphemeralOwner: 0x100000000000001}, true},
		{wire.Stat{EphemeralOwner: math.MinInt64}, false},       // a container
		{wire.Stat{EphemeralOwner: -1 << 56}, false},            // lives for a time
		{wire.Stat{EphemeralOwner: 0x7eadbeef0000 << 16}, true}, // a session
	} {
		test.stat.Czxid = 7
		b.r.listedDir(b.root("/locks"), "a", nil, &test.stat, 9)
		c := b.r.changes[len(b.r.changes)-1]
		assert.That(t, c.Kind == zk.DirListed && (c.Stat != nil) == test.told && (c.Stat == nil || *c.Stat == test.stat),
			"%+v: told %+v", test.stat, c)
		b.told()
	}
}

func TestThatADirectorysDataWasSetIsTold(t *testing.T) {
	b := newBook(t, locksRoot, zk.WatchRoot{Path: "/gateways", Depth: 1})
	b.event(wire.EventCreated, "/locks/a")
	b.event(wire.EventDataChanged, "/locks/a")
	b.event(wire.EventDataChanged, "/locks/unknown") // its listing is to come
	b.event(wire.EventCreated, "/gateways")
	b.event(wire.EventDataChanged, "/gateways")
	b.expect("DirAdded /locks/a", "DirChanged /locks/a", "DirAdded /gateways")
	assert.That(t, b.r.ignored == 2, "%d events ignored", b.r.ignored)
}
