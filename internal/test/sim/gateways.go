package sim

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// gateways are the processes of a run.
type gateways struct {
	mu        sync.Mutex
	current   []*gateway        // by number; nil before the first life
	lives     []int             // how many each number has had
	all       []*gateway        // every life that there was
	forwarded map[string]string // which gateway answered a request that was sent on, by its id
}

func newGateways(n int) *gateways {
	return &gateways{current: make([]*gateway, n), lives: make([]int, n), forwarded: make(map[string]string)}
}

// nextLife counts one life more.
func (s *gateways) nextLife(number int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives[number]++
	return s.lives[number]
}

// add makes g the present life of its number.
func (s *gateways) add(number int, g *gateway) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current[number] = g
	s.all = append(s.all, g)
}

// at is the present life of a number.
func (s *gateways) at(number int) *gateway {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current[number]
}

// list are the present lives, by number.
func (s *gateways) list() []*gateway {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.current), func(g *gateway) bool { return g == nil })
}

// others are the gateways besides one.
func (s *gateways) others(g *gateway) []*gateway {
	return slices.DeleteFunc(s.list(), func(o *gateway) bool { return o == g })
}

// pick chooses a gateway that has not been killed or told to leave; nil when there is none.
func (s *gateways) pick(random *rand.Rand) *gateway {
	living := slices.DeleteFunc(s.list(), func(g *gateway) bool { return g.gone.Load() })
	if len(living) == 0 {
		return nil
	}
	return living[random.IntN(len(living))]
}

// requestID is the header by which an answer can be told from others.
const requestID = "Lockkeeper-Request-Id"

// answeredBy notes which gateway answers a request that another one has sent on, by its seal.
func (s *gateways) answeredBy(seal, gateway string) {
	_, rest, sealed := strings.Cut(seal, " request=")
	if !sealed {
		return
	}
	id, _, _ := strings.Cut(rest, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forwarded[id] = gateway
}

// answerer is the gateway that has answered, where another one was asked.
func (s *gateways) answerer(answer http.Header, asked string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.forwarded[answer.Get(requestID)], asked)
}

// end lets all gateways leave and returns what every life has told.
func (s *gateways) end() (stories []story) {
	for _, g := range s.all {
		if g.gone.Load() {
			g.died.Store(true)
		}
	}
	for _, g := range s.list() {
		if g.claimEnd() {
			g.leave()
		}
	}
	for _, g := range s.list() {
		<-g.ended
	}
	time.Sleep(time.Minute) // what was cut off comes to its end
	for _, g := range s.all {
		<-g.ended
		stories = append(stories, g.remember())
	}
	return stories
}
