package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// queues are the operations that show locks.
type queues struct {
	locks Queues
	s     *Server
}

type listInput struct {
	locks.LockFilter
	format string // "text" or "json"
}

var listLocks = operation[listInput]{fields: []field[listInput]{
	{name: "ns", in: inQuery, to: func(l *listInput) any { return &l.NS }},
	{name: "prefix", in: inQuery, zero: true, to: func(l *listInput) any { return &l.Prefix }},
	{name: "contains", in: inQuery, zero: true, to: func(l *listInput) any { return &l.Contains }},
	{name: "owner", in: inQuery, to: func(l *listInput) any { return &l.Owner }},
	{name: "host", in: inQuery, to: func(l *listInput) any { return &l.Host }},
	{name: "mode", in: inQuery, to: func(l *listInput) any { return &l.Mode }},
	{name: "acquire_reason", in: inQuery, to: func(l *listInput) any { return &l.Purpose }},
	{name: "state", in: inQuery, to: func(l *listInput) any { return &l.State }},
	{name: "sort", in: inQuery, to: func(l *listInput) any { return (*string)(&l.Sort) }},
	{name: "limit", in: inQuery, to: func(l *listInput) any { return &l.Limit }},
	{name: "cursor", in: inQuery, to: func(l *listInput) any { return (*cursor)(&l.Cursor) }},
	{name: "format", in: inQuery, to: func(l *listInput) any { return oneOf{&l.format, []string{"json", "text"}} }},
}}

func (q *queues) listLocks(x *exchange) error {
	in := listInput{LockFilter: locks.LockFilter{Principal: x.principal(), Limit: locks.DefaultPage}}
	if err := decode(x, &listLocks, &in); err != nil {
		return err
	}
	others := q.ofOthers(x, &in.LockFilter)
	page, err := q.locks.Locks(x.r.Context(), in.LockFilter)
	if err != nil {
		return err
	}
	items := each(page.Items, lockShape)
	for i := range items {
		if seen, there := others.locks[items[i].Lock]; there {
			items[i] = seen // it has the owners
		}
	}
	listed(x, items, func(l *api.Lock) (string, string) { return l.Lock, l.Rev }, others.unreached, page.NextCursor)
	if in.format == "text" || in.format == "" && prefersText(x.r.Header) {
		x.out.Reset()
		writeLocks(&x.out, &page)
		return x.send(http.StatusOK, typeText)
	}
	return x.answer(&api.LockList{Items: items, NextCursor: page.NextCursor, Unreached: others.unreached})
}

// ofOthers is what other gateways say of the locks of an owner or a host.
type ofOthers struct {
	locks     map[string]api.Lock // by name
	unreached []api.UnreachedGateway
}

// ofOthers asks the other gateways where a list is limited to an owner or a host: of the leases that they run, they alone know that
// for certain. Of a sorted list each is asked for its first MaxPage locks, since this gateway's order decides.
func (q *queues) ofOthers(x *exchange, f *locks.LockFilter) (o ofOthers) {
	if f.Owner == "" && f.Host == "" || f.Check() != nil {
		return o
	}
	query := x.query()
	query.Del("format")
	if f.Sort != "" {
		query.Del("sort")
		query.Del("cursor")
		query.Set("limit", strconv.Itoa(locks.MaxPage))
	}
	var elsewhere locks.Elsewhere
	o.locks = map[string]api.Lock{}
	o.unreached = askOthers(x.r.Context(), q.s.forwarder.fleet, q.s.locks, askedBy(x), http.MethodGet, x.r.URL.Path+"?"+query.Encode(), func(list *api.LockList) {
		for i := range list.Items {
			elsewhere.Names = append(elsewhere.Names, list.Items[i].Lock)
			o.locks[list.Items[i].Lock] = list.Items[i]
		}
		if n := len(list.Items); n > 0 && list.NextCursor != "" && f.Sort == "" && (elsewhere.To == "" || list.Items[n-1].Lock < elsewhere.To) {
			elsewhere.To = list.Items[n-1].Lock
		}
	})
	if len(elsewhere.Names) > 0 {
		f.Elsewhere = &elsewhere
	}
	return o
}

type lockInput struct {
	locks.LockRequest
	poll
	format string // "text" or "json"
}

var lockUntil = []string{untilFree, untilChanged}

var getLock = operation[lockInput]{fields: slices.Concat([]field[lockInput]{
	{name: "lock", in: inPath, to: func(l *lockInput) any { return (*lockName)(&l.Lock) }},
	{name: "ns", in: inQuery, preset: locks.DefaultNamespace, to: func(l *lockInput) any { return &l.NS }},
	{name: "consistent", in: inQuery, to: func(l *lockInput) any { return &l.Consistent }},
	{name: "limit", in: inQuery, to: func(l *lockInput) any { return &l.Limit }},
	{name: "cursor", in: inQuery, to: func(l *lockInput) any { return (*cursor)(&l.Cursor) }},
	{name: "format", in: inQuery, to: func(l *lockInput) any { return oneOf{&l.format, []string{"json", "text"}} }},
}, pollFields(func(l *lockInput) *time.Duration { return &l.Wait }, func(l *lockInput) *string { return &l.Since }, func(l *lockInput) *poll { return &l.poll }, lockUntil...))}

func (q *queues) getLock(x *exchange) error {
	in := lockInput{LockRequest: locks.LockRequest{Principal: x.principal(), Limit: locks.DefaultPage}}
	if err := decode(x, &getLock, &in); err != nil {
		return err
	}
	if err := in.check(in.Wait, in.Since, lockUntil...); err != nil {
		return err
	}
	ctx, end, err := x.takePlace(in.Wait)
	if err != nil {
		return err
	}
	lock, err := await(&in.poll, in.Wait, in.Since, func(wait time.Duration, since string) (locks.Lock, error) {
		in.Wait, in.Since = wait, since
		return q.locks.Lock(ctx, in.LockRequest)
	}, in.free)
	end()
	switch {
	case err != nil:
		return err
	case x.wait > 0 && q.s.drained.Err() != nil:
		// What changed is most likely that the clients that waited here have left the queue. They come back, and so should
		// this one.
		return draining()
	}
	x.tag(lock.Rev)
	x.next(lock.NextCursor)
	x.open = true
	if in.format == "text" || in.format == "" && prefersText(x.r.Header) {
		x.out.Reset()
		writeTable(&x.out, &lock)
		return x.send(http.StatusOK, typeText)
	}
	return x.answer(new(lockShape(&lock)))
}
