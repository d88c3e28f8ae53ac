package httpapi

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
)

// remembered are the operations about what was: internal/history has it.
type remembered struct {
	history *history.History // nil: they are 404 (Server.mount)
	s       *Server
}

type rememberedInput struct {
	history.Query
	window string
}

var listHistory = operation[rememberedInput]{fields: []field[rememberedInput]{
	{name: "lock", in: inQuery, to: func(r *rememberedInput) any { return (*lockName)(&r.Lock) }},
	{name: "ns", in: inQuery, to: func(r *rememberedInput) any { return &r.NS }},
	{name: "owner", in: inQuery, to: func(r *rememberedInput) any { return &r.Owner }},
	{name: "host", in: inQuery, to: func(r *rememberedInput) any { return &r.Host }},
	{name: "from", in: inQuery, to: func(r *rememberedInput) any { return &r.From }},
	{name: "to", in: inQuery, to: func(r *rememberedInput) any { return &r.To }},
	{name: "reason", in: inQuery, to: func(r *rememberedInput) any { return (*endReason)(&r.Reason) }},
	{name: "kind", in: inQuery, to: func(r *rememberedInput) any { return (*historyKinds)(&r.Kinds) }},
	{name: "limit", in: inQuery, to: func(r *rememberedInput) any { return &r.Limit }},
	{name: "cursor", in: inQuery, to: func(r *rememberedInput) any { return &r.Cursor }},
}}

var getStats = operation[rememberedInput]{fields: []field[rememberedInput]{
	{name: "lock", in: inQuery, to: func(r *rememberedInput) any { return (*lockName)(&r.Lock) }},
	{name: "ns", in: inQuery, to: func(r *rememberedInput) any { return &r.NS }},
	{name: "window", in: inQuery, to: func(r *rememberedInput) any { return oneOf{&r.window, []string{"1h", "24h", "7d"}} }},
}}

// endReason is the reason of an end.
type endReason locks.Reason

func (r *endReason) read(name string, v value) error {
	if *r = endReason(v.text); !locks.Reason(*r).Known() {
		return invalid(name, name+" must be a reason of an end, such as expired")
	}
	return nil
}

// historyKinds are kinds with commas between.
type historyKinds history.Kinds

func (k *historyKinds) read(name string, v value) error {
	if v.text == "all" {
		*k = historyKinds(history.AllKinds)
		return nil
	}
	for item := range strings.SplitSeq(v.text, ",") {
		of := history.KindNamed(item)
		if of == 0 {
			return invalid(name, name+" must be all, or of hold, wait, many, hazard and deadlock, with commas between")
		}
		*k |= historyKinds(history.Of(of))
	}
	return nil
}

// check fills in what is left out, and refuses what the caller may not read.
func (r *remembered) check(x *exchange, in *rememberedInput) error {
	for _, of := range []struct {
		name, text string
		most       int
	}{{"owner", in.Owner, locks.MaxOwner}, {"host", in.Host, locks.MaxOwner}} {
		if err := locks.CheckText(of.name, of.text, of.most); err != nil {
			return err
		}
	}
	if err := between("limit", in.Limit, 1, locks.MaxPage); err != nil {
		return err
	}
	if !in.From.IsZero() && !in.To.IsZero() && in.To.Before(in.From) {
		return invalid("to", "to must not be before from")
	}
	in.Rules = x.principal().Rules
	if in.Lock != "" && in.NS == "" {
		in.NS = locks.DefaultNamespace
	}
	if in.NS != "" {
		if err := r.s.streams.namespaceKnown(x, in.NS); err != nil {
			return err
		}
	}
	switch {
	case in.Lock != "":
		if err := x.principal().Check(access.Read, in.NS, in.Lock); err != nil {
			return err
		}
	case in.NS != "":
		if err := x.principal().CheckIn(access.Read, in.NS); err != nil {
			return err
		}
	}
	return nil
}

// listHistory answers who held what.
func (r *remembered) listHistory(x *exchange) error {
	in := rememberedInput{Query: history.Query{Limit: history.DefaultLimit}}
	err := decode(x, &listHistory, &in)
	if err == nil {
		err = r.check(x, &in)
	}
	if err != nil {
		return err
	}
	a, err := r.history.Query(x.r.Context(), in.Query)
	if err != nil {
		return historyProblem(err)
	}
	now := time.Now()
	list := &api.HistoryList{Items: each(a.Items, func(i *history.Item) api.HistoryItem { return historyShape(i, now) }), NextCursor: a.Next,
		Since: at(a.Since), Complete: a.Complete, Gaps: each(a.Gaps, gapShape)}
	x.open = true
	return x.answer(list)
}

// getStats answers with figures.
func (r *remembered) getStats(x *exchange) error {
	in := rememberedInput{Query: history.Query{Limit: 1}, window: "1h"}
	err := decode(x, &getStats, &in)
	if err == nil {
		err = r.check(x, &in)
	}
	if err != nil {
		return err
	}
	st, err := r.history.Stats(x.r.Context(), history.StatsQuery{Rules: in.Rules, NS: in.NS, Lock: in.Lock, Window: windows[in.window]})
	if err != nil {
		return historyProblem(err)
	}
	x.open = true
	return x.answer(statsShape(st, in.window, in.Lock != ""))
}

var windows = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour}

func historyProblem(err error) error {
	switch {
	case errors.Is(err, history.ErrCursor):
		return invalid("cursor", "not a cursor of this list; leave it out to begin at the front")
	case errors.Is(err, history.ErrOff):
		return &problem{code: codeNoHistory, detail: "the store cannot be used now; GET /v1/info says why", retryAfter: 5 * time.Second}
	}
	return &problem{code: codeNoHistory, detail: "the store did not answer in time; ask for less, or for a shorter time", retryAfter: 5 * time.Second, cause: err}
}

// at is a time as answers have it.
func at(t time.Time) string { return t.UTC().Format(eventTime) }

func historyShape(i *history.Item, now time.Time) api.HistoryItem {
	shape := api.HistoryItem{Kind: api.HistoryItemKind(i.Kind.String()), NS: i.NS, Lock: i.Lock, LeaseID: i.LeaseID, Contender: i.Name, Owner: i.Owner, Host: locks.HostOf(i.Owner),
		Principal: i.Principal, Gateway: i.Gateway, AcquireReason: i.Purpose, Mode: api.Mode(i.Mode), Permits: i.Permits, FencingToken: i.FencingToken,
		BeganAt: at(i.Begin), LastedMS: new(millis(i.Span(now))), Reason: api.Reason(i.Reason), By: i.By, Detail: i.Detail, Count: i.Count}
	if i.Foreign {
		shape.Foreign = &api.EventForeign{Program: i.Program}
	}
	if i.Early > 0 {
		shape.BeganAfter = at(i.Begin.Add(-i.Early))
	}
	if !i.End.IsZero() {
		shape.EndedAt = at(i.End)
		if i.Late > 0 {
			shape.EndedAfter = at(i.End.Add(-i.Late))
		}
	}
	if i.WaitedKnown {
		shape.WaitedMS = new(millis(i.Waited))
	}
	switch i.Kind {
	case history.Many:
		shape.LastedMS = new(millis(i.Mean))
	case history.Hazard:
		shape.Code, shape.Programs = api.HazardCode(i.Code), i.Programs
	case history.Deadlock:
		shape.Cycle = i.Code
	}
	if i.LeaseID != "" && !i.End.IsZero() && now.Sub(i.End) < time.Hour && i.Kind <= history.Wait {
		shape.Postmortem = "/v1/leases/" + i.LeaseID + "/postmortem"
	}
	return shape
}

func gapShape(g *history.Gap) api.HistoryGap {
	return api.HistoryGap{From: at(g.From), To: at(g.To), Cause: api.HistoryGapCause(g.Cause)}
}

func statsShape(st *history.Stats, window string, ofLock bool) *api.Stats {
	shape := &api.Stats{Window: api.StatsWindow(window), From: at(st.From), To: at(st.To), Grants: st.Grants, Waits: st.Waits, Wait: spansShape(&st.Wait), Hold: spansShape(&st.Hold),
		Ends: []api.StatsEnd{}, Since: at(st.Since), Complete: st.Complete, Gaps: each(st.Gaps, gapShape)}
	known := st.To.Sub(st.From)
	if st.Since.After(st.From) {
		known = max(st.To.Sub(st.Since), time.Second)
	}
	shape.GrantsPerSecond = float32(float64(st.Grants) / known.Seconds())
	for _, reason := range slices.SortedFunc(maps.Keys(st.Ends), func(a, b locks.Reason) int {
		return cmp.Or(cmp.Compare(st.Ends[b], st.Ends[a]), cmp.Compare(a, b))
	}) {
		shape.Ends = append(shape.Ends, api.StatsEnd{Reason: api.Reason(reason), Count: st.Ends[reason]})
	}
	if !ofLock {
		shape.Contended, shape.Longest, shape.Expired = each(st.Contended, topShape), each(st.Longest, topShape), each(st.Expired, topShape)
		return shape
	}
	if st.Wait.Count > 0 {
		shape.UsualWaitMS = new(millis(st.Wait.P50))
	}
	if st.Hold.Count > 0 {
		shape.UsualHoldMS = new(millis(st.Hold.P50))
	}
	return shape
}

func spansShape(s *history.Spans) api.StatsSpans {
	return api.StatsSpans{Count: s.Count, P50MS: millis(s.P50), P95MS: millis(s.P95), P99MS: millis(s.P99), MaxMS: millis(s.Max)}
}

func topShape(t *history.Top) api.StatsLock {
	return api.StatsLock{NS: t.NS, Lock: t.Lock, Count: t.Count, SpanMS: millis(t.Span)}
}

// status is what /v1/info says of the history; counts: with the numbers.
func (r *remembered) status(counts bool) *api.HistoryStatus {
	if r.history == nil {
		return &api.HistoryStatus{State: api.HistoryOff}
	}
	st := r.history.Status()
	shape := &api.HistoryStatus{State: api.HistoryOn, Kept: api.OnDisk}
	if !st.On {
		shape.State = api.HistoryFailed
	}
	if st.Place == "" {
		shape.Kept = api.InMemory
	}
	if !st.Since.IsZero() {
		shape.Since = at(st.Since)
	}
	if counts {
		shape.Problem, shape.Rows, shape.Bytes, shape.MaxBytes, shape.KeepMS = st.Problem, &st.Rows, &st.Bytes, &st.Size, new(millis(st.Keep))
		shape.Dropped, shape.Gaps = new(int64(st.Dropped)), new(len(st.Gaps))
	}
	return shape
}
