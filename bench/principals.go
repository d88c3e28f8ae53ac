package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// What principals cost, and what they cost each other.
const (
	costClients   = 16
	quietClients  = 8
	quietRate     = 200 // cycles that become due in a second
	greedyClients = 32
	greedyRate    = 300 // requests that the greedy principal may send in a second
	greedyTimes   = 10  // it sends so many times its rate
	// mostCost is how much more processor time a cycle may take with authentication, mostDisturbed how much longer the quiet
	// principal's p99 may be.
	mostCost      = 1.03
	mostDisturbed = 2
)

const (
	askedSide   = "with authentication"
	unaskedSide = "without"
)

// principalRules let each token take all locks. The rate of load is one that it never reaches.
var principalRules = fmt.Sprintf(`roles:
  load: [{ns: "*", locks: "*", verbs: [acquire], rate: 1000000/s}]
  greedy: [{ns: "*", locks: "*", verbs: [acquire], rate: %d/s}]
who:
  - {token: load, roles: [load]}
  - {token: quiet, roles: [load]}
  - {token: greedy, roles: [greedy]}
`, greedyRate)

// principals measures a cycle with authentication and without, and a principal beside one that sends ten times its rate.
func (b *bench) principals(ctx context.Context) error {
	b.endOne()
	defer b.rig.endAll()
	plain, err := b.rig.startGateway(ctx, "--data-dir", filepath.Join(b.rig.dir, "unasked"))
	if err != nil {
		return err
	}
	asked, clients, err := b.rig.startAsking(ctx, "load", "quiet", "greedy")
	if err != nil {
		return err
	}
	load := *asked
	load.http = clients["load"]
	t, err := b.compareClosely(ctx, []line{{name: fmt.Sprintf("%d clients, own locks", costClients), work: work{clients: costClients}, sides: []side{plain.side(unaskedSide), load.side(askedSide)}}}, b.d)
	if err != nil {
		return err
	}
	with, without := t.rounds(0, askedSide, serverMicros), t.rounds(0, unaskedSide, serverMicros)
	ratios := make([]float64, len(with))
	for i := range with {
		ratios[i] = with[i] / without[i]
	}
	b.target("processor time of a cycle with authentication ÷ without", atMost, mostCost, ratios)
	n := neighbours{quiet: clients["quiet"], greedy: clients["greedy"]}
	if err := n.measure(ctx, b); err != nil {
		return fmt.Errorf("%w\nthe end of the gateway's log:\n%s", err, asked.logTail())
	}
	b.target("p99 of a principal beside one at ten times its rate ÷ undisturbed", atMost, mostDisturbed, n.ratios)
	b.section("Principals", "The first table is of three times as many rounds as elsewhere.\n\n"+t.markdown()+n.markdown())
	return nil
}

// startAsking starts a gateway that asks who sends a request, and makes a client with a token for each name.
func (r *rig) startAsking(ctx context.Context, names ...string) (*gateway, map[string]*httpClients, error) {
	rules, data := filepath.Join(r.dir, "auth.yaml"), filepath.Join(r.dir, "asking")
	if err := os.WriteFile(rules, []byte(principalRules), 0o600); err != nil {
		return nil, nil, fmt.Errorf("file of rules: %w", err)
	}
	g, err := r.startGateway(ctx, "--data-dir", data, "--auth-file", rules)
	if err != nil {
		return nil, nil, err
	}
	clients := map[string]*httpClients{}
	for _, name := range names {
		made, err := exec.CommandContext(ctx, r.binary, "token", "create", "--name", name, "--ttl", "1d", "--data-dir", data).Output()
		if err != nil {
			return nil, nil, fmt.Errorf("a token for %s: %w", name, err)
		}
		clients[name] = newHTTPClients(g.http.base)
		clients[name].authorization = "Bearer " + strings.TrimSpace(string(made))
		r.atEnd(clients[name].close)
	}
	return g, clients, nil
}

// neighbours are two principals of one gateway.
type neighbours struct {
	quiet, greedy *httpClients

	alone, beside *hdrhistogram.Histogram // of the quiet one's acquires
	ratios        []float64               // of their p99, by round
	sent, refused atomic.Int64            // of the greedy one
}

// measure lets the quiet one work alone and beside the greedy one, in turns.
func (n *neighbours) measure(ctx context.Context, b *bench) error {
	n.alone, n.beside = newHistogram(), newHistogram()
	for round := range b.rounds + 1 {
		b.progress(round)
		alone, beside := newHistogram(), newHistogram()
		turns := []func() error{
			func() error { return n.work(ctx, 2*b.d, alone) },
			func() error { return n.disturbed(ctx, 2*b.d, beside) },
		}
		for i := range turns {
			if err := turns[(i+round)%2](); err != nil {
				return err
			}
		}
		if round > 0 {
			n.alone.Merge(alone)
			n.beside.Merge(beside)
			n.ratios = append(n.ratios, float64(beside.ValueAtQuantile(99))/float64(max(alone.ValueAtQuantile(99), 1)))
		}
	}
	return nil
}

// work lets the quiet one's cycles become due at its rate.
func (n *neighbours) work(ctx context.Context, d time.Duration, latency *hdrhistogram.Histogram) error {
	w := work{clients: quietClients, d: d}
	_, err := pacedLoop(ctx, w.lockers(func(_ int, lock string) locker { return n.quiet.locker(lock) }), w, quietRate, latency, func() {})
	return err
}

// disturbed is work while the greedy one sends ten times its rate.
func (n *neighbours) disturbed(ctx context.Context, d time.Duration, latency *hdrhistogram.Histogram) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	begun := time.Now()
	between := time.Second / (greedyRate * greedyTimes)
	for i := range greedyClients {
		running.Go(func() {
			l := n.greedy.locker(fmt.Sprintf("greedy-%d", i))
			for due := time.Duration(i) * between; due < d; due += greedyClients * between {
				if err := wait(ctx, due-time.Since(begun)); err != nil {
					return
				}
				if err := n.take(ctx, l); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	err := n.work(ctx, d, latency)
	running.Wait()
	return err
}

// take is one request of the greedy one, and its release if it is granted.
func (n *neighbours) take(ctx context.Context, l *httpLocker) error {
	n.sent.Add(1)
	err := l.Lock(ctx)
	if refused, ok := errors.AsType[*refusal](err); ok && refused.status == http.StatusTooManyRequests {
		n.refused.Add(1)
		return nil
	}
	if err == nil {
		err = l.Unlock(ctx)
	}
	return err
}

func (n *neighbours) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nOne gateway that asks who sends a request has two principals. Cycles of one become due %d times a second. The other may send %d requests "+
		"a second and sends %d: %.0f %% of them were refused. The load generator runs on the same processors.\n\n| the first one's acquires | p50 | p99 | p99.9 |\n|---|---|---|---|\n",
		quietRate, greedyRate, greedyRate*greedyTimes, 100*float64(n.refused.Load())/float64(max(n.sent.Load(), 1)))
	for _, of := range []struct {
		name    string
		latency *hdrhistogram.Histogram
	}{{"alone", n.alone}, {"beside the second one", n.beside}} {
		fmt.Fprintf(&b, "| %s |", of.name)
		for _, p := range []float64{50, 99, 99.9} {
			fmt.Fprintf(&b, " %.2f ms |", float64(of.latency.ValueAtQuantile(p))/1e3)
		}
		b.WriteString("\n")
	}
	return b.String()
}
