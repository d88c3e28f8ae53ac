package sim

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/embedded/state"
)

// Some plans have webhooks: subscribed at some gateway while others know nothing of that yet, each with a receiver
// that takes nothing now and then. Receivers are no part of the simulated network: a gateway reaches them as long as it is there. The order in which
// messages go out at one instant is not decided by the seed.

const (
	outboxRoot = zk.DefaultRoot + "/outbox"
	hooksRoot  = zk.DefaultRoot + "/webhooks"
	hookFrom   = 300 // numbers of those who subscribe
)

// hooks is what receivers have been told; guarded by world.mu.
type hooks struct {
	told map[string]map[string]string // ids of messages by webhook and lease
	odd  []string                     // what should not have been told so
}

// hookOptions are those of a gateway's webhooks.
func (g *gateway) hookOptions() webhooks.Options {
	anywhere, err := webhooks.NewAddresses(true, nil)
	if err != nil {
		panic(err)
	}
	random := &source{seed: g.w.plan.Seed, whose: nameOf(g.name, "hooks")}
	return webhooks.Options{Root: zk.DefaultRoot, Addresses: anywhere, Transport: post{g}, Logger: slog.New(slog.DiscardHandler),
		Random: func(n int64) int64 { return rand.New(random).Int64N(max(n, 1)) }}
}

// post carries messages from one gateway to the receivers.
type post struct{ g *gateway }

// Send implements webhooks.Transport.
func (p post) Send(ctx context.Context, to *webhooks.Subscription, m *webhooks.Message) webhooks.Attempt {
	p.g.listen.thaw()
	time.Sleep(7*time.Millisecond + time.Duration(nameOf(p.g.name, m.ID)%1_000_000))
	a := webhooks.Attempt{At: time.Now(), MessageID: m.ID, Type: m.Type, Result: webhooks.Failed, Error: "it takes nothing"}
	w := p.g.w
	if ctx.Err() != nil || p.g.isGone() || w.refuses(to.URL) {
		return a
	}
	a.Result, a.Error = webhooks.Delivered, ""
	var body struct {
		Data webhooks.Event `json:"data"`
	}
	if err := json.Unmarshal(m.Body, &body); err != nil {
		w.violate("told: %s is sent %q", to.URL, m.Body)
		return a
	}
	if isNotice(to) {
		w.takeNotice(p.g.name, to, m, &body.Data)
		return a
	}
	if body.Data.LeaseID == "" {
		return a
	}
	w.trace("%s tells %s that %s has ended: %s", p.g.name, to.ID, body.Data.LeaseID, m.Type)
	for _, c := range w.audit.places(body.Data.LeaseID) {
		if c.there() {
			w.violate("told: %s is told that %s has ended, and it is there", to.ID, c.path)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hooks.told == nil {
		w.hooks.told = map[string]map[string]string{}
	}
	told := w.hooks.told[to.ID]
	if told == nil {
		told = map[string]string{}
		w.hooks.told[to.ID] = told
	}
	about := body.Data.LeaseID + " " + body.Data.Lock
	if first := told[about]; first != "" && first != m.ID {
		w.hooks.odd = append(w.hooks.odd, about+" is told as "+first+" and as "+m.ID)
	}
	told[about], told[body.Data.LeaseID] = m.ID, m.ID
	return a
}

// refuses reports whether a receiver takes nothing now: in three of ten seconds, as long as the weather is bad.
func (w *world) refuses(receiver string) bool {
	since := time.Since(w.begun)
	return since < w.plan.Length && rand.New(rand.NewPCG(w.plan.Seed^nameOf(receiver), uint64(since/(3*time.Second)))).IntN(10) < 3
}

// subscribe makes a webhook at some gateway, sooner or later.
func (w *world) subscribe(number int) {
	random := w.random(hookFrom + number)
	if number > 0 {
		time.Sleep(time.Duration(random.Int64N(int64(w.plan.Length * 3 / 4))))
	}
	for !w.isClearing() {
		if g := w.pick(random); g != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_, err := g.hooks.Create(ctx, &webhooks.Subscription{URL: "http://receiver.example/" + string(rune('a'+number)), Enabled: true})
			cancel()
			if err == nil {
				return
			}
		}
		time.Sleep(time.Duration(100+random.IntN(400)) * time.Millisecond)
	}
}

// hook notes what a transaction creates for webhooks.
func (a *audit) hook(txn *state.Txn, op state.TxnOp) {
	if id, ok := strings.CutPrefix(op.Path, hooksRoot+"/"); ok {
		a.hooked[id] = txn.Zxid
		a.trace("zxid %#x subscribes %s", txn.Zxid, id)
	}
	if lease, ok := strings.CutPrefix(op.Path, outboxRoot+"/"); ok && a.noted[lease] == 0 {
		a.noted[lease] = txn.Zxid
	}
}

// lastOf notes by which transaction a contender's lease ends.
func (a *audit) lastOf(c *contender, txn *state.Txn) {
	if c.endedAt == 0 {
		c.endedAt, c.endedBy = txn.Zxid, a.sessions[txn.Session]
	}
}

// checkTold compares what receivers were told with what ZooKeeper committed. It reports in the outcome how much there was to tell.
func (w *world) checkTold() {
	if w.plan.Hooks == 0 {
		return
	}
	w.mu.Lock()
	beliefs, odd := w.beliefs, w.hooks.odd
	w.mu.Unlock()
	for _, what := range odd {
		w.violate("told: %s", what)
	}
	seen := map[string]bool{}
	for _, b := range beliefs {
		c := w.audit.at(b.lease, b.lock)
		if !b.held || b.foreign || seen[b.lease] || c == nil || c.there() || c.ephemeral || c.endedBy == "" || w.excused[b.lease] || !b.from.Before(c.ended()) {
			continue
		}
		seen[b.lease] = true
		for id, since := range w.audit.hooked {
			if since >= c.endedAt {
				continue
			}
			w.tellings++
			if noted := w.audit.noted[b.lease]; noted != c.endedAt {
				w.violate("told: %s ended by %s in zxid %#x, and its note is of zxid %#x", c.path, c.endedBy, c.endedAt, noted)
			} else if w.hooks.told[id][b.lease] == "" {
				w.violate("told: the end of %s, zxid %#x, was never told to %s, which is of zxid %#x", c.path, c.endedAt, id, since)
			}
		}
	}
}
