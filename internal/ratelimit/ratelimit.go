package ratelimit

import (
	"container/list"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// minBurst is the least that a bucket holds: a page asks for some things at once.
	minBurst = 10
	// maxCallers bounds the callers that are remembered.
	maxCallers = 16 << 10
	// tellEvery is the least time between two refusals of a caller that are told one by one.
	tellEvery = 10 * time.Second
)

// Work is what a request is at.
type Work uint8

// The kinds of work.
const (
	Active  Work = iota // it is being answered
	Waiting             // it waits for a change
	Stream              // it is sent what happens
	works
)

// AtOnce bounds the requests of one caller at the same time, by their work. 0 stands for no bound.
type AtOnce [works]int

// Callers are those that have asked lately. Make one with New.
type Callers struct {
	most AtOnce

	mu     sync.Mutex
	byName map[string]*caller
	recent list.List // of *caller, the last that asked first
}

// caller is guarded by the mutex of its Callers.
type caller struct {
	name   string
	bucket *rate.Limiter // nil: it has no bound
	place  *list.Element
	atOnce AtOnce
	told   time.Time // when a refusal was last told
}

// New remembers no caller yet.
func New(most AtOnce) *Callers { return &Callers{most: most, byName: map[string]*caller{}} }

// Bucket is how a caller stands with its rate.
type Bucket struct {
	Rate      float64 // 0: it has no bound
	Burst     int
	Remaining int
	Retry     time.Duration // until there is one more; 0 when there is
	Full      time.Duration // until it is full
}

// Refusal is why a request is refused.
type Refusal struct {
	Bucket
	Work  Work // when the rate has room: what there is too much of,
	Most  int  // and how much of it there may be; 0: the rate is used up
	First bool // none was refused for a while: the others of a burst are worth no line each
}

// Place is one request's. The zero Place counts nothing.
type Place struct {
	of   *Callers
	who  *caller
	work Work
}

// Begin takes one request off what the caller may ask in a second, and counts it as active. perSecond 0 is no bound. Leave must
// be called when the request is over and was not refused.
func (c *Callers) Begin(name string, perSecond float64, now time.Time) (p Place, b Bucket, refused *Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	who := c.find(name)
	who.pace(perSecond, now)
	if most := c.most[Active]; most > 0 && who.atOnce[Active] >= most {
		return Place{}, b, who.refuse(Bucket{}, Active, most, now)
	}
	if who.bucket != nil {
		allowed := who.bucket.AllowN(now, 1)
		if b = who.stand(perSecond, now); !allowed {
			return Place{}, b, who.refuse(b, Active, 0, now)
		}
	}
	who.atOnce[Active]++
	return Place{c, who, Active}, b, nil
}

// Enter counts a request whose rate does not matter.
func (c *Callers) Enter(name string, w Work, now time.Time) (Place, *Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	who := c.find(name)
	if most := c.most[w]; most > 0 && who.atOnce[w] >= most {
		return Place{}, who.refuse(Bucket{}, w, most, now)
	}
	who.atOnce[w]++
	return Place{c, who, w}, nil
}

// find finds a caller, or makes room for it.
func (c *Callers) find(name string) *caller {
	if who := c.byName[name]; who != nil {
		c.recent.MoveToFront(who.place)
		return who
	}
	for e := c.recent.Back(); e != nil && len(c.byName) >= maxCallers; {
		who, before := e.Value.(*caller), e.Prev()
		if idle := (AtOnce{}); who.atOnce == idle {
			c.recent.Remove(e)
			delete(c.byName, who.name)
		}
		e = before
	}
	who := &caller{name: strings.Clone(name)} // the text may be a part of a request
	who.place = c.recent.PushFront(who)
	c.byName[who.name] = who
	return who
}

// pace gives the caller the rate that it has now: its roles may have changed.
func (who *caller) pace(perSecond float64, now time.Time) {
	limit := rate.Limit(perSecond)
	switch {
	case perSecond == 0:
		who.bucket = nil
	case who.bucket == nil:
		who.bucket = rate.NewLimiter(limit, burst(perSecond))
	case who.bucket.Limit() != limit:
		who.bucket.SetLimitAt(now, limit)
		who.bucket.SetBurstAt(now, burst(perSecond))
	}
}

func burst(perSecond float64) int {
	return int(min(max(math.Ceil(perSecond), minBurst), math.MaxInt32))
}

// Ask says how the caller stands with its rate, and takes nothing: of a caller that is not known, as one that has asked for
// nothing.
func (c *Callers) Ask(name string, perSecond float64, now time.Time) Bucket {
	c.mu.Lock()
	defer c.mu.Unlock()
	who := c.byName[name]
	if who == nil || who.bucket == nil {
		return Bucket{Rate: perSecond, Burst: burst(perSecond), Remaining: burst(perSecond)}
	}
	return who.stand(float64(who.bucket.Limit()), now)
}

// stand is how the caller stands with its rate, which its bucket has.
func (who *caller) stand(perSecond float64, now time.Time) Bucket {
	tokens := max(who.bucket.TokensAt(now), 0)
	b := Bucket{Rate: perSecond, Burst: burst(perSecond), Remaining: int(tokens)}
	after := func(missing float64) time.Duration {
		return time.Duration(math.Ceil(max(missing, 0) / b.Rate * float64(time.Second)))
	}
	b.Retry, b.Full = after(1-tokens), after(float64(b.Burst)-tokens)
	return b
}

func (who *caller) refuse(b Bucket, w Work, most int, now time.Time) *Refusal {
	r := &Refusal{Bucket: b, Work: w, Most: most, First: who.told.IsZero() || now.Sub(who.told) >= tellEvery}
	if r.First {
		who.told = now
	}
	return r
}

// Counts reports whether the place is a request's.
func (p *Place) Counts() bool { return p.of != nil }

// Move makes the request one of another kind of work, unless the caller has as much of it as it may have: then it stays what it
// is.
func (p *Place) Move(to Work, now time.Time) *Refusal {
	if p.of == nil || p.work == to {
		return nil
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if most := p.of.most[to]; most > 0 && to != Active && p.who.atOnce[to] >= most {
		return p.who.refuse(Bucket{}, to, most, now)
	}
	p.who.atOnce[p.work]--
	p.who.atOnce[to]++
	p.work = to
	return nil
}

// Leave ends the request. A second call does nothing.
func (p *Place) Leave() {
	if p.of == nil {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.who.atOnce[p.work]--
	p.of = nil
}
