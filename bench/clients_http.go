package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// httpClients are clients of one server that share one http.Client, as the goroutines of one program would. What is tuned: as
// many idle connections are kept as there are clients (net/http keeps two to a host, and would open a connection for nearly
// every request of 64 clients), and compression, which the gateway does not do, is not asked for.
type httpClients struct {
	base      string
	client    *http.Client
	transport *http.Transport
	// authorization is who they are; "" where they are not asked.
	authorization string
}

func newHTTPClients(base string) *httpClients {
	transport := &http.Transport{MaxIdleConnsPerHost: mostWaiters, DisableCompression: true}
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
	key        string // idempotency key of an acquire, "" for none
	token      string
	lease      string // its id
}

// Lock implements locker: one blocking acquire.
func (l *httpLocker) Lock(ctx context.Context) error {
	var lease struct {
		ID    string `json:"lease_id"`
		Token string `json:"token"`
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.acquireURL, nil)
	if err != nil {
		return err
	}
	if l.key != "" {
		req.Header.Set("Idempotency-Key", l.key)
	}
	if err := l.clients.send(req, http.StatusCreated, &lease); err != nil {
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
	return h.send(req, status, into)
}

// post sends a JSON body.
func (h *httpClients) post(ctx context.Context, path, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return h.send(req, http.StatusOK, into)
}

func (h *httpClients) send(req *http.Request, status int, into any) error {
	if h.authorization != "" {
		req.Header.Set("Authorization", h.authorization)
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
		return &refusal{resp.StatusCode, body}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

// refusal is an answer that is not the one expected.
type refusal struct {
	status int
	body   []byte
}

func (r *refusal) Error() string { return fmt.Sprintf("answered %d: %s", r.status, r.body) }
