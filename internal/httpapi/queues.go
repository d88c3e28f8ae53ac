package httpapi

import (
	"net/http"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// maxLockCursor bounds a cursor of the list of locks, which is as long as the directory before the page.
const maxLockCursor = 8192

// locksForm is the fields of a list of locks.
type locksForm struct{ filter locks.LockFilter }

func (*locksForm) names() []string {
	return []string{"ns", "prefix", "contains", "state", "limit", "cursor"}
}

func (f *locksForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "ns":
		f.filter.NS, p = namespace(v)
	case "prefix":
		f.filter.Prefix, p = text(name, v, maxLockPattern)
	case "contains":
		f.filter.Contains, p = text(name, v, maxLockPattern)
	case "state":
		var state string
		state, p = choice(name, v, string(locks.LockHeld), string(locks.LockUnclaimed), string(locks.LockQueued), string(locks.LockDelayed))
		f.filter.State = locks.LockState(state)
	case "limit":
		f.filter.Limit, p = integer(name, v, 1, locks.MaxPage)
	case "cursor":
		f.filter.Cursor, p = opaque(name, v, maxLockCursor)
	default:
		return false, nil
	}
	return true, p
}

func (x *exchange) listLocks() {
	form := locksForm{filter: locks.LockFilter{Principal: locks.Anonymous, Limit: locks.DefaultPage}}
	if p := x.fields(&form, 0); p != nil {
		x.problem(p)
		return
	}
	page, err := x.s.locks.Locks(x.r.Context(), form.filter)
	if err != nil {
		x.fail(err)
		return
	}
	list := api.LockList{Items: make([]api.Lock, len(page.Items)), NextCursor: page.NextCursor}
	for i := range page.Items {
		list.Items[i] = lockShape(&page.Items[i])
	}
	x.answer(http.StatusOK, &list)
}

// lockForm is the fields of a look at a queue.
type lockForm struct {
	req    locks.LockRequest
	format string
}

func (*lockForm) names() []string {
	return []string{"ns", "wait", "since", "consistent", "limit", "cursor", "format"}
}

func (f *lockForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "ns":
		f.req.NS, p = namespace(v)
	case "wait":
		f.req.Wait, p = duration(name, v, 0, locks.MaxPollWait)
	case "since":
		f.req.Since, p = opaque(name, v, 128)
	case "consistent":
		f.req.Consistent, p = boolean(name, v)
	case "limit":
		f.req.Limit, p = integer(name, v, 1, locks.MaxPage)
	case "cursor":
		f.req.Cursor, p = opaque(name, v, 1024)
	case "format":
		f.format, p = choice(name, v, "json", "text")
	default:
		return false, nil
	}
	return true, p
}

func (x *exchange) getLock() {
	form := lockForm{req: locks.LockRequest{Principal: locks.Anonymous, NS: locks.DefaultNamespace, Limit: locks.DefaultPage}}
	var p *problem
	if form.req.Lock, p = x.lockName(); p == nil {
		p = x.fields(&form, 0)
	}
	if p != nil {
		x.problem(p)
		return
	}
	x.ns = form.req.NS
	ctx := x.r.Context()
	var unpark func()
	if form.req.Wait > 0 {
		if ctx, unpark, p = x.park(); p != nil {
			x.problem(p)
			return
		}
	}
	lock, err := x.s.locks.Lock(ctx, form.req)
	if unpark != nil {
		unpark()
	}
	switch {
	case err != nil:
		x.fail(err)
		return
	case unpark != nil && x.s.drained.Err() != nil:
		// What changed is most likely that those who waited here have left the
		// line. They come back; so should whoever watches.
		x.problem(draining())
		return
	}
	x.Header()["Etag"] = []string{`"` + lock.Rev + `"`}
	if form.format == "text" || form.format == "" && prefersText(x.r.Header) {
		x.out.Reset()
		writeTable(&x.out, &lock)
		x.send(http.StatusOK, typeText)
		return
	}
	shape := lockShape(&lock)
	x.answer(http.StatusOK, &shape)
}
