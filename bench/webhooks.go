package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What webhooks cost and how soon they arrive. The same clients acquire and release, in turns, without a subscription and with
// a subscription that wants every release; its receiver is in this program, so its work is on the same processors and counts
// as the load generator's. No subscription is the default of every other table: the gateway then still checks, in the
// transaction of each release, that this is so.
//
// A message has come when the receiver has read it whole; how long it took counts from the moment before its DELETE is handed to
// net/http, so the release itself is in it. Every release of a turn must be told, also what is still under way when its clients
// stop, and counts; then the outbox must be empty before the next turn begins. A message that comes twice counts once.
const (
	hookTurn     = 500 * time.Millisecond
	hookRounds   = 5
	toldWithin   = 20 * time.Second // after the last release
	telling      = "telling"
	subscribed   = "subscribed"
	unsubscribed = "no subscription"
)

var hookLines = []ownLine{{1, false}, {16, false}, {64, false}, {16, true}}

// hooked is what one turn with a subscription gave.
type hooked struct {
	sample               // its cycles, and how long telling took
	after  time.Duration // from the end of the turn until the last message had come
}

// hooks holds the turns of each line.
type hooks struct {
	with    [][]hooked
	without [][]sample
}

// webhooks measures each line for d with and without a subscription, in rounds.
func (r *rig) webhooks(ctx context.Context, d time.Duration, rounds int) (*hooks, error) {
	to := newReceiver()
	if err := to.listen(); err != nil {
		return nil, err
	}
	defer to.close()
	h := &hooks{with: make([][]hooked, len(hookLines)), without: make([][]sample, len(hookLines))}
	for round := range rounds + 1 { // the first one warms up
		turn := d
		if round == 0 {
			turn = time.Duration(warmUp * float64(d))
		}
		for i, line := range hookLines {
			var with hooked
			var without sample
			sides := []side{
				{unsubscribed, func(ctx context.Context, r *rig, d time.Duration) (sample, error) { return line.run(ctx, r.http, d) }},
				{subscribed, func(ctx context.Context, r *rig, d time.Duration) (sample, error) {
					var err error
					with, err = line.runTold(ctx, r.http, to, d)
					return with.sample, err
				}},
			}
			if round%2 == 1 {
				slices.Reverse(sides)
			}
			for _, side := range sides {
				s, err := r.turn(ctx, side, turn)
				if err != nil {
					return nil, fmt.Errorf("webhooks, %d clients, %s: %w\nthe end of the gateway's log:\n%s", line.clients, side.name, err, r.logTail())
				}
				if side.name == unsubscribed {
					without = s
				}
			}
			if round > 0 {
				h.with[i] = append(h.with[i], with)
				h.without[i] = append(h.without[i], without)
			}
		}
	}
	return h, nil
}

// runTold is run with a subscription, which is gone again when it returns.
func (l ownLine) runTold(ctx context.Context, h *httpClients, to *receiver, d time.Duration) (turn hooked, err error) {
	to.begin()
	id, err := h.subscribe(ctx, to.url)
	if err != nil {
		return turn, err
	}
	defer func() {
		if failed := h.unsubscribe(context.WithoutCancel(ctx), id); err == nil {
			err = failed
		}
	}()
	lockers := make([]locker, l.clients)
	for i := range lockers {
		lockers[i] = &toldLocker{h.locker(l.lock(i)), to}
	}
	begun := time.Now()
	if turn.sample, err = cycle(ctx, lockers, d, 0, l.contended); err != nil {
		return turn, err
	}
	took, last, err := to.allTold(ctx, toldWithin)
	if err != nil {
		return turn, err
	}
	turn.latency[telling] = took
	turn.after = max(last.Sub(begun.Add(d)), 0)
	return turn, h.outboxEmpties(ctx)
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

func (h *httpClients) unsubscribe(ctx context.Context, id string) error {
	if err := h.do(ctx, http.MethodDelete, h.base+"/v1/webhooks/"+id, "", http.StatusNoContent, nil); err != nil {
		return fmt.Errorf("unsubscribe: %w", err)
	}
	return nil
}

// outboxEmpties returns when nothing is left in the outbox of what has been told.
func (h *httpClients) outboxEmpties(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, toldWithin)
	defer cancel()
	for {
		entries, err := h.outboxEntries(ctx)
		switch {
		case err != nil:
			return err
		case entries == 0:
			return nil
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("%.0f entries stay in the outbox: %w", entries, err)
		}
	}
}

func (h *httpClients) outboxEntries(ctx context.Context) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.base+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("outbox: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("outbox: %w", err)
	}
	entries, err := strconv.ParseFloat(field(string(text), "lockkeeper_outbox_entries "), 64)
	if err != nil {
		return 0, fmt.Errorf("outbox: /metrics answers %s without its size: %w", resp.Status, err)
	}
	return entries, nil
}

// render writes the table.
func (h *hooks) render(b *strings.Builder) {
	b.WriteString("\n### Webhooks: every release is told to a receiver on loopback\n\n" +
		"| | clients | lock cycles per second, no subscription | a subscription wants them all | subscribed ÷ not | from the release to the receiver: p50 | p99 | the last had come, after the clients had stopped |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	for i, line := range hookLines {
		var with []sample
		var after []float64
		for _, t := range h.with[i] {
			with = append(with, t.sample)
			after = append(after, t.after.Seconds())
		}
		of := func(p int) (rounds []float64) {
			for _, s := range with {
				rounds = append(rounds, percentileOf(telling, p)(s))
			}
			return rounds
		}
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %s | %s | %s |\n", line.name(), line.clients, counts(rates(h.without[i])), counts(rates(with)),
			times(ratios(rates(with), rates(h.without[i]))), waits(of(50)), waits(of(99)), waits(after))
	}
	b.WriteString("\nFrom the release to the receiver: from the moment in which the client sends its `DELETE`, to the moment in which the receiver has read the whole\n" +
		"request. Commit, signing and what waits for its turn (at most four messages at a time, and one of each lock) are in it. All releases were told.\n")
}
