package chaos

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/chaos/check"
)

// line is one line of a history that is kept.
type line struct {
	Violation *check.Violation `json:"violation,omitempty"`
	Span      *check.Span      `json:"span,omitempty"`
	Op        *check.Op        `json:"op,omitempty"`
	Listing   *check.Listing   `json:"listing,omitempty"`
}

// save keeps the history and the gateways' logs for study, and tells where.
func save(t *testing.T, dir string, h check.History, found []check.Violation) string {
	to := *keep
	if to == "" {
		var err error
		if to, err = os.MkdirTemp("", "lockkeeper-chaos-"); err != nil {
			return err.Error()
		}
	}
	err := os.MkdirAll(to, 0o755)
	if err == nil {
		err = write(filepath.Join(to, "history.jsonl"), h, found)
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, name := range logs {
		b, readErr := os.ReadFile(name)
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(to, filepath.Base(name)), b, 0o600))
	}
	if err != nil {
		t.Log(err)
	}
	return to
}

func write(name string, h check.History, found []check.Violation) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(f)
	put := func(l line) { err = errors.Join(err, enc.Encode(l)) }
	for i := range found {
		put(line{Violation: &found[i]})
	}
	for i := range h.Spans {
		put(line{Span: &h.Spans[i]})
	}
	for i := range h.Ops {
		put(line{Op: &h.Ops[i]})
	}
	for i := range h.Listings {
		put(line{Listing: &h.Listings[i]})
	}
	return errors.Join(err, f.Close())
}

func read(name string) (h check.History, err error) {
	f, err := os.Open(name)
	if err != nil {
		return h, err
	}
	defer f.Close()
	for dec := json.NewDecoder(f); ; {
		var l line
		switch err := dec.Decode(&l); {
		case errors.Is(err, io.EOF):
			return h, nil
		case err != nil:
			return h, err
		case l.Span != nil:
			h.Spans = append(h.Spans, *l.Span)
		case l.Op != nil:
			h.Ops = append(h.Ops, *l.Op)
		case l.Listing != nil:
			h.Listings = append(h.Listings, *l.Listing)
		}
	}
}

// With -chaos.again a kept history is looked at; without, that nothing is lost by keeping one.
func TestAHistoryThatWasKeptIsJudgedAgain(t *testing.T) {
	dir := *again
	if dir == "" {
		dir = t.TempDir()
		held := check.Op{Attempt: "a", Kind: check.Acquire, Lock: "lock", Mode: check.Exclusive, TTL: 10e9, Done: 1e9, Status: 201, State: "held", LeaseID: "l", Token: 1}
		late := held
		late.Kind, late.Sent, late.Done, late.Status, late.State, late.Reason = check.Heartbeat, 2e9, 3e9, 410, "", "expired"
		was := check.History{Ops: []check.Op{held, late}, Spans: []check.Span{{Kind: "kill", To: 1e9}},
			Listings: []check.Listing{{Lock: "lock", Sent: 5e9, Done: 6e9, Contenders: []check.Contender{{LeaseID: "l", Attempt: "a", Holds: true}}}}}
		assert.NoError(t, write(filepath.Join(dir, "history.jsonl"), was, nil))
	}
	h := assert.Value(read(filepath.Join(dir, "history.jsonl")))(t)
	found := check.Check(&h, check.Times{Session: sessionTimeout, Window: promiseWindow})
	if *again == "" {
		assert.That(t, len(found) == 1 && found[0].Rule == "shortened" && len(h.Spans) == 1 && len(h.Listings) == 1,
			"found %+v in %+v", found, h)
		return
	}
	for _, v := range found {
		t.Errorf("%s: %s at %v: %s", v.Rule, v.Lock, v.At, v.Detail)
	}
	survived := map[string]int{}
	for _, s := range h.Spans {
		if s.Kind != stoodStill {
			survived[s.Kind]++
		}
	}
	t.Logf("%d violations\n%v", len(found), figuresOf(h, survived))
}
