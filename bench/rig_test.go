package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(bareVariable); config != "" {
		os.Stderr.WriteString(serveBare(config).Error())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A short run of everything on the real programs, so that make bench still runs when it is wanted.
func TestTheBenchmarkRunsAndLeavesNothingBehind(t *testing.T) {
	if os.Getenv("LOCKKEEPER_FULL") == "" {
		t.Skip("it measures in turns of a fifth of a second, which a busy machine cannot: make test-full runs it")
	}
	testkit.BuiltFrom(t, "lockkeeper/cmd/gateway")
	testkit.NoLeaks(t)
	b := &bench{dir: t.TempDir(), rounds: 1, d: 200 * time.Millisecond, begun: time.Now(), parts: parts, small: true}
	assert.NoError(t, b.run(t.Context()))
	assert.Equal(t, len(b.failed), 0, "parts that failed: %v", b.failed)
	report := b.report()
	assert.That(t, strings.Contains(report, "ZooKeeper 3."), "the report does not know ZooKeeper's version:\n%s", report)
	assert.That(t, len(b.sections) >= len(parts), "%d sections for %d parts", len(b.sections), len(parts))
	left, err := os.ReadDir(b.dir)
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
				_, err = r.startGateway(ctx, "--data-dir", parent+"/data")
				r.close()
			}
			assert.Must(t, err != nil, "it started")
			assert.That(t, strings.Contains(err.Error(), c.said), "the error does not tell why: %v", err)
			left, err := os.ReadDir(parent)
			assert.That(t, err == nil && len(left) == 0, "left behind: %v, %v", left, err)
		})
	}
}

func TestWhatTakesTooLongRunsOnlyByName(t *testing.T) {
	names := func(chosen []part) (list []string) {
		for _, p := range chosen {
			list = append(list, p.name)
		}
		return list
	}
	all := names(assert.Value(choose(""))(t))
	assert.That(t, !slices.Contains(all, "million") && slices.Contains(all, "size"), "a run of all has the parts %v", all)
	assert.Slices(t, names(assert.Value(choose("million,own"))(t)), []string{"own", "million"}, "parts by name")
	_, err := choose("own,none")
	assert.That(t, err != nil, "a part that there is not was chosen")
}
