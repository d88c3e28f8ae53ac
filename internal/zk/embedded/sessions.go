package embedded

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// session is what the server knows of a session beside its state: when it ends and which connection carries it.
type session struct {
	id       int64
	timeout  int64 // ms, as negotiated by its newest connection
	deadline int64 // ms of the core's time, a multiple of the tick: then it is over
	queued   int64 // the bucket it waits in, by its deadline
	conn     *conn // nil while it has none
}

// sessions are all living sessions, by id and in the order of their ends. As in ZooKeeper, ends are rounded up to ticks, so
// that one bucket of sessions is looked at in each tick and touching a session costs nothing. A session that was touched
// moves when its old bucket is due.
type sessions struct {
	tick    int64 // ms
	byID    map[int64]*session
	buckets map[int64][]*session
	swept   int64 // the newest bucket that was looked at
	nextID  newestIDs
	secret  []byte
}

func newSessions(tick int64, secret []byte, newest newestIDs, now int64) *sessions {
	return &sessions{
		tick:    tick,
		byID:    make(map[int64]*session),
		buckets: make(map[int64][]*session),
		nextID: newestIDs{
			remote: max(firstSession(remoteServer, now), newest.remote+1),
			local:  max(firstSession(localServer, now), newest.local+1),
		},
		secret: secret,
	}
}

// firstSession is where ids begin that are given from now on: the server's number in the first byte, five bytes of the time
// in milliseconds, and two bytes to count. Ids are so hardly ever given twice, also when the store is lost.
func firstSession(server, now int64) int64 { return server<<56 | int64(uint64(now)<<24>>8) }

// open begins a new session.
func (t *sessions) open(now, timeout int64, local bool) *session {
	next := &t.nextID.remote
	if local {
		next = &t.nextID.local
	}
	s := t.add(*next, now, timeout)
	*next++
	return s
}

// add puts a session in that is known from before, with its whole timeout.
func (t *sessions) add(id, now, timeout int64) *session {
	s := &session{id: id, timeout: timeout}
	t.byID[id] = s
	t.touch(s, now)
	return s
}

// touch puts a session's end off: it was heard of at the time now. That may be long ago, but a bucket that was looked at is
// not looked at again.
func (t *sessions) touch(s *session, now int64) {
	s.deadline = max(t.roundUp(now+s.timeout), t.swept+t.tick)
	if s.queued == 0 || s.deadline < s.queued {
		t.enqueue(s)
	}
}

// roundUp is the first tick after a time, as ExpiryQueue has it.
func (t *sessions) roundUp(at int64) int64 { return (at/t.tick + 1) * t.tick }

func (t *sessions) enqueue(s *session) {
	s.queued = s.deadline
	t.buckets[s.queued] = append(t.buckets[s.queued], s)
}

func (t *sessions) remove(s *session) {
	delete(t.byID, s.id)
	s.queued = -1 // what is in its bucket is no longer it
}

// due removes and returns the sessions that are over at the time now, in the order of their ends and ids.
func (t *sessions) due(now int64) []*session {
	var ended []*session
	for ; t.swept+t.tick <= now; t.swept += t.tick {
		bucket := t.swept + t.tick
		waiting := t.buckets[bucket]
		delete(t.buckets, bucket)
		first := len(ended)
		for _, s := range waiting {
			switch {
			case s.queued != bucket: // it is elsewhere, or over
			case s.deadline > bucket:
				t.enqueue(s)
			default:
				t.remove(s)
				ended = append(ended, s)
			}
		}
		slices.SortFunc(ended[first:], func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	}
	return ended
}

// forgive puts all ends off because the server itself stood still for a time until now. No session gets more than a whole
// timeout from now on.
func (t *sessions) forgive(late, now int64) {
	late = t.roundUp(late)
	for _, s := range t.byID {
		s.deadline = max(s.deadline, min(s.deadline+late, t.roundUp(now+s.timeout)))
	}
}

// password is what a client proves with that a session is its own.
func (t *sessions) password(id int64) []byte {
	mac := hmac.New(sha256.New, t.secret)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(id)))
	return mac.Sum(nil)[:16]
}

// find is the session with this id and password; nil when there is none.
func (t *sessions) find(id int64, password []byte) *session {
	if !hmac.Equal(t.password(id), password) {
		return nil
	}
	return t.byID[id]
}
