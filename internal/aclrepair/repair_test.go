package aclrepair

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/offlinetest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/standalone"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// contender is the name of a contender of the fleet.
func contender(t *testing.T, fleet string, number int) string {
	t.Helper()
	gateway := assert.Value(recipe.NewGatewayID(rand.Reader))(t)
	id := assert.Value(recipe.NewLeaseID(recipe.FleetID(fleet), gateway, rand.Reader))(t)
	return fmt.Sprintf("write-v1.%s-lock-%010d", id, number)
}

func TestEverythingBelowTheLayoutIsClosedOnceForGood(t *testing.T) {
	cfg := zk.Config{Servers: []string{embeddedtest.RunT(t).Addr()}, CreateRoot: true, Namespaces: map[string]zk.Namespace{"shared": {Root: "/shared"}}}
	made := assert.Value(layout.Open(offlinetest.Context(t), cfg))(t)
	stranger, events, err := gozk.Connect(cfg.Servers, 10*time.Second, gozk.WithLogInfo(false))
	assert.NoError(t, err)
	defer stranger.Close()
	go func() {
		for range events {
		}
	}()
	root := zk.DefaultRoot
	leaseA, leaseB := contender(t, made.FleetID, 0), contender(t, made.FleetID, 0)
	closed := []string{"/keys/k", "/webhooks/w", "/outbox/o", "/settings/deploy", "/settings/deploy/limit-2", "/succession/s", "/locks/deploy", "/locks/deploy/" + leaseA}
	left := []string{"/locks/deploy/foreign-0000000001"}
	for i := range closed {
		closed[i] = root + closed[i]
	}
	left[0] = root + left[0]
	left = append(left, "/shared/job", "/shared/job/foreign-0000000001")
	closed = append(closed, "/shared/job/"+leaseB)
	all := slices.Concat(closed, left)
	slices.Sort(all)
	for _, path := range all {
		assert.Value(stranger.Create(path, nil, 0, gozk.WorldACL(gozk.PermAll)))(t, "creating %s", path)
	}
	// One is taken away for good before the fleet has an identity.
	lost := root + "/locks/lost"
	assert.Value(stranger.Create(lost, nil, 0, gozk.DigestACL(gozk.PermAll, "evil", "x")))(t)

	report, err := Run(offlinetest.Context(t), cfg, made, nil)
	assert.That(t, err == nil && report == (Report{}), "without an identity: %+v, %v", report, err)
	cfg.Auth = &zk.DigestAuth{User: "fleet", Password: "right"}
	layout := assert.Value(layout.Open(offlinetest.Context(t), cfg))(t)
	report, err = Run(offlinetest.Context(t), cfg, layout, nil)
	// The records of the namespaces are the layout's, and were closed with it.
	want := (Report{Checked: len(closed) + 2 + 1, Closed: len(closed), Refused: 1})
	assert.That(t, err == nil && report == want, "%+v, %v; want %+v", report, err, want)
	take := gozk.DigestACL(gozk.PermAll, "evil", "x")
	for _, path := range closed {
		_, err := stranger.SetACL(path, take, -1)
		assert.That(t, errors.Is(err, gozk.ErrNoAuth), "setACL on %s by a stranger: %v, want NoAuth", path, err)
	}
	for _, path := range []string{root + "/keys/k", root + "/webhooks/w", root + "/outbox/o"} {
		_, _, err := stranger.Get(path)
		assert.That(t, errors.Is(err, gozk.ErrNoAuth), "a stranger reads %s: %v", path, err)
	}
	for _, path := range left {
		_, err := stranger.SetACL(path, take, -1)
		assert.Nil(t, err, "the ACL of %s, which is not the fleet's, was changed", path)
	}
	report, err = Run(offlinetest.Context(t), cfg, layout, nil)
	assert.That(t, err == nil && report.Closed == 0, "the second time: %+v, %v", report, err)
}

// A gateway's own store tells its ACLs. While gateways alone have given them, no lock is asked for, however many there are.
func TestTheLocksOfAStoreWithTheFleetsACLsAloneAreNotAskedFor(t *testing.T) {
	dir := t.TempDir()
	// run is a start of a gateway, which does something in the end. It returns what the start had to repair.
	run := func(then func(*layout.Offline, *gozk.Conn)) Report {
		node := assert.Value(standalone.Open(standalone.Config{Dir: dir, Listen: "127.0.0.1:0"}))(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- node.Run(ctx) }()
		cfg := zk.Config{Servers: []string{node.Addr().String()}, CreateRoot: true, Auth: &zk.DigestAuth{User: "fleet", Password: "right"}}
		made := assert.Value(layout.Open(offlinetest.Context(t), cfg))(t)
		report := assert.Value(Run(offlinetest.Context(t), cfg, made, node.ACLs()))(t)
		fleet := assert.Value(layout.OpenOffline(offlinetest.Context(t), cfg))(t)
		other, _, err := gozk.Connect(cfg.Servers, 10*time.Second, gozk.WithLogInfo(false), gozk.WithEventCallback(func(gozk.Event) {}))
		assert.NoError(t, err)
		then(fleet, other)
		other.Close()
		fleet.Close()
		stop()
		assert.Nil(t, testkit.Receive(t, 10*time.Second, ended, "the store is closed"), "the end of the store")
		return report
	}
	lock := zk.DefaultRoot + "/locks/deploy"
	nothing := func(*layout.Offline, *gozk.Conn) {}
	first := run(func(fleet *layout.Offline, _ *gozk.Conn) {
		_, err := fleet.Commit(offlinetest.Context(t), []zk.Op{{Kind: zk.OpCreate, Path: lock}, {Kind: zk.OpCreate, Path: lock + "/note"}})
		assert.NoError(t, err)
	})
	assert.Equal(t, run(func(_ *layout.Offline, other *gozk.Conn) {
		assert.Value(other.Create(zk.DefaultRoot+"/locks/open", nil, 0, gozk.WorldACL(gozk.PermAll)))(t)
	}), first, "the start on a store with a lock of the fleet")
	assert.Equal(t, run(nothing), Report{Checked: first.Checked + 2, Closed: 1}, "the start on a store with a lock that another program made")
	assert.Equal(t, run(nothing), first, "the start after that")
}
