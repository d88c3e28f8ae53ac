package connlimit

import "time"

// The scopes in which the longest quiet connection is looked for. A connection is in a list of each.
const (
	ofAll = iota
	ofAddress
	ofUnwatched // a list of its own: no scope
)

// quiet are the quiet connections of one scope.
type quiet struct{ fresh, idle list }

func (q *quiet) list(s state) *list {
	if s == fresh {
		return &q.fresh
	}
	return &q.idle
}

func (q *quiet) add(c *conn, scope int)    { q.list(c.state).push(c, scope) }
func (q *quiet) remove(c *conn, scope int) { q.list(c.state).remove(c, scope) }

// longest is the connection that has been quiet for the longest time, nil when none is.
func (q *quiet) longest(now time.Time) *conn {
	c := q.idle.first
	if f := q.fresh.first; f != nil && now.Sub(f.since) >= grace && (c == nil || f.since.Before(c.since)) {
		return f
	}
	return c
}

// list are connections in the order in which they became quiet. Its links are in the connections themselves.
type list struct{ first, last *conn }

type link struct {
	prev, next *conn
	in         bool
}

// listed reports whether the connection is in the lists.
func (c *conn) listed() bool { return c.links[ofAll].in }

func (l *list) push(c *conn, scope int) {
	c.links[scope] = link{prev: l.last, in: true}
	if l.last != nil {
		l.last.links[scope].next = c
	} else {
		l.first = c
	}
	l.last = c
}

func (l *list) remove(c *conn, scope int) {
	at := c.links[scope]
	if at.prev != nil {
		at.prev.links[scope].next = at.next
	} else {
		l.first = at.next
	}
	if at.next != nil {
		at.next.links[scope].prev = at.prev
	} else {
		l.last = at.prev
	}
	c.links[scope] = link{}
}

// drop is remove for a connection that need not be in the list.
func (l *list) drop(c *conn, scope int) {
	if c.links[scope].in {
		l.remove(c, scope)
	}
}
