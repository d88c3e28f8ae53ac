package client_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"lockkeeper/client"
	"lockkeeper/internal/events"
	"lockkeeper/internal/httpapi"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/zk"
)

// The examples ask a gateway of this process, which LOCKKEEPER_URL names as it does for a program.
func TestMain(m *testing.M) {
	stop, err := serve()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the gateway of the examples:", err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

func serve() (stop func(), err error) {
	store, err := embeddedtest.Start()
	if err != nil {
		return nil, err
	}
	hub := events.New(events.Options{})
	locks := manager.New(manager.Options{
		Store: &term.ZooKeeper{Config: zk.Config{Servers: []string{store.Addr()}, Root: "/lockkeeper", SessionTimeout: 10 * time.Second, CreateRoot: true}},
		Root:  "/lockkeeper", SessionTimeout: 10 * time.Second, Events: hub,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- locks.Run(ctx) }()
	go func() { ended <- hub.Run(ctx) }()
	server := httptest.NewServer(httpapi.New(httpapi.Options{Locks: locks, Events: hub, Version: "examples"}))
	_ = os.Setenv(client.EnvURL, server.URL)
	for began := time.Now(); locks.Ready() != nil || !locks.Trusted(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			cancel()
			return nil, fmt.Errorf("it is not ready after a minute: %w", locks.Ready())
		}
	}
	return func() {
		server.Close()
		cancel()
		<-ended
		<-ended
		store.Close()
	}, nil
}
