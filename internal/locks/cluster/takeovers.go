package cluster

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// Every client of ZooKeeper that may queue for a lock can create contenders that name gateways which never existed. Each such id
// costs one takeover, for its contender could be the lease of a gateway that died before this process started. So takeovers have
// an order and a rate: any number of such ids delays no takeover of a gateway that is known, and no write of a client. Safety
// depends on neither, for the succession is the proof.

const (
	// takeoversAtOnce bounds the takeovers under way, of known gateways and of unknown ids separately. The others wait for the
	// next look, half a second later at most.
	takeoversAtOnce = 16
	// ClaimsBurst unknown ids are taken over as fast as that allows, so that a process that starts after a whole fleet has died is
	// quick; from then on ClaimsRate of them a second.
	ClaimsBurst = 64
	ClaimsRate  = 16
	// claimsNamed bounds the unknown ids that a line of the log names.
	claimsNamed = 5
)

// standing says what this process knows of an id that has left something. The lowest goes first.
type standing int

const (
	seen    standing = iota // it was registered when this process looked, or a succession names it
	own                     // of an ended session of this process
	unknown                 // a contender carries it, and there is no other trace of it
)

// vacancy is a gateway id that waits for its takeover.
type vacancy struct {
	id         recipe.GatewayID
	standing   standing
	contenders int
}

// takeovers says which ids are taken over next. The zero value is ready to use.
type takeovers struct {
	known, strange []vacancy // that wait, as of the present look; the strange ones are unknown
	underWay       map[recipe.GatewayID]standing
	credit         int           // unknown ids that may be taken over now
	credited       time.Duration // boot: when credit was last raised; 0: never

	logged   time.Duration // boot: when the log last had a line about unknown ids; 0: never
	waiting  int           // unknown ids that the last look left waiting
	taken    int           // since then
	failed   int
	firstOf  []recipe.GatewayID // the first ones of those
	lastFail error
}

// Vacant begins the takeovers of gateways that are gone and have left contenders, as many as may begin now, and returns
// their ids. An id with neither registration nor succession is claimed only while a contender with it exists, so that an
// invented id claims nothing; the ids of this process's own ended sessions also while it has leases to settle; the end of
// a chain also while there is the chain, whose entries no other gateway would sweep. The caller knows all namespaces.
func (m *Members) Vacant(now time.Duration) (begun []recipe.GatewayID) {
	for id := range m.former {
		m.awaitTakeover(id)
	}
	for id, g := range m.byID {
		if g.Contenders > 0 || g.Entry {
			m.awaitTakeover(id)
		}
	}
	for _, v := range m.takeovers.next(now) {
		m.gateway(v.id).taking = true
		begun = append(begun, v.id)
	}
	return begun
}

// awaitTakeover puts the gateway that runs the leases of a gateway id into the line of those that are to be succeeded, if
// it is gone.
func (m *Members) awaitTakeover(id recipe.GatewayID) {
	owner, known := m.OwnerOf(id)
	if !known || owner == m.self {
		return
	}
	v := vacancy{id: owner, standing: unknown}
	if end := m.byID[owner]; end != nil {
		if end.Registered || end.taking {
			return
		}
		v.contenders = end.Contenders
		if end.seen {
			v.standing = seen
		}
	}
	if owner != id {
		v.standing = seen // a gateway wrote the succession
	} else if m.IsOwn(owner) && v.standing == unknown {
		v.standing = own
	}
	m.takeovers.wait(v)
}

// Depose begins the takeover of a stalled gateway. It is false when as many as may be are under way: the next look comes
// back to it.
func (m *Members) Depose(id recipe.GatewayID) bool {
	if !m.takeovers.room(seen) || !m.takeovers.begin(id, seen) {
		return false
	}
	m.gateway(id).taking = true
	return true
}

// EndTakeover notes how a takeover ended; deposed says that the gateway was registered. It tells whether the log gets a
// line about it alone.
func (m *Members) EndTakeover(id recipe.GatewayID, deposed bool, res zk.Result) (line bool) {
	g := m.gateway(id)
	g.taking = false
	if deposed && res.Outcome != zk.Done && hasWritten(res.Err) {
		g.Guard = GuardWatch{}
	}
	line = m.takeovers.ended(id, res)
	m.forget(id, g)
	return line
}

// hasWritten reports whether a takeover failed because the stalled gateway has written after all.
func hasWritten(err error) bool {
	return errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists)
}

// LogTakeovers writes one line about all takeovers of unknown ids since the last such line, at most one a second.
func (m *Members) LogTakeovers(log *slog.Logger, now time.Duration) { m.takeovers.log(log, now) }

// wait puts an id into the line; next empties it.
func (t *takeovers) wait(v vacancy) {
	if v.standing == unknown {
		t.strange = append(t.strange, v)
		return
	}
	t.known = append(t.known, v)
}

// next takes those out of the line whose takeovers begin now, and forgets the others: the next look finds them again.
func (t *takeovers) next(now time.Duration) []vacancy {
	known, strange := t.known, t.strange
	t.known, t.strange = nil, nil
	slices.SortFunc(known, vacancy.compare)
	var chosen []vacancy
	for _, v := range known {
		if t.room(v.standing) && t.begin(v.id, v.standing) {
			chosen = append(chosen, v)
		}
	}
	// An id that a chain leads to is known by that, and may be there for its own contenders as well.
	strange = slices.DeleteFunc(strange, func(v vacancy) bool {
		return slices.ContainsFunc(known, func(k vacancy) bool { return k.id == v.id })
	})
	t.waiting = len(strange)
	t.earn(now)
	if t.credit == 0 || len(strange) == 0 || !t.room(unknown) {
		return chosen
	}
	slices.SortFunc(strange, vacancy.compare)
	for _, v := range strange {
		if t.credit == 0 || !t.room(unknown) {
			break
		}
		if t.begin(v.id, unknown) {
			t.credit--
			t.waiting--
			chosen = append(chosen, v)
		}
	}
	return chosen
}

// compare puts the gateways first that this process knows. Of the others those with many contenders go first: a real gateway has left
// many leases, and each forged contender costs its maker a node.
func (v vacancy) compare(w vacancy) int {
	return cmp.Or(cmp.Compare(v.standing, w.standing), cmp.Compare(w.contenders, v.contenders), cmp.Compare(v.id, w.id))
}

// earn raises the credit by what the time since has brought.
func (t *takeovers) earn(now time.Duration) {
	if t.credited == 0 {
		t.credit, t.credited = ClaimsBurst, now
	}
	// By whole seconds: the line of unknown ids, which may be long, is sorted once in each.
	if seconds := (now - t.credited) / time.Second; seconds > 0 {
		t.credit = int(min(time.Duration(t.credit)+seconds*ClaimsRate, ClaimsBurst))
		t.credited += seconds * time.Second
	}
}

// room reports whether one more of that standing may be under way.
func (t *takeovers) room(s standing) bool {
	n := 0
	for _, other := range t.underWay {
		if (other == unknown) == (s == unknown) {
			n++
		}
	}
	return n < takeoversAtOnce
}

// begin notes that a takeover is under way. It is false when one of the same id was already.
func (t *takeovers) begin(id recipe.GatewayID, s standing) bool {
	if _, twice := t.underWay[id]; twice {
		return false
	}
	if t.underWay == nil {
		t.underWay = map[recipe.GatewayID]standing{}
	}
	t.underWay[id] = s
	return true
}

// ended notes how a takeover ended, and tells whether the log gets a line about it alone.
func (t *takeovers) ended(id recipe.GatewayID, res zk.Result) (line bool) {
	s := t.underWay[id]
	delete(t.underWay, id)
	if s != unknown {
		return true
	}
	if res.Outcome == zk.Done {
		t.taken++
	} else {
		t.failed++
		t.lastFail = res.Err
	}
	if len(t.firstOf) < claimsNamed {
		t.firstOf = append(t.firstOf, id)
	}
	return false
}

func (t *takeovers) log(log *slog.Logger, now time.Duration) {
	if t.taken+t.failed == 0 || t.logged != 0 && now-t.logged < time.Second {
		return
	}
	log.Info("took over leases of gateway ids that this process has never seen registered",
		"taken", t.taken, "not_done", t.failed, "waiting", t.waiting, "first", t.firstOf, "last_err", t.lastFail)
	t.logged, t.taken, t.failed, t.firstOf, t.lastFail = now, 0, 0, nil, nil
}
