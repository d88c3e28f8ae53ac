package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
)

// etcdBinary is where Debian's etcd-server has its program.
const etcdBinary = "/usr/bin/etcd"

// etcd is its lock service over the JSON gateway. Each client has one lease of its own, as the session of etcd's library has, so
// that a cycle is two requests: lock and unlock.
type etcd struct {
	*gateway
	leases []string // by client
}

// etcdLease is long: nothing renews it.
const etcdLease = 7200

// startEtcd runs Debian's etcd with its defaults: one member, each write synced.
func (r *rig) startEtcd(ctx context.Context) (*etcd, error) {
	clients, err := freeAddr()
	if err != nil {
		return nil, err
	}
	peers, err := freeAddr()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(etcdBinary, "--name", "bench", "--data-dir", filepath.Join(r.dir, "etcd"), "--log-level", "error", "--logger", "zap",
		"--listen-client-urls", "http://"+clients, "--advertise-client-urls", "http://"+clients, "--listen-peer-urls", "http://"+peers,
		"--initial-advertise-peer-urls", "http://"+peers, "--initial-cluster", "bench=http://"+peers)
	p, err := startProgram("etcd", cmd)
	if err != nil {
		return nil, fmt.Errorf("%w\nhint: scripts/setup bench installs it", err)
	}
	e := &etcd{gateway: &gateway{p, newHTTPClients("http://" + clients)}}
	r.atEnd(e.end)
	if err := e.await(ctx, func() error { return e.http.do(ctx, http.MethodGet, e.http.base+"/health", "", http.StatusOK, nil) }); err != nil {
		return nil, err
	}
	for range maxClients {
		var lease struct {
			ID string `json:"ID"`
		}
		if err := e.http.post(ctx, "/v3/lease/grant", fmt.Sprintf(`{"TTL":%d}`, etcdLease), &lease); err != nil {
			return nil, fmt.Errorf("etcd lease: %w", err)
		}
		e.leases = append(e.leases, lease.ID)
	}
	return e, nil
}

// locker is client i.
func (e *etcd) locker(i int, lock string) locker {
	return &etcdLocker{clients: e.http, name: base64.StdEncoding.EncodeToString([]byte(lock)), lease: e.leases[i]}
}

type etcdLocker struct {
	clients *httpClients
	name    string // base64
	lease   string
	key     string // of the lock that is held, base64
}

// Lock implements locker.
func (l *etcdLocker) Lock(ctx context.Context) error {
	var held struct {
		Key string `json:"key"`
	}
	if err := l.clients.post(ctx, "/v3/lock/lock", fmt.Sprintf(`{"name":%q,"lease":%q}`, l.name, l.lease), &held); err != nil {
		return fmt.Errorf("etcd lock: %w", err)
	}
	l.key = held.Key
	return nil
}

// Unlock implements locker.
func (l *etcdLocker) Unlock(ctx context.Context) error {
	if err := l.clients.post(ctx, "/v3/lock/unlock", fmt.Sprintf(`{"key":%q}`, l.key), nil); err != nil {
		return fmt.Errorf("etcd unlock: %w", err)
	}
	return nil
}
