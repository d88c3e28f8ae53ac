package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// Remote is a Service behind the generated client: what is asked travels as HTTP, and what is answered comes back in the
// domain's words. Its answers carry no term (locks.Term): the server has looked before it wrote them.
type Remote struct{ Client *api.Client }

var _ Service = Remote{}

// reply is a success that was read whole.
type reply struct {
	header http.Header
	body   []byte
}

// read reads an answer; a problem becomes the error that it was.
func read(response *http.Response, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	if response.StatusCode >= 400 {
		var p api.Problem
		if err := json.Unmarshal(body, &p); err != nil {
			return reply{}, fmt.Errorf("status %d: %w\n%s", response.StatusCode, err, body)
		}
		return reply{}, problem(&p)
	}
	return reply{response.Header, body}, nil
}

// decode reads an answer of one form, strictly: a member that T lacks is a defect.
func decode[T any](response *http.Response, err error) (v T, _ error) {
	r, err := read(response, err)
	if err != nil {
		return v, err
	}
	return v, strict(r.body, &v)
}

func strict(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// given is nil for a zero value, which is left out of a request.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func span(d time.Duration) string {
	switch d {
	case 0:
		return ""
	case locks.WaitForever:
		return "forever"
	}
	return d.String()
}

// Acquire asks for one lock or several, or adds a hold.
func (r Remote) Acquire(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
	if req.DryRun {
		return r.preview(ctx, req)
	}
	var got reply
	var err error
	if req.Group != nil {
		body := api.AcquireSeveralRequest{
			TTL: span(req.TTL), Wait: span(req.Wait), Async: req.Async, Owner: req.Owner, Metadata: req.Metadata, Hold: req.Hold, Deadlock: api.OnDeadlock(req.Deadlock),
			LockDelay: span(req.LockDelay), LockDelayOn: api.LockDelayOn(req.LockDelayOn), Ephemeral: req.Ephemeral, AtLeast: span(req.AtLeast),
			Reason: req.Purpose, For: span(req.For), Until: instant(req.Until),
		}
		for _, w := range req.Group {
			body.Locks = append(body.Locks, api.WantedLock{Lock: w.Lock, NS: w.NS, Mode: api.AcquireMode(w.Mode), Limit: w.Limit, Permits: w.Permits})
		}
		got, err = read(r.Client.AcquireSeveral(ctx, &api.AcquireSeveralParams{IdempotencyKey: given(req.IdempotencyKey)}, body))
	} else {
		got, err = read(r.Client.Acquire(ctx, req.Lock, &api.AcquireParams{IdempotencyKey: given(req.IdempotencyKey), LeaseToken: given(req.Token)},
			api.AcquireRequest{
				TTL: span(req.TTL), Wait: span(req.Wait), Async: req.Async, Owner: req.Owner, Metadata: req.Metadata, Hold: req.Hold, Deadlock: api.OnDeadlock(req.Deadlock),
				LockDelay: span(req.LockDelay), LockDelayOn: api.LockDelayOn(req.LockDelayOn), Ephemeral: req.Ephemeral, AtLeast: span(req.AtLeast),
				Reason: req.Purpose, For: span(req.For), Until: instant(req.Until),
				NS: req.NS, Mode: api.AcquireMode(req.Mode), Limit: req.Limit, Permits: req.Permits,
				OncePer: span(req.OncePer), Period: req.Period, DoneOn: api.DoneOn(req.DoneOn),
			}))
	}
	if err != nil {
		return locks.AcquireResult{}, err
	}
	if bytes.HasPrefix(got.body, []byte(`{"done":`)) || bytes.Contains(got.body, []byte(`"done":true`)) {
		var d api.DoneAnswer
		err = strict(got.body, &d)
		return locks.AcquireResult{Done: &locks.Done{NS: d.NS, Lock: d.Lock, Period: d.Period, By: d.By, At: d.At}}, err
	}
	var l api.Lease
	err = strict(got.body, &l)
	return locks.AcquireResult{Lease: lease(&l), Replayed: got.header.Get("Idempotency-Replayed") == "true", HoldAdded: req.Token != ""}, err
}

// preview asks about one lock after another.
func (r Remote) preview(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
	wants := req.Group
	if wants == nil {
		wants = []locks.Want{{Lock: req.Lock, NS: req.NS, Mode: req.Mode, Limit: req.Limit, Permits: req.Permits}}
	}
	found := &locks.DryRun{State: locks.Held}
	for _, w := range wants {
		p, err := decode[api.Preview](r.Client.PreviewAcquire(ctx, w.Lock, &api.PreviewAcquireParams{
			NS: given(w.NS), Mode: given(api.AcquireMode(w.Mode)), Limit: given(w.Limit), Permits: given(w.Permits),
		}))
		if err != nil {
			return locks.AcquireResult{}, err
		}
		if p.State == api.LivingStateWaiting {
			found.State = locks.Waiting
		}
		found.QueueLength = max(found.QueueLength, p.QueueLength)
		found.Holders = append(found.Holders, contenders(p.Holders)...)
	}
	return locks.AcquireResult{DryRun: found}, nil
}

// idOrSelf is the id in a path: without one the token names the lease.
func idOrSelf(id string) string { return cmp.Or(id, "self") }

// Lease looks at a lease, or polls it.
func (r Remote) Lease(ctx context.Context, req locks.LeaseRequest) (locks.Lease, error) {
	if req.Since == "" {
		req.Wait = 0 // the manager answers at once, and the API refuses it
	}
	wait, since, verify := given(span(req.Wait)), given(req.Since), given(req.Verify)
	return leaseOf(r.Client.GetLease(ctx, idOrSelf(req.ID), &api.GetLeaseParams{Wait: wait, Since: since, Verify: verify, LeaseToken: given(req.Token)}))
}

func leaseOf(response *http.Response, err error) (locks.Lease, error) {
	l, err := decode[api.Lease](response, err)
	if err != nil {
		return locks.Lease{}, err
	}
	return lease(&l), nil
}

// Leases lists leases.
func (r Remote) Leases(ctx context.Context, f locks.LeaseFilter) (locks.LeasePage, error) {
	list, err := decode[api.LeaseList](r.Client.ListLeases(ctx, &api.ListLeasesParams{
		NS: given(f.NS), Owner: given(f.Owner), AcquireReason: given(f.Purpose), State: given(api.LivingState(f.State)), Limit: given(f.Limit), Cursor: given(f.Cursor),
	}))
	return locks.LeasePage{Items: each(list.Items, lease), NextCursor: list.NextCursor}, err
}

// Heartbeat renews a lease.
func (r Remote) Heartbeat(ctx context.Context, _ locks.Principal, id, token string, ttl time.Duration) (locks.Heartbeat, error) {
	h, err := decode[api.Heartbeat](r.Client.Heartbeat(ctx, idOrSelf(id), &api.HeartbeatParams{LeaseToken: token}, api.HeartbeatRequest{TTL: span(ttl)}))
	return heartbeat(&h), err
}

// AwaitChange renews a lease, and holds the answer.
func (r Remote) AwaitChange(ctx context.Context, _ locks.Principal, id, token string, wait time.Duration) (locks.Heartbeat, error) {
	h, err := decode[api.Heartbeat](r.Client.Heartbeat(ctx, idOrSelf(id), &api.HeartbeatParams{LeaseToken: token, Wait: new(span(wait))}, api.HeartbeatRequest{}))
	return heartbeat(&h), err
}

// Heartbeats renews many leases. A failure of the request is that of each of them.
func (r Remote) Heartbeats(ctx context.Context, _ locks.Principal, tokens []string) []locks.HeartbeatResult {
	list, err := decode[api.HeartbeatList](r.Client.HeartbeatMany(ctx, api.HeartbeatsRequest{Tokens: tokens}))
	if err != nil {
		return []locks.HeartbeatResult{{Err: &locks.Error{Code: "transport", Detail: err.Error()}}}
	}
	return each(list.Items, func(i *api.HeartbeatItem) locks.HeartbeatResult {
		if i.Problem != nil {
			return locks.HeartbeatResult{LeaseID: i.LeaseID, Err: problem(i.Problem)}
		}
		h := api.Heartbeat{LeaseID: i.LeaseID, State: i.State, ExpiresInMS: *i.ExpiresInMS, TTLMS: i.TTLMS, FencingToken: i.FencingToken,
			Position: i.Position, Waiters: *i.Waiters, RevokeRequested: i.RevokeRequested}
		return locks.HeartbeatResult{LeaseID: i.LeaseID, Heartbeat: heartbeat(&h)}
	})
}

// Release lets a lease go.
func (r Remote) Release(ctx context.Context, p locks.Principal, id, token string) error {
	return r.ReleaseHold(ctx, p, id, token, "")
}

// ReleaseHold lets one hold go; "" is the whole lease.
func (r Remote) ReleaseHold(ctx context.Context, _ locks.Principal, id, token, hold string) (err error) {
	var done *bool
	if locks.IsUndone(ctx) {
		done = new(bool)
	}
	_, err = read(r.Client.Release(ctx, idOrSelf(id), &api.ReleaseParams{Hold: given(hold), Done: done, LeaseToken: token}))
	return err
}

// Periods are those of a lock.
func (r Remote) Periods(ctx context.Context, req locks.PeriodsRequest) ([]locks.Period, error) {
	list, err := decode[api.Periods](r.Client.ListPeriods(ctx, req.Lock, &api.ListPeriodsParams{NS: given(req.NS)}))
	return each(list.Periods, func(p *api.Period) locks.Period {
		return locks.Period{Name: p.Period, LeaseID: p.LeaseID, Owner: p.Owner, Principal: p.Principal, DoneOn: locks.DoneOn(p.DoneOn), Done: p.Done, At: p.At, KeptUntil: p.KeptUntil}
	}), err
}

// ForgetPeriod takes one out of a lock's record.
func (r Remote) ForgetPeriod(ctx context.Context, req locks.PeriodsRequest) error {
	_, err := read(r.Client.ForgetPeriod(ctx, req.Lock, req.Period, &api.ForgetPeriodParams{NS: given(req.NS)}))
	return err
}

// Update changes what is known of a lease.
func (r Remote) Update(ctx context.Context, req locks.UpdateRequest) (locks.Lease, error) {
	body := api.UpdateRequest{Owner: req.Owner, Metadata: req.Metadata, TTL: span(req.TTL), Reason: req.Purpose, For: span(req.For), Until: instant(req.Until)}
	return leaseOf(r.Client.UpdateLease(ctx, idOrSelf(req.ID), &api.UpdateLeaseParams{LeaseToken: req.Token}, body))
}

// Downgrade makes a lease shared.
func (r Remote) Downgrade(ctx context.Context, _ locks.Principal, id, token string) (locks.Lease, error) {
	return leaseOf(r.Client.Downgrade(ctx, idOrSelf(id), &api.DowngradeParams{LeaseToken: token}))
}

// Postmortem asks why a lease ended.
func (r Remote) Postmortem(ctx context.Context, _ locks.Principal, id string) (locks.Postmortem, error) {
	p, err := decode[api.Postmortem](r.Client.GetPostmortem(ctx, id, &api.GetPostmortemParams{}))
	if err != nil {
		return locks.Postmortem{}, err
	}
	return postmortem(&p)
}

// Lock looks at a queue.
func (r Remote) Lock(ctx context.Context, req locks.LockRequest) (locks.Lock, error) {
	if req.Since == "" {
		req.Wait = 0 // as of a lease
	}
	l, err := decode[api.Lock](r.Client.GetLock(ctx, req.Lock, &api.GetLockParams{
		NS: given(req.NS), Wait: given(span(req.Wait)), Since: given(req.Since), Consistent: given(req.Consistent), Limit: given(req.Limit), Cursor: given(req.Cursor),
	}))
	return lock(&l), err
}

// Locks lists locks.
func (r Remote) Locks(ctx context.Context, f locks.LockFilter) (locks.LockPage, error) {
	list, err := decode[api.LockList](r.Client.ListLocks(ctx, &api.ListLocksParams{
		NS: given(f.NS), Prefix: given(f.Prefix), Contains: given(f.Contains), Owner: given(f.Owner), Host: given(f.Host), Mode: given(api.Mode(f.Mode)), Sort: given(api.ListLocksParamsSort(f.Sort)), AcquireReason: given(f.Purpose), State: given(api.ListLocksParamsState(f.State)), Limit: given(f.Limit), Cursor: given(f.Cursor),
	}))
	return locks.LockPage{Items: each(list.Items, lock), NextCursor: list.NextCursor}, err
}

// Graph asks the wait-for graph.
func (r Remote) Graph(ctx context.Context, req locks.GraphRequest) (locks.WaitGraph, error) {
	g, err := decode[api.Graph](r.Client.GetGraph(ctx, &api.GetGraphParams{NS: given(req.NS), Lock: given(req.Lock), Owner: given(req.Owner), Cycles: given(req.Cycles), Limit: given(req.Limit)}))
	v := locks.WaitGraph{Waits: each(g.Edges, graphWait), Truncated: g.Truncated, Unread: g.Unread,
		Parties: each(g.Nodes, func(n *api.GraphNode) locks.Party {
			return locks.Party{ID: n.ID, Kind: locks.PartyKind(n.Kind), Owner: n.Owner, Program: n.Program, Label: n.Label, Stuck: n.Stuck}
		}),
		Cycles: each(g.Cycles, graphCycle)}
	return v, err
}

func graphWait(e *api.GraphEdge) locks.GraphWait {
	standing := func(c *api.GraphContender) locks.Standing {
		return locks.Standing{LeaseID: c.LeaseID, Znode: c.Znode, Position: c.Position}
	}
	return locks.GraphWait{From: e.From, To: e.To, NS: e.NS, Lock: e.Lock, Mode: locks.Mode(e.Mode), Any: e.Needs == "any", Waiter: standing(&e.Waiter), Blocker: standing(&e.Blocker)}
}

func graphCycle(c *api.GraphCycle) locks.Cycle {
	v := locks.Cycle{ID: c.ID, Certain: c.Kind == "certain", Waits: each(c.Waits, graphWait), Hidden: c.Hidden, Youngest: -1}
	for i, w := range v.Waits {
		if c.Youngest != nil && w.Waiter.Znode == c.Youngest.Znode {
			v.Youngest = i
		}
	}
	return v
}

// Fence asks whether a fencing token is current.
func (r Remote) Fence(ctx context.Context, req locks.FenceRequest) (locks.FenceAnswer, error) {
	f, err := decode[api.Fence](r.Client.GetFence(ctx, req.Lock, &api.GetFenceParams{NS: given(req.NS), FencingToken: req.Token}))
	return locks.FenceAnswer{Current: f.Current, Reason: string(f.Reason), Highest: f.Highest}, err
}

// Configure sets a limit.
func (r Remote) Configure(ctx context.Context, req locks.SettingsRequest) (locks.Lock, error) {
	l, err := decode[api.Lock](r.Client.ConfigureLock(ctx, req.Lock, &api.ConfigureLockParams{}, api.SettingsRequest{NS: req.NS, Limit: req.Limit}))
	return lock(&l), err
}

// Remove deletes an idle lock.
func (r Remote) Remove(ctx context.Context, _ locks.Principal, ns, lock string) error {
	_, err := read(r.Client.RemoveLock(ctx, lock, &api.RemoveLockParams{NS: given(ns)}))
	return err
}

// Revoke asks holders to let go.
func (r Remote) Revoke(ctx context.Context, req locks.RevokeRequest) (locks.RevokeAnswer, error) {
	a, err := decode[api.RevokeAnswer](r.Client.Revoke(ctx, req.Lock,
		api.RevokeRequest{NS: req.NS, Reason: req.Reason, ForceAfter: span(req.ForceAfter), LeaseIDs: req.Shown.LeaseIDs, Znodes: req.Shown.Znodes}))
	return locks.RevokeAnswer{Asked: contenders(a.Asked), Not: each(a.Unreached, unreached), More: a.More}, err
}

// Withdraw takes back what holders were asked.
func (r Remote) Withdraw(ctx context.Context, req locks.WithdrawRequest) (locks.WithdrawAnswer, error) {
	params := api.WithdrawRevocationParams{NS: given(req.NS)}
	if req.Shown.LeaseIDs != nil {
		params.LeaseIDs = &req.Shown.LeaseIDs
	}
	if req.Shown.Znodes != nil {
		params.Znodes = &req.Shown.Znodes
	}
	a, err := decode[api.WithdrawAnswer](r.Client.WithdrawRevocation(ctx, req.Lock, &params))
	return locks.WithdrawAnswer{Withdrawn: contenders(a.Withdrawn), Not: each(a.Unreached, unreached), More: a.More}, err
}

// Break ends one contender.
func (r Remote) Break(ctx context.Context, req locks.BreakRequest) (err error) {
	if req.ID != "" {
		_, err = read(r.Client.BreakLease(ctx, req.ID, api.BreakRequest{Reason: req.Reason}))
	} else {
		_, err = read(r.Client.BreakContender(ctx, req.Lock, req.Name, api.EndRequest{NS: req.NS, Reason: req.Reason}))
	}
	return err
}

// Reap ends what is old.
func (r Remote) Reap(ctx context.Context, req locks.ReapRequest) (locks.ReapAnswer, error) {
	a, err := decode[api.ReapAnswer](r.Client.Reap(ctx, req.Lock, api.ReapRequest{
		NS: req.NS, OlderThan: req.OlderThan.String(), Mode: api.Mode(req.Mode), State: api.LivingState(req.State), Owner: req.Owner,
		Foreign: req.Foreign, LeaseIDs: req.Shown.LeaseIDs, Znodes: req.Shown.Znodes, DryRun: req.DryRun, Reason: req.Reason,
	}))
	return locks.ReapAnswer{Reaped: contenders(a.Reaped), Not: each(a.Unreached, unreached), DryRun: a.DryRun, More: a.More}, err
}

// Destroy ends every contender of a queue.
func (r Remote) Destroy(ctx context.Context, req locks.DestroyRequest) (locks.DestroyAnswer, error) {
	a, err := decode[api.DestroyAnswer](r.Client.Destroy(ctx, req.Lock,
		api.DestroyRequest{NS: req.NS, LeaseIDs: req.Shown.LeaseIDs, Znodes: req.Shown.Znodes, Reason: req.Reason}))
	return locks.DestroyAnswer{Ended: a.Ended, Foreign: a.Foreign}, err
}

func lastOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
