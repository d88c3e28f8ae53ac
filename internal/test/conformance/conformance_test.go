package conformance

import (
	"context"
	"flag"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"lockkeeper/client"
	"lockkeeper/internal/events"
	"lockkeeper/internal/httpapi"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "64"); err != nil { // scripts wait more than they work
		panic(err)
	}
	embeddedtest.StandIn()
	zkreal.Main(m)
}

func TestTheManagerDoesWhatTheScriptsSay(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	m, place := manage(t, addr, chroot)
	place.Service = m
	Run(t, place)
}

func TestTheServerDoesWhatTheScriptsSay(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	serve(t, addr, chroot)
}

func TestTheManagerDoesTheSameOnZooKeeper(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	m, place := manage(t, addr, chroot)
	place.Service = m
	Run(t, place)
}

func TestTheServerDoesTheSameOnZooKeeper(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	serve(t, addr, chroot)
}

// manage runs a manager until the test ends, and holds its state against its own rules when all scripts are through.
func manage(t *testing.T, addr, chroot string) (*manager.Manager, Place) {
	t.Helper()
	hub := events.New(events.Options{})
	m := manager.New(manager.Options{
		Store: &term.ZooKeeper{Config: zk.Config{Servers: []string{addr}, Chroot: chroot, Root: "/lockkeeper", SessionTimeout: 10 * time.Second, CreateRoot: true}},
		Root:  "/lockkeeper", SessionTimeout: 10 * time.Second, Events: hub,
	})
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 2)
	go func() { stopped <- m.Run(ctx) }()
	go func() { stopped <- hub.Run(ctx) }()
	t.Cleanup(func() {
		assert.Nil(t, m.CheckAll(), "after all scripts")
		cancel()
		for range 2 {
			assert.Nil(t, testkit.Receive(t, patience, stopped, "the manager and its hub stop"), "run")
		}
	})
	testkit.Eventually(t, patience, func() bool { return m.Ready() == nil && m.Trusted() }, "the manager is usable")
	return m, Place{Foreign: func(t testing.TB, lock, znode string) {
		t.Helper()
		assert.NoError(t, zkreal.Mkdir(addr, chroot+"/lockkeeper/locks/"+lock+"/"+znode))
	}}
}

// The Go client is for taking locks and giving them back. What it cannot express is logged, and asked through the generated client.
func TestTheGoClientDoesWhatTheScriptsSay(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	m, place := manage(t, addr, chroot)
	server := httptest.NewServer(httpapi.New(httpapi.Options{Locks: m, Version: "conformance"}))
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{URLs: []string{server.URL}})
	assert.NoError(t, err)
	var mu sync.Mutex
	left := map[string]int{}
	place.Service = GoClient{Remote: Remote{Client: apitest.New(t, server.URL).API()}, Go: c, Told: func(why string) {
		mu.Lock()
		defer mu.Unlock()
		left[why]++
	}}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for why, n := range left {
			t.Logf("%d acquires that the client's interface cannot express: %s", n, why)
		}
	})
	Run(t, place)
}

// serve puts the server before a manager, and the generated client before both.
func serve(t *testing.T, addr, chroot string) {
	t.Helper()
	m, place := manage(t, addr, chroot)
	server := httptest.NewServer(httpapi.New(httpapi.Options{Locks: m, Version: "conformance"}))
	t.Cleanup(server.Close)
	place.Service = Remote{Client: apitest.New(t, server.URL).API()}
	Run(t, place)
}
