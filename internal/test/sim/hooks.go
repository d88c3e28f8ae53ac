package sim

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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
	hookFrom   = 300 // numbers of the subscribers
)

// receivers are all webhooks and notify_urls, and what they have been told.
type receivers struct {
	w *world

	mu       sync.Mutex
	ids      map[string]string    // of messages, by receiver, lease and lock; and those by id
	told     map[string]time.Time // when a lease's end was first taken, by webhook and lease
	took     map[string]int       // how often a message was, by id
	besides  map[string]int       // how often a best-effort message was, by its type and lease
	odd      []string             // what should not have been told so
	down     bool                 // receivers take nothing: a script says so
	notified map[string]*notified // by lease
	tellings int                  // ends that were to be told; the checks count them
}

func newReceivers(w *world) *receivers {
	return &receivers{w: w, ids: map[string]string{}, told: map[string]time.Time{}, took: map[string]int{}, besides: map[string]int{}, notified: map[string]*notified{}}
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
	if ctx.Err() != nil || p.g.gone.Load() {
		return a
	}
	var body struct {
		Data webhooks.Event `json:"data"`
	}
	if err := json.Unmarshal(m.Body, &body); err != nil {
		w.violate("told: %s is sent %q", to.URL, m.Body)
		return a
	}
	ours := body.Data.LeaseID != ""
	if ours {
		w.receivers.arrived(to, m, &body.Data)
	}
	if w.receivers.refuses(to.URL) {
		return a
	}
	a.Result, a.Error = webhooks.Delivered, ""
	if ours {
		w.receivers.take(p.g.name, to, m, &body.Data)
	}
	return a
}

// take takes a message.
func (h *receivers) take(gateway string, to *webhooks.Subscription, m *webhooks.Message, e *webhooks.Event) {
	name := to.ID
	if isNotice(to) {
		name = to.URL
		h.w.trace("%s tells %s that %s: %s", gateway, to.URL, e.LeaseID, m.Type)
	} else {
		h.w.trace("%s tells %s that %s has ended: %s, %s %s", gateway, to.ID, e.LeaseID, m.Type, m.ID, e.Lock)
	}
	for _, c := range h.w.audit.places(e.LeaseID) {
		if !slices.Contains(webhooks.BestEffort, m.Type) && c.there() {
			h.w.violate("told: %s is told that %s has ended, and it is there", name, c.path)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !isNotice(to) && slices.Contains(webhooks.BestEffort, m.Type) {
		h.besides[m.Type+" "+e.LeaseID]++
		return
	}
	if isNotice(to) {
		n := h.notice(e.LeaseID)
		if len(to.Secrets) > 0 {
			n.signed = to.Secrets[0].Value
		}
		n.ended = n.ended || m.Type != webhooks.Granted
		return
	}
	if about := to.ID + " " + e.LeaseID; h.told[about].IsZero() {
		h.told[about] = time.Now()
	}
	h.took[m.ID]++
}

// arrived notes under which id a receiver has seen what it is told, whether it takes it or not.
func (h *receivers) arrived(to *webhooks.Subscription, m *webhooks.Message, e *webhooks.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	about := to.ID + " " + e.LeaseID + " " + e.Lock
	if isNotice(to) {
		about = to.URL + " " + e.LeaseID + " " + e.Lock
	}
	switch m.Type {
	case webhooks.Granted, webhooks.Queued:
		about += " " + m.Type
	case webhooks.Updated, webhooks.RevokeRequested, webhooks.RevokeWithdrawn, webhooks.EndingSoon:
		return // there may be several
	}
	if first := h.ids[about]; first != "" && first != m.ID {
		h.odd = append(h.odd, about+" is told as "+first+" and as "+m.ID)
	}
	if other := h.ids[m.ID]; other != "" && other != about {
		h.odd = append(h.odd, m.ID+" tells of "+other+" and of "+about) // a receiver that drops repeats would miss one of them
	}
	h.ids[about], h.ids[m.ID] = m.ID, about
}

// refuses reports whether a receiver takes nothing now: in three of ten seconds, as long as the weather is bad.
func (h *receivers) refuses(receiver string) bool {
	h.mu.Lock()
	down := h.down
	h.mu.Unlock()
	since, plan := time.Since(h.w.begun), &h.w.plan
	return down || since < plan.Length && rand.New(rand.NewPCG(plan.Seed^nameOf(receiver), uint64(since/(3*time.Second)))).IntN(10) < 3
}

// subscribe makes a webhook at some gateway, sooner or later.
func (w *world) subscribe(number int) {
	random := w.random(hookFrom + number)
	if number > 0 {
		time.Sleep(time.Duration(random.Int64N(int64(w.plan.Length * 3 / 4))))
	}
	for !w.clearing.Load() {
		if g := w.gateways.pick(random); g != nil {
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

// hook notes what a transaction creates for webhooks and notify_urls.
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
