package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
)

// ZooKeeper's own command line makes and deletes a contender: both are told,
// as what happened to the queue and as what happened to the nodes.
func TestWhatZkCliDoesIsTold(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	hub := events.New(events.Options{})
	cfg := zk.Config{Servers: strings.Split(addr, ","), Chroot: chroot, Root: "/lockkeeper", SessionTimeout: 4 * time.Second, CreateRoot: true}
	m := runOnZooKeeper(t, Options{Store: &term.ZooKeeper{Config: cfg}, Root: cfg.Root, SessionTimeout: cfg.SessionTimeout, Events: hub})
	res := assert.Value(m.Acquire(t.Context(), locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "me"}))(t)
	const foreign = "/lockkeeper/locks/deploy/x-72057594037927936-0000000001"
	if out, err := zkreal.CLI(addr, "create -s "+chroot+"/lockkeeper/locks/deploy/x-72057594037927936-",
		"delete "+chroot+res.Lease.Znode, "delete "+chroot+foreign); err != nil {
		t.Fatalf("zkCli: %v\n%s", err, out)
	}
	want := []string{
		"node.created /lockkeeper/locks/deploy", "node.created ours", "lease.queued ours", "lease.granted ours",
		"node.created foreign", "lease.queued foreign zookeeper-writelock",
		"node.deleted ours", "lease.removed ours removed", "lease.granted foreign zookeeper-writelock",
		"node.deleted foreign", "lease.removed foreign zookeeper-writelock removed",
	}
	names := strings.NewReplacer(res.Lease.Znode, "ours", foreign, "foreign")
	told := func() (words []string) {
		for _, e := range hub.Recent(events.Filter{Types: events.AllTypes, Lock: "deploy"}, 100) {
			words = append(words, strings.Join(strings.Fields(e.Type.String()+" "+names.Replace(e.Path())+" "+e.Program+" "+e.Reason), " "))
		}
		return words
	}
	testkit.EventuallyNil(t, 10*time.Second, func() error {
		if got := told(); !slices.Equal(got, want) {
			return fmt.Errorf("told\n\t%s", strings.Join(got, "\n\t"))
		}
		return nil
	}, "everything is told, in order")
}
