package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// A short run of everything on the real programs, so that make bench still runs when it is wanted.
func TestTheBenchmarkRunsAndLeavesNothingBehind(t *testing.T) {
	if os.Getenv("LOCKKEEPER_FULL") == "" {
		t.Skip("it measures in turns of a fifth of a second, which a busy machine cannot: make test-full runs it")
	}
	testkit.BuiltFrom(t, "lockkeeper/cmd/gateway")
	testkit.NoLeaks(t)
	parent := t.TempDir()
	r := assert.Value(newRig(t.Context(), parent))(t)
	defer r.close()
	scenarios := plan()
	for i := range scenarios {
		scenarios[i].sides = scenarios[i].sides[:min(2, len(scenarios[i].sides))]
	}
	res := assert.Value(r.measure(t.Context(), scenarios, time.Now().Add(closingTakes+8*time.Second), 1))(t)
	for i, s := range scenarios {
		for _, side := range s.sides {
			samples := res.samples[slot{i, side.name}]
			assert.That(t, len(samples) == 1, "%s, %d clients, %s: %d samples", s.kind, s.clients, side.name, len(samples))
		}
	}
	h := longEnough(t, 200*time.Millisecond, func(turn time.Duration) (*hooks, string) {
		h := assert.Value(r.webhooks(t.Context(), turn, 1))(t)
		for i := range hookLines {
			if with, without := h.with[i][0], h.without[i][0]; without.done == 0 || with.done == 0 || len(with.latency[telling]) < with.done {
				return h, fmt.Sprintf("webhooks, line %d: %d cycles, and %d with %d told", i, without.done, with.done, len(with.latency[telling]))
			}
		}
		return h, ""
	})
	w := assert.Value(r.watch(t.Context(), crowds(20), time.Second, 1))(t)
	for i, c := range w.crowds {
		turn := w.turns[i][0]
		assert.That(t, turn.done != 0 && (turn.delivered > 0) == (c.size > 0 && c.query(0) == ""),
			"%s: %d cycles, %.0f events a second", c.name, turn.done, turn.delivered)
	}
	o := assert.Value(r.crowdedOverview(t.Context(), 200, 3))(t)
	own := longEnough(t, 100*time.Millisecond, func(turn time.Duration) (*ownStore, string) {
		own := assert.Value(r.ownStore(t.Context(), turn, 1, 200))(t)
		for i := range ownLines {
			if len(own.embedded[i]) != 1 || len(own.debian[i]) != 1 || own.embedded[i][0].done == 0 {
				return own, fmt.Sprintf("line %d: %+v, %+v", i, own.embedded[i], own.debian[i])
			}
		}
		return own, ""
	})
	assert.That(t, own.resident != 0 && own.after != 0 && own.answered != 0 && own.store != 0, "the gateway's own store: %+v", own)
	report := render(r.describe(1, res), res, own, h, w, o)
	assert.That(t, strings.Contains(report, "ZooKeeper 3."), "the report does not know ZooKeeper's version:\n%s", report)
	zk, gateway := r.zk.Done(), r.gateway.Done()
	r.close()
	for name, done := range map[string]<-chan struct{}{"ZooKeeper": zk, "the gateway": gateway} {
		select {
		case <-done:
		default:
			t.Errorf("%s still runs", name)
		}
	}
	left, err := os.ReadDir(parent)
	assert.That(t, err == nil && len(left) == 0, "left behind: %v, %v", left, err)
}

func TestARigThatCannotStartSaysWhyAndLeavesNothingBehind(t *testing.T) {
	testkit.NotShort(t, "it starts servers and gateways")
	testkit.NoLeaks(t)
	for name, c := range map[string]struct{ variable, value, said string }{
		"nothing is built":               {"GOFLAGS", "-mod=nonsense", "-mod=nonsense not supported"},
		"the gateway refuses its config": {"LOCKKEEPER_DRAIN_DELAY", "nonsense", "hint: gateway --help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			parent := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, err := newRig(ctx, parent)
			if err == nil {
				r.close()
				t.Fatal("it started")
			}
			assert.That(t, strings.Contains(err.Error(), c.said), "the error does not tell why: %v", err)
			left, err := os.ReadDir(parent)
			assert.That(t, err == nil && len(left) == 0, "left behind: %v, %v", left, err)
		})
	}
}

// longEnough measures in turns that become longer until there is nothing to complain of: in a short one a busy machine may not
// finish a single cycle.
func longEnough[T any](t *testing.T, turn time.Duration, measure func(turn time.Duration) (T, string)) T {
	t.Helper()
	for ; ; turn *= 4 {
		result, wrong := measure(turn)
		if wrong == "" {
			return result
		}
		assert.Must(t, turn <= 3*time.Second, "in turns of %v: %s", turn, wrong)
	}
}
