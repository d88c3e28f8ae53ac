package history

import "time"

// What names are of. The numbers are in the store.
const (
	lockNames = 1 // namespace and lock
	owners    = 2 // owner and host
	word      = 3 // gateways, principals, programs
)

// maxNames bounds the names that the writer knows by heart.
const maxNames = 1 << 16

// seenEvery is how exact names.seen is, in microseconds: a name is deleted when the oldest row is that much younger.
const seenEvery = int64(time.Hour / time.Microsecond)

type name struct {
	kind int
	a, b string
}

type known struct{ id, seen int64 }

// names are the names that the writer knows by heart.
type names struct{ ids map[name]known }

// forget forgets them: they are read again.
func (n *names) forget() { n.ids = nil }

// name is the number of a name.
func (t *transaction) name(kind int, a, b string) int64 {
	n := name{kind, a, b}
	now := t.now.UnixMicro()
	k, ok := t.w.names.ids[n]
	if ok && now-k.seen < seenEvery {
		return k.id
	}
	t.find(`INSERT INTO names(kind, a, b, seen) VALUES(?,?,?,?) ON CONFLICT(kind, a, b) DO UPDATE SET seen = excluded.seen RETURNING id`,
		[]any{kind, a, b, now}, &k.id)
	if t.err != nil {
		return 0
	}
	if t.w.names.ids == nil || len(t.w.names.ids) >= maxNames {
		t.w.names.ids = map[name]known{}
	}
	t.w.names.ids[n] = known{k.id, now}
	return k.id
}
