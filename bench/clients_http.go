package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// httpClients are clients of the gateway that share one http.Client, as the goroutines of one program would. What is
// tuned: as many idle connections are kept as there are clients (net/http keeps two to a host, and would open a
// connection for nearly every request of 64 clients), and compression, which the gateway does not do, is not asked for.
type httpClients struct {
	base      string
	client    *http.Client
	transport *http.Transport
}

func newHTTPClients(base string) *httpClients {
	transport := &http.Transport{MaxIdleConns: 0, MaxIdleConnsPerHost: maxClients, DisableCompression: true}
	return &httpClients{base: base, client: &http.Client{Transport: transport}, transport: transport}
}

func (h *httpClients) close() { h.transport.CloseIdleConnections() }

// locker is a client of lock.
func (h *httpClients) locker(lock string) *httpLocker {
	return &httpLocker{clients: h, acquireURL: h.base + "/v1/locks/" + lock + "/leases?ttl=30s&wait=60s&owner=bench"}
}

type httpLocker struct {
	clients    *httpClients
	acquireURL string
	token      string
	lease      string // its id
}

// Lock implements locker: one blocking acquire.
func (l *httpLocker) Lock(ctx context.Context) error {
	var lease struct {
		ID    string `json:"lease_id"`
		Token string `json:"token"`
	}
	if err := l.clients.do(ctx, http.MethodPost, l.acquireURL, "", http.StatusCreated, &lease); err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	l.lease, l.token = lease.ID, lease.Token
	return nil
}

// Unlock implements locker.
func (l *httpLocker) Unlock(ctx context.Context) error {
	if err := l.clients.do(ctx, http.MethodDelete, l.clients.base+"/v1/leases/self", l.token, http.StatusNoContent, nil); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// heartbeat renews the lease that the locker holds.
func (l *httpLocker) heartbeat(ctx context.Context) error {
	var beat struct {
		ExpiresInMs int64 `json:"expires_in_ms"`
	}
	if err := l.clients.do(ctx, http.MethodPost, l.clients.base+"/v1/leases/self/heartbeat", l.token, http.StatusOK, &beat); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	return nil
}

// alive asks /healthz: the same HTTP server, with nothing behind it.
func (h *httpClients) alive(ctx context.Context) error {
	var status struct {
		Status string `json:"status"`
	}
	if err := h.do(ctx, http.MethodGet, h.base+"/healthz", "", http.StatusOK, &status); err != nil {
		return fmt.Errorf("healthz: %w", err)
	}
	return nil
}

// do sends one request and reads its answer whole, so that the connection can be used again. into is decoded from the
// answer unless it is nil.
func (h *httpClients) do(ctx context.Context, method, url, token string, status int, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Lease-Token", token)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	if resp.StatusCode != status {
		return fmt.Errorf("answered %s: %s", resp.Status, body)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}
