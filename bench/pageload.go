package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// What happens to the locks that the page part shows.

// holdClients take, release and take again the locks of an overview; their locks are shared out among them.
const holdClients = 16

// manyHeld are locks that are held, with the tokens of their leases.
type manyHeld struct {
	clients *httpClients
	tokens  []string
	changes atomic.Int64
}

func (m *manyHeld) events() int64 { return eventsOfStep * m.changes.Load() }

func (m *manyHeld) acquire(ctx context.Context, i int) error {
	lock := fmt.Sprintf("team-%03d:service:job-%05d", i%100, i)
	return acquireInto(ctx, m.clients, lock, "", http.StatusCreated, &m.tokens[i])
}

// acquireInto takes a lock, or queues for it, as a client of CI does.
func acquireInto(ctx context.Context, clients *httpClients, lock, more string, status int, token *string) error {
	var lease struct {
		Token string `json:"token"`
	}
	n := rand.IntN(1_000_000)
	query := url.Values{"ttl": {"24h"}, "owner": {fmt.Sprintf("worker-%d@host-%d", n, n%17)},
		"metadata": {fmt.Sprintf(`{"job":%d,"branch":"main","url":"https://ci.example/build/%d"}`, n, n)}}
	at := fmt.Sprintf("%s/v1/locks/%s/leases?%s%s", clients.base, lock, query.Encode(), more)
	if err := clients.do(ctx, http.MethodPost, at, "", status, &lease); err != nil {
		return fmt.Errorf("acquire %s: %w", lock, err)
	}
	*token = lease.Token
	return nil
}

func release(ctx context.Context, clients *httpClients, token string) error {
	if err := clients.do(ctx, http.MethodDelete, clients.base+"/v1/leases/self", token, http.StatusNoContent, nil); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// holdMany takes n locks.
func holdMany(ctx context.Context, clients *httpClients, n int) (*manyHeld, error) {
	m := &manyHeld{clients: clients, tokens: make([]string, n)}
	_, err := together(ctx, holdClients, func(ctx context.Context, i int, _ *client) error {
		for ; i < n; i += holdClients {
			if err := m.acquire(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
	return m, err
}

// change has so many events happen each second among the locks, until ctx ends: a lock goes from one owner to another. What has begun is
// done all the same, so that each lock is held.
func (m *manyHeld) change(ctx context.Context, perSecond int) error {
	begun := time.Now()
	between := time.Second * holdClients * eventsOfStep / time.Duration(perSecond)
	_, err := together(ctx, holdClients, func(ctx context.Context, i int, _ *client) error {
		for due := time.Duration(i) * between / holdClients; ; due += between {
			if err := wait(ctx, due-time.Since(begun)); err != nil {
				return err
			}
			lock, asking := rand.IntN(len(m.tokens)/holdClients)*holdClients+i, context.WithoutCancel(ctx)
			if err := release(asking, m.clients, m.tokens[lock]); err != nil {
				return err
			}
			if err := m.acquire(asking, lock); err != nil {
				return err
			}
			m.changes.Add(1)
		}
	})
	return err
}

// queued is a lock with a holder and those who wait for it.
type queued struct {
	clients *httpClients
	lock    string
	tokens  []string // in the order of the queue
	hands   atomic.Int64
}

func (q *queued) events() int64 { return eventsOfHand * q.hands.Load() }

func (q *queued) join(ctx context.Context) error {
	var token string
	status := http.StatusAccepted
	if len(q.tokens) == 0 {
		status = http.StatusCreated
	}
	if err := acquireInto(ctx, q.clients, q.lock, "&async=true", status, &token); err != nil {
		return err
	}
	q.tokens = append(q.tokens, token)
	return nil
}

// queueUp takes the lock, and has n wait for it.
func queueUp(ctx context.Context, clients *httpClients, lock string, n int) (*queued, error) {
	q := &queued{clients: clients, lock: lock}
	for range n + 1 {
		if err := q.join(ctx); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// move has so many events happen each second in the lock, until ctx ends: the holder releases it, and another queues.
func (q *queued) move(ctx context.Context, perSecond int) error {
	begun := time.Now()
	between := time.Second * eventsOfHand / time.Duration(perSecond)
	for due := between; ; due += between {
		if err := wait(ctx, due-time.Since(begun)); err != nil {
			return err
		}
		if err := release(ctx, q.clients, q.tokens[0]); err != nil {
			return err
		}
		q.tokens = q.tokens[1:]
		if err := q.join(ctx); err != nil {
			return err
		}
		q.hands.Add(1)
	}
}
