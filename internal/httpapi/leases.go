package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// leases are the operations of clients on their leases.
type leases struct {
	locks Leases
	s     *Server
}

// tokenMissing is the refusal of a request that needs a lease token.
var tokenMissing = &problem{code: code(locks.CodeTokenMissing), detail: "send the token that came with the lease in the Lease-Token header"}

// bearer is a lease and its token.
type bearer struct{ id, token string }

// ofBearer are the fields of an operation on a lease by its client.
func ofBearer[T any](at func(*T) *bearer, more ...field[T]) []field[T] {
	return append([]field[T]{
		{name: "id", in: inPath, to: func(t *T) any { return (*leaseOrSelf)(&at(t).id) }},
		{name: "Lease-Token", in: inHeader, zero: true, missing: tokenMissing, to: func(t *T) any { return (*secret)(&at(t).token) }},
	}, more...)
}

type leaseInput struct {
	locks.LeaseRequest
	poll
}

var leaseUntil = []string{untilGranted, untilEnded, untilChanged}

var getLease = operation[leaseInput]{fields: slices.Concat([]field[leaseInput]{
	{name: "id", in: inPath, to: func(l *leaseInput) any { return (*leaseOrSelf)(&l.ID) }},
	{name: "Lease-Token", in: inHeader, zero: true, to: func(l *leaseInput) any { return (*secret)(&l.Token) }},
	{name: "verify", in: inQuery, to: func(l *leaseInput) any { return &l.Verify }},
}, pollFields(func(l *leaseInput) *time.Duration { return &l.Wait }, func(l *leaseInput) *string { return &l.Since }, func(l *leaseInput) *poll { return &l.poll }, leaseUntil...))}

func (l *leases) getLease(x *exchange) error {
	in := leaseInput{LeaseRequest: locks.LeaseRequest{Principal: x.principal()}}
	if err := decode(x, &getLease, &in); err != nil {
		return err
	}
	if in.ID == "" && in.Token == "" {
		return tokenMissing
	}
	if err := in.check(in.Wait, in.Since, leaseUntil...); err != nil {
		return err
	}
	ctx, end, err := x.takePlace(in.Wait)
	if err != nil {
		return err
	}
	lease, err := await(&in.poll, in.Wait, in.Since, func(wait time.Duration, since string) (locks.Lease, error) {
		in.Wait, in.Since = wait, since
		looked := time.Since(x.started) // the manager counts Waited from this look
		lease, err := l.locks.Lease(ctx, in.LeaseRequest)
		if lease.WaitedKnown {
			lease.Waited += looked
		}
		return lease, err
	}, in.reached)
	end()
	return show(x, &lease, err)
}

// show answers with a lease as it is.
func show(x *exchange, lease *locks.Lease, err error) error {
	if err != nil {
		return err
	}
	x.line.lease, x.line.lock, x.line.ns, x.line.owner = lease.ID, lease.Lock, lease.NS, lease.Owner
	lease.Token = "" // also if the manager filled it
	if x.tag(lease.Rev); lease.State == locks.Waiting {
		x.shown = "" // its rev does not change with its place in the queue
	}
	x.encodeLease(lease)
	// A client that waits and sends its token relies on its place for expires_in_ms.
	waits := lease.State == locks.Waiting && len(x.r.Header["Lease-Token"]) > 0
	if lease.State == locks.Held || waits {
		return x.confirmed(lease.Term, http.StatusOK, typeJSON)
	}
	return x.send(http.StatusOK, typeJSON)
}

type heartbeatInput struct {
	bearer
	ttl, wait time.Duration
}

var heartbeat = operation[heartbeatInput]{body: maxBody, fields: ofBearer(func(h *heartbeatInput) *bearer { return &h.bearer },
	field[heartbeatInput]{name: "ttl", to: func(h *heartbeatInput) any { return &h.ttl }},
	field[heartbeatInput]{name: "wait", in: inQuery, zero: true, to: func(h *heartbeatInput) any { return &h.wait }},
)}

func (l *leases) heartbeat(x *exchange) error {
	var in heartbeatInput
	if err := decode(x, &heartbeat, &in); err != nil {
		return err
	}
	if err := locks.CheckPollWait(in.wait); err != nil {
		return err
	}
	renewed, err := l.locks.Heartbeat(x.r.Context(), x.principal(), in.id, in.token, in.ttl)
	x.tell(in.token, err)
	if to := ownerIn(err); x.s.forwarder.may(x, to) {
		// Renewed at once; only then the lease's gateway is asked to hold its answer. It may stop meanwhile.
		answer, failed := x.s.forwarder.ask(x, to)
		if x.wait = in.wait; failed == nil && x.wait > 0 && answer.Status == http.StatusOK {
			held, late := x.s.forwarder.ask(x, to)
			if late == nil || problemOf(late).code != codeTooManyWaiting {
				answer, failed = held, late
			}
		}
		if failed == nil {
			return x.s.forwarder.pass(x, answer)
		}
		renewed, err = x.s.forwarder.standIn(x, failed, in.token, in.ttl)
	} else if err == nil && in.wait > 0 {
		renewed, err = l.awaitChange(x, &in, renewed)
	}
	if err != nil {
		return err
	}
	x.encodeHeartbeat(&renewed)
	return x.confirmed(renewed.Term, http.StatusOK, typeJSON)
}

// awaitChange holds the answer to a heartbeat that has renewed its lease. It answers at once when too many requests wait.
func (l *leases) awaitChange(x *exchange, in *heartbeatInput, renewed locks.Heartbeat) (locks.Heartbeat, error) {
	ctx, end, err := x.takePlace(in.wait)
	if err != nil {
		return renewed, nil
	}
	defer end()
	return l.locks.AwaitChange(ctx, x.principal(), in.id, in.token, in.wait)
}

// tokensInput are secrets in a body.
type tokensInput []string

func (t *tokensInput) read(name string, v value) error {
	switch {
	case v.source == fromQuery:
		return malformed("tokens are secrets: they travel in the body, never in a URL")
	case v.kind != isList || len(v.list) == 0:
		return invalid(name, "tokens must be an array of lease tokens")
	case len(v.list) > locks.MaxHeartbeats:
		return invalid(name, "tokens must have at most 1000: send several requests")
	}
	*t = v.list
	return nil
}

var heartbeatMany = operation[tokensInput]{body: largeBody, fields: []field[tokensInput]{
	{name: "tokens", to: func(t *tokensInput) any { return t }, missing: invalid("tokens", "send {\"tokens\": [...]} as application/json")},
}}

func (l *leases) heartbeatMany(x *exchange) error {
	var tokens tokensInput
	if err := decode(x, &heartbeatMany, &tokens); err != nil {
		return err
	}
	results := l.locks.Heartbeats(x.r.Context(), x.principal(), tokens)
	list := api.HeartbeatList{Items: make([]api.HeartbeatItem, len(results))}
	var terms []locks.Term // one for all, unless some were renewed in their owner's place
	for i := range results {
		list.Items[i] = heartbeatItem(&results[i])
		if term := results[i].Heartbeat.Term; results[i].Err == nil && !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	if elsewhere := x.s.forwarder.elsewhere(x, results); len(elsewhere) > 0 {
		more, err := x.s.forwarder.renewElsewhere(x, elsewhere, tokens, list.Items)
		if err != nil {
			return err
		}
		terms = append(terms, more...)
	}
	x.encode(&list)
	if slices.ContainsFunc(terms, func(b locks.Term) bool { return !l.s.locks.StillValid(b) }) {
		return x.notConfirmed()
	}
	return x.send(http.StatusOK, typeJSON)
}

type releaseInput struct {
	bearer
	hold string
	done string
}

var release = operation[releaseInput]{fields: ofBearer(func(r *releaseInput) *bearer { return &r.bearer },
	field[releaseInput]{name: "done", in: inQuery, to: func(r *releaseInput) any { return oneOf{&r.done, []string{"true", "false"}} }},
	field[releaseInput]{name: "hold", in: inQuery, to: func(r *releaseInput) any { return &r.hold }}, // an empty one would release everything
)}

// context is that of the release: it says where the work of the lease's period was not done.
func (r *releaseInput) context(x *exchange) context.Context {
	if r.done == "false" {
		return locks.WithUndone(x.traced())
	}
	return x.traced()
}

func (l *leases) release(x *exchange) error {
	var in releaseInput
	err := decode(x, &release, &in)
	switch {
	case err != nil:
		return err
	case in.hold == "":
		err = l.locks.Release(in.context(x), x.principal(), in.id, in.token)
	default:
		err = l.locks.ReleaseHold(x.traced(), x.principal(), in.id, in.token, in.hold)
	}
	x.tell(in.token, err)
	if to := ownerIn(err); in.hold == "" && x.s.forwarder.may(x, to) {
		answer, failed := x.s.forwarder.ask(x, to)
		if failed == nil {
			return x.s.forwarder.pass(x, answer)
		}
		err = x.s.forwarder.releaseFor(x, in.context(x), failed, in.token)
	}
	return x.done(err)
}

var listLeases = operation[locks.LeaseFilter]{fields: []field[locks.LeaseFilter]{
	{name: "ns", in: inQuery, to: func(f *locks.LeaseFilter) any { return &f.NS }},
	{name: "owner", in: inQuery, zero: true, to: func(f *locks.LeaseFilter) any { return &f.Owner }},
	{name: "host", in: inQuery, to: func(f *locks.LeaseFilter) any { return &f.Host }},
	{name: "acquire_reason", in: inQuery, to: func(f *locks.LeaseFilter) any { return &f.Purpose }},
	{name: "state", in: inQuery, to: func(f *locks.LeaseFilter) any { return &f.State }},
	{name: "limit", in: inQuery, to: func(f *locks.LeaseFilter) any { return &f.Limit }},
	{name: "cursor", in: inQuery, to: func(f *locks.LeaseFilter) any { return (*cursor)(&f.Cursor) }},
}}

func (l *leases) listLeases(x *exchange) error {
	filter := locks.LeaseFilter{Principal: x.principal(), Limit: locks.DefaultPage}
	if err := decode(x, &listLeases, &filter); err != nil {
		return err
	}
	page, err := l.locks.Leases(x.r.Context(), filter)
	if err != nil {
		return err
	}
	list := api.LeaseList{Items: each(page.Items, leaseShape), NextCursor: page.NextCursor}
	pages := []api.LeaseList{list}
	list.Unreached = askOthers(x.r.Context(), l.s.forwarder.fleet, l.s.locks, askedBy(x), http.MethodGet, x.r.URL.RequestURI(), func(more *api.LeaseList) {
		pages = append(pages, *more)
	})
	list.Items, list.NextCursor = oneLeasePage(pages, filter.Limit)
	for i := range list.Items {
		list.Items[i].Token = "" // whatever the manager says
	}
	listed(x, list.Items, func(l *api.Lease) (string, string) {
		rev := l.Rev + " " + strconv.Itoa(l.Position)
		if l.QueueLength != nil {
			rev += " " + strconv.Itoa(*l.QueueLength)
		}
		return l.LeaseID, rev
	}, list.Unreached, list.NextCursor)
	return x.answer(&list)
}

// ShowLeasesElsewhere are the leases of an owner, or of a host, that other gateways run, for a page: MaxPage of each gateway at most;
// more says that there are others. All of them are asked for, and the page has to leave out what its viewer may not read.
func (s *Server) ShowLeasesElsewhere(ctx context.Context, owner, host string) (list []api.Lease, more bool, unreached []api.UnreachedGateway) {
	query := url.Values{"limit": {strconv.Itoa(locks.MaxPage)}}
	if owner != "" {
		query.Set("owner", owner)
	} else {
		query.Set("host", host)
	}
	unreached = askOthers(ctx, s.forwarder.fleet, s.locks, s.forPage(), http.MethodGet, "/v1/leases?"+query.Encode(), func(said *api.LeaseList) {
		list = append(list, said.Items...)
		more = more || said.NextCursor != ""
	})
	return list, more, unreached
}

// oneLeasePage puts the same page of several gateways together. Where one has more, the others' later leases belong to the
// next page. A lease that two gateways list, one of which has just taken it over, is there once.
func oneLeasePage(pages []api.LeaseList, limit int) (items []api.Lease, next string) {
	if len(pages) == 1 {
		return pages[0].Items, pages[0].NextCursor
	}
	end := ""
	items = []api.Lease{} // an empty list, not null, where no gateway has a lease to show
	for _, p := range pages {
		if last := len(p.Items) - 1; p.NextCursor != "" && last >= 0 && (end == "" || p.Items[last].LeaseID < end) {
			end = p.Items[last].LeaseID
		}
		items = append(items, p.Items...)
	}
	slices.SortStableFunc(items, func(a, b api.Lease) int { return cmp.Compare(a.LeaseID, b.LeaseID) })
	items = slices.CompactFunc(items, func(a, b api.Lease) bool { return a.LeaseID == b.LeaseID })
	most := len(items)
	if end != "" {
		most = slices.IndexFunc(items, func(l api.Lease) bool { return l.LeaseID == end }) + 1
	}
	if most = min(most, limit); most < len(items) || end != "" {
		next = locks.LeaseCursor(items[most-1].LeaseID)
	}
	return items[:most], next
}

type updateInput struct {
	bearer
	locks.UpdateRequest
}

var updateLease = operation[updateInput]{body: maxBody, fields: ofBearer(func(u *updateInput) *bearer { return &u.bearer },
	field[updateInput]{name: "owner", to: func(u *updateInput) any { return &u.Owner }},
	field[updateInput]{name: "metadata", to: func(u *updateInput) any { return newMetadata{&u.Metadata} }},
	field[updateInput]{name: "ttl", to: func(u *updateInput) any { return &u.TTL }},
	field[updateInput]{name: "reason", to: func(u *updateInput) any { return &u.Purpose }},
	field[updateInput]{name: "for", to: func(u *updateInput) any { return &u.For }},
	field[updateInput]{name: "until", to: func(u *updateInput) any { return &u.Until }},
	field[updateInput]{name: "If-Match", in: inHeader, to: func(u *updateInput) any { return (*ifMatch)(&u.IfMatch) }},
)}

func (l *leases) updateLease(x *exchange) error {
	var in updateInput
	if err := decode(x, &updateLease, &in); err != nil {
		return err
	}
	in.Principal, in.ID, in.Token = x.principal(), in.id, in.token
	lease, err := l.locks.Update(x.r.Context(), in.UpdateRequest)
	x.tell(in.token, err)
	return show(x, &lease, err)
}

var downgrade = operation[bearer]{fields: ofBearer(func(b *bearer) *bearer { return b })}

func (l *leases) downgrade(x *exchange) error {
	var in bearer
	if err := decode(x, &downgrade, &in); err != nil {
		return err
	}
	lease, err := l.locks.Downgrade(x.r.Context(), x.principal(), in.id, in.token)
	x.tell(in.token, err)
	return show(x, &lease, err)
}

var getPostmortem = operation[bearer]{fields: []field[bearer]{
	{name: "id", in: inPath, to: func(b *bearer) any { return (*leaseOrSelf)(&b.id) }},
	{name: "Lease-Token", in: inHeader, zero: true, to: func(b *bearer) any { return (*secret)(&b.token) }},
}}

// getPostmortem takes the id of self out of the token. Whether the token is genuine does not matter: a postmortem needs none.
func (l *leases) getPostmortem(x *exchange) error {
	var in bearer
	if err := decode(x, &getPostmortem, &in); err != nil {
		return err
	}
	if in.id == "" {
		if in.token == "" {
			return tokenMissing
		}
		if in.id = leaseOf(in.token); in.id == "" {
			return &problem{code: code(locks.CodeTokenWrong), detail: "this is not a lease token"}
		}
		x.line.lease = in.id
	}
	postmortem, err := l.locks.Postmortem(x.r.Context(), x.principal(), in.id)
	if err != nil {
		return err
	}
	x.line.lock, x.line.ns, x.line.owner = postmortem.Lock, postmortem.NS, postmortem.Owner
	return x.answer(postmortemShape(&postmortem))
}
