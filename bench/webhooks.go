package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
)

// messagesAtOnce is how many messages a gateway sends to one subscription at a time.
const messagesAtOnce = 4

// webhooks measures what it costs a gateway to tell each release to a receiver. The same clients work with and without a subscription;
// what the HTTP client alone costs is measured by a program that only sends such messages.
func (b *bench) webhooks(ctx context.Context) error {
	if err := b.onOne(ctx); err != nil {
		return err
	}
	g, to := b.single.gateway, &receiver{}
	if err := to.listen(); err != nil {
		return err
	}
	defer to.close()
	bare, err := b.rig.startBare(ctx, g)
	if err != nil {
		return err
	}
	defer bare.end()
	without := g.side("no subscription")
	with := toldSide(g, to)
	var rates, message, client, own []float64
	for round := range b.rounds + 1 {
		b.progress(round)
		var quiet, told sample
		turns := []func() error{
			func() (err error) { quiet, err = without.turn(ctx, work{clients: 64, d: b.d}); return err },
			func() (err error) { told, err = with.turn(ctx, work{clients: 64, d: b.d}); return err },
		}
		if round%2 == 1 {
			turns[0], turns[1] = turns[1], turns[0]
		}
		for _, turn := range turns {
			if err := turn(); err != nil {
				return fmt.Errorf("%w\nthe end of the gateway's log:\n%s", err, g.logTail())
			}
		}
		sent, err := sendAlone(ctx, bare, to, 2000)
		if err != nil {
			return err
		}
		if round > 0 {
			each := serverMicros(told) - serverMicros(quiet)
			rates = append(rates, told.perSecond()/quiet.perSecond())
			message, client, own = append(message, each), append(client, sent), append(own, each-sent)
		}
	}
	b.section("Webhooks", fmt.Sprintf("64 clients with locks of their own, and every release is told to a receiver on loopback: %s of the cycles without a subscription. "+
		"A message costs the gateway %.0f µs of processor time more; a program that only sends such messages spends %.0f µs on each.\n",
		times(rates), over(message).median, over(client).median))
	b.target("a webhook message: the gateway's µs without the HTTP client's", atMost, 30.5, own)
	return nil
}

// toldSide is the gateway with a subscription to every release. Its turn ends when all releases of it were delivered, so that what they cost is
// part of it.
func toldSide(g *gateway, to *receiver) side {
	s := g.side("every release is told")
	s.run = func(ctx context.Context, w work, begin func()) (got sample, err error) {
		id, err := g.http.subscribe(ctx, to.url)
		if err != nil {
			return got, err
		}
		defer func() {
			if failed := g.http.do(context.WithoutCancel(ctx), http.MethodDelete, g.http.base+"/v1/webhooks/"+id, "", http.StatusNoContent, nil); err == nil {
				err = failed
			}
		}()
		var released atomic.Int64
		lockers := w.lockers(func(_ int, lock string) locker { return &counted{g.http.locker(lock), &released} })
		if got, err = closedLoop(ctx, lockers, w, begin); err != nil {
			return got, err
		}
		err = to.allTold(ctx, int(released.Load()))
		return got, err
	}
	return s
}

// counted is a client whose releases are counted.
type counted struct {
	*httpLocker
	released *atomic.Int64
}

// Unlock implements locker.
func (c *counted) Unlock(ctx context.Context) error {
	defer c.released.Add(1)
	return c.httpLocker.Unlock(ctx)
}

// subscribe wants to be told every release.
func (h *httpClients) subscribe(ctx context.Context, to string) (id string, err error) {
	var hook struct {
		ID string `json:"id"`
	}
	err = h.do(ctx, http.MethodPost, h.base+"/v1/webhooks?events=lease.released&url="+url.QueryEscape(to), "", http.StatusCreated, &hook)
	if err != nil {
		return "", fmt.Errorf("subscribe: %w", err)
	}
	return hook.ID, nil
}

// sendAlone has the bare program send so many messages like the last one, and returns its µs of processor time for each.
func sendAlone(ctx context.Context, bare *gateway, to *receiver, messages int) (float64, error) {
	to.mu.Lock()
	order := to.last
	to.mu.Unlock()
	order.Messages, order.AtOnce = messages, messagesAtOnce
	text, err := json.Marshal(order)
	if err != nil {
		return 0, err
	}
	micros, err := microsOver(bare.PID(), func() (int, error) { return messages, bare.http.post(ctx, "/messages", string(text), nil) })
	if err != nil {
		return 0, err
	}
	return micros, to.allTold(ctx, 1) // they all tell of one lease
}
