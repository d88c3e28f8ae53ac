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
	ids  map[string]string    // of messages, by receiver, lease and lock; and those by id
	told map[string]time.Time // when a lease's end was first taken, by webhook and lease
	took map[string]int       // how often a message was, by id
	odd  []string             // what should not have been told so
	down bool                 // receivers take nothing: a script says so
}

// soonTold is how soon an end is told when receivers and gateways are well again: who has refused it twice is asked again after up to six
// minutes. What is found by the look through the outbox that comes every ten minutes was overlooked before.
const soonTold = 7 * time.Minute

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
	if ctx.Err() != nil || p.g.isGone() {
		return a
	}
	var body struct {
		Data webhooks.Event `json:"data"`
	}
	if err := json.Unmarshal(m.Body, &body); err != nil {
		w.violate("told: %s is sent %q", to.URL, m.Body)
		return a
	}
	if body.Data.LeaseID != "" {
		w.arrived(to, m, &body.Data)
	}
	if w.refuses(to.URL) {
		return a
	}
	a.Result, a.Error = webhooks.Delivered, ""
	if isNotice(to) {
		w.takeNotice(p.g.name, to, m, &body.Data)
		return a
	}
	if body.Data.LeaseID == "" {
		return a // another program's
	}
	w.trace("%s tells %s that %s has ended: %s, %s %s", p.g.name, to.ID, body.Data.LeaseID, m.Type, m.ID, body.Data.Lock)
	for _, c := range w.audit.places(body.Data.LeaseID) {
		if c.there() {
			w.violate("told: %s is told that %s has ended, and it is there", to.ID, c.path)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hooks.told == nil {
		w.hooks.told, w.hooks.took = map[string]time.Time{}, map[string]int{}
	}
	if about := to.ID + " " + body.Data.LeaseID; w.hooks.told[about].IsZero() {
		w.hooks.told[about] = time.Now()
	}
	w.hooks.took[m.ID]++
	return a
}

// arrived notes under which id a receiver has seen what it is told, whether it takes it or not.
func (w *world) arrived(to *webhooks.Subscription, m *webhooks.Message, e *webhooks.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := &w.hooks
	if h.ids == nil {
		h.ids = map[string]string{}
	}
	about := to.ID + " " + e.LeaseID + " " + e.Lock
	if isNotice(to) {
		about = to.URL + " " + e.LeaseID + " " + e.Lock
	}
	if m.Type == webhooks.Granted {
		about += " granted"
	}
	if first := h.ids[about]; first != "" && first != m.ID {
		h.odd = append(h.odd, about+" is told as "+first+" and as "+m.ID)
	}
	if other := h.ids[m.ID]; other != "" && other != about {
		h.odd = append(h.odd, m.ID+" tells of "+other+" and of "+about) // who drops what comes again would miss one of them
	}
	h.ids[about], h.ids[m.ID] = m.ID, about
}

// refuses reports whether a receiver takes nothing now: in three of ten seconds, as long as the weather is bad.
func (w *world) refuses(receiver string) bool {
	w.mu.Lock()
	down := w.hooks.down
	w.mu.Unlock()
	if down {
		return true
	}
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
	w.mu.Lock()
	beliefs, odd, told := w.beliefs, w.hooks.odd, w.hooks.told
	w.mu.Unlock()
	for _, what := range odd {
		w.violate("told: %s", what)
	}
	if w.plan.Hooks == 0 {
		return
	}
	well := w.begun.Add(w.plan.Length)
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
			} else if at := told[id+" "+b.lease]; at.IsZero() {
				w.violate("told: the end of %s, zxid %#x, was never told to %s, which is of zxid %#x", c.path, c.endedAt, id, since)
			} else if ended := c.ended(); at.Sub(ended) > soonTold && at.Sub(well) > soonTold {
				w.violate("told: the end of %s was told to %s %v after it, and %v after all was well", c.path, id, at.Sub(ended), at.Sub(well))
			}
		}
	}
}
