package access

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verb is one thing that a grant allows.
type Verb uint8

// The verbs.
const (
	Read    Verb = iota // see a lock, its leases, its events
	Acquire             // take a lock, ask its holders to release it. Implies Read
	Operate             // end the leases of others, set a lock's limit. Implies Read
	Admin               // what has no lock: all webhooks, tokens, the secret. Implies no other verb
	verbs               // how many there are
)

var verbNames = [verbs]string{"read", "acquire", "operate", "admin"}

// String is the verb's name in the rules and in errors.
func (v Verb) String() string {
	if v < verbs {
		return verbNames[v]
	}
	return fmt.Sprintf("verb(%d)", uint8(v))
}

// ParseVerb reads the name of a verb.
func ParseVerb(name string) (Verb, error) {
	if at := slices.Index(verbNames[:], name); at >= 0 {
		return Verb(at), nil
	}
	return 0, fmt.Errorf("there is no verb %q; verbs are %s", name, strings.Join(verbNames[:], ", "))
}

// Grant gives verbs for the locks that match. A bound of 0 stands for none; it bounds what the verb acquire of this grant
// allows.
type Grant struct {
	NS, Locks string // globs; "*" for all
	Verbs     []Verb
	MaxTTL    time.Duration // longest time to live of a lease
	Leases    int           // leases that the principal may have at a time
	Rate      float64       // requests of the principal per second, whatever they are about
	// NotifyHosts are globs of the hosts that a lease's notify_url may name. nil: every host; an empty list: none.
	NotifyHosts []string
}

// minTTL is the shortest time to live of a lease, as locks.MinTTL has it.
const minTTL = time.Second

// Limits bounds what a principal may acquire. 0 stands for no bound.
type Limits struct {
	MaxTTL time.Duration
	Leases int
}

// set is a set of verbs.
type set uint8

func (s set) has(v Verb) bool { return s>>v&1 != 0 }

// All is every verb.
func All() []Verb { return []Verb{Read, Acquire, Operate, Admin} }

// Rules is what one principal may do. A nil *Rules allows nothing.
type Rules struct {
	grants  []rule
	all     set     // verbs that a grant gives for every lock in every namespace
	rate    float64 // the highest of those that have one
	unrated bool    // a grant has none
	bounded bool    // a grant has limits
	key     string
}

type rule struct {
	ns, locks string
	verbs     set
	limits    Limits
	rate      float64
	fewHosts  bool   // a notify_url may name the hosts alone
	hosts     string // their globs, with spaces between
}

// New compiles grants. The error says which one is wrong, counted from 1.
func New(grants ...Grant) (*Rules, error) {
	rules := make([]rule, 0, len(grants))
	for i := range grants {
		r, err := grants[i].compile()
		if err != nil {
			return nil, fmt.Errorf("grant %d: %w", i+1, err)
		}
		rules = append(rules, r)
	}
	return compiled(rules), nil
}

var everything = compiled([]rule{{ns: "*", locks: "*", verbs: 1<<verbs - 1}})

// Everything allows all verbs for all locks, without bounds.
func Everything() *Rules { return everything }

// Check says what is wrong with the grant.
func (g *Grant) Check() error {
	_, err := g.compile()
	return err
}

func (g *Grant) compile() (rule, error) {
	r := rule{ns: g.NS, locks: g.Locks, limits: Limits{g.MaxTTL, g.Leases}, rate: g.Rate}
	for _, glob := range []struct{ field, text string }{{"ns", g.NS}, {"locks", g.Locks}} {
		if glob.text == "" {
			return rule{}, fmt.Errorf("%s must be given; * stands for all", glob.field)
		}
		if err := CheckGlob(glob.text); err != nil {
			return rule{}, fmt.Errorf("%s %w", glob.field, err)
		}
	}
	if len(g.Verbs) == 0 {
		return rule{}, fmt.Errorf("verbs must name at least one of %s", strings.Join(verbNames[:], ", "))
	}
	for _, v := range g.Verbs {
		if v >= verbs {
			return rule{}, fmt.Errorf("there is no %s; verbs are %s", v, strings.Join(verbNames[:], ", "))
		}
		r.verbs |= 1 << v
	}
	if r.verbs.has(Acquire) || r.verbs.has(Operate) {
		r.verbs |= 1 << Read
	}
	if err := r.takeHosts(g.NotifyHosts); err != nil {
		return rule{}, err
	}
	switch bounded := g.MaxTTL != 0 || g.Leases != 0 || r.fewHosts; {
	case r.verbs.has(Admin) && !r.everywhere():
		return rule{}, fmt.Errorf("the verb admin is for what has no lock: it must stand in a grant with ns \"*\" and locks \"*\"")
	case g.MaxTTL < 0 || g.Leases < 0 || !(g.Rate >= 0):
		return rule{}, fmt.Errorf("max_ttl, leases and rate must not be negative")
	case g.MaxTTL != 0 && g.MaxTTL < minTTL:
		return rule{}, fmt.Errorf("max_ttl must be at least %s, the shortest ttl of a lease", minTTL)
	case bounded && !r.verbs.has(Acquire):
		return rule{}, fmt.Errorf("max_ttl, leases and notify_url bound the verb acquire: give the verb, or leave them out")
	}
	return r, nil
}

// takeHosts compiles the globs of hosts.
func (r *rule) takeHosts(hosts []string) error {
	if r.fewHosts = hosts != nil; len(hosts) == 0 {
		return nil
	}
	globs := make([]string, len(hosts))
	for i, glob := range hosts {
		if glob == "" || strings.ContainsAny(glob, " :@") {
			return fmt.Errorf("notify_url must name hosts, without scheme, port and user, as hooks.example.com or *.example.com")
		}
		if err := CheckGlob(glob); err != nil {
			return fmt.Errorf("notify_url %w", err)
		}
		globs[i] = strings.ToLower(glob)
	}
	slices.Sort(globs)
	r.hosts = strings.Join(slices.Compact(globs), " ")
	return nil
}

// notifies reports whether a notify_url may name the host.
func (r *rule) notifies(host string) bool {
	if !r.fewHosts {
		return true
	}
	for glob := range strings.FieldsSeq(r.hosts) {
		if host != "" && Match(glob, host) {
			return true
		}
	}
	return false
}

// everywhere reports whether the rule matches every lock in every namespace.
func (r *rule) everywhere() bool {
	return strings.Trim(r.ns, "*") == "" && strings.Trim(r.locks, "*") == ""
}

func (r *rule) matches(ns, lock string) bool { return Match(r.ns, ns) && Match(r.locks, lock) }

// key is the rule in a form that no other rule has.
func (r *rule) key() string {
	return fmt.Sprintf("%s/%s/%x/%d/%d/%g/%t %s", r.ns, r.locks, uint8(r.verbs), r.limits.MaxTTL, r.limits.Leases, r.rate, r.fewHosts, r.hosts)
}

// compiled puts the rules into one order, so that the order of roles changes no key.
func compiled(rules []rule) *Rules {
	slices.SortFunc(rules, func(a, b rule) int { return cmp.Compare(a.key(), b.key()) })
	rules = slices.Compact(rules)
	made := &Rules{grants: rules}
	keys := make([]string, 0, len(rules))
	for i := range rules {
		r := &rules[i]
		keys = append(keys, r.key())
		if r.everywhere() {
			made.all |= r.verbs
		}
		made.rate = max(made.rate, r.rate)
		made.bounded = made.bounded || r.limits != Limits{}
	}
	made.unrated = len(rules) == 0 || slices.ContainsFunc(rules, func(r rule) bool { return r.rate == 0 })
	made.key = strings.Join(keys, "\n")
	return made
}

// May reports whether the rules give the verb for the lock. What has no lock is asked for with ns and lock "": only a grant
// for every lock in every namespace gives it.
func (r *Rules) May(v Verb, ns, lock string) bool {
	if r == nil {
		return false
	}
	if r.all.has(v) {
		return true
	}
	if ns == "" {
		return false
	}
	for i := range r.grants {
		if g := &r.grants[i]; g.verbs.has(v) && g.matches(ns, lock) {
			return true
		}
	}
	return false
}

// MaySome reports whether the rules give the verb for any lock.
func (r *Rules) MaySome(v Verb) bool {
	return r != nil && slices.ContainsFunc(r.grants, func(g rule) bool { return g.verbs.has(v) })
}

// MayIn reports whether the rules give the verb for any lock of the namespace.
func (r *Rules) MayIn(v Verb, ns string) bool {
	if r == nil {
		return false
	}
	return slices.ContainsFunc(r.grants, func(g rule) bool { return g.verbs.has(v) && Match(g.ns, ns) })
}

// MayAllIn reports whether the rules give the verb for every lock of the namespace. It may miss grants that do so together.
func (r *Rules) MayAllIn(v Verb, ns string) bool {
	return r.MayAll(v) || r != nil && slices.ContainsFunc(r.grants, func(g rule) bool {
		return g.verbs.has(v) && strings.Trim(g.locks, "*") == "" && Match(g.ns, ns)
	})
}

// MayAll reports whether the rules give the verb for every lock in every namespace.
func (r *Rules) MayAll(v Verb) bool { return r != nil && r.all.has(v) }

// Limits are the bounds of an acquire of the lock: of each bound the widest of the grants that give the verb acquire.
func (r *Rules) Limits(ns, lock string) (widest Limits) {
	if r == nil || !r.bounded {
		return Limits{}
	}
	first := true
	for i := range r.grants {
		g := &r.grants[i]
		if !g.verbs.has(Acquire) || !g.matches(ns, lock) {
			continue
		}
		if first {
			widest, first = g.limits, false
			continue
		}
		widest = Limits{wider(widest.MaxTTL, g.limits.MaxTTL), wider(widest.Leases, g.limits.Leases)}
	}
	return widest
}

// MayNotify reports whether a lease of the lock may have a notify_url with that host, in small letters.
func (r *Rules) MayNotify(ns, lock, host string) bool {
	return r != nil && slices.ContainsFunc(r.grants, func(g rule) bool {
		return g.verbs.has(Acquire) && g.matches(ns, lock) && g.notifies(host)
	})
}

// wider is the bound that allows more. 0 is no bound.
func wider[T time.Duration | int](a, b T) T {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// Nothing reports whether the rules give no verb at all.
func (r *Rules) Nothing() bool { return r == nil || len(r.grants) == 0 }

// Grants are what the rules are made of, in an order of their own. A verb that another one implies is among the verbs.
func (r *Rules) Grants() []Grant {
	if r == nil {
		return nil
	}
	grants := make([]Grant, len(r.grants))
	for i, g := range r.grants {
		grants[i] = Grant{NS: g.ns, Locks: g.locks, MaxTTL: g.limits.MaxTTL, Leases: g.limits.Leases, Rate: g.rate}
		if g.fewHosts {
			grants[i].NotifyHosts = append([]string{}, strings.Fields(g.hosts)...)
		}
		for _, v := range All() {
			if g.verbs.has(v) {
				grants[i].Verbs = append(grants[i].Verbs, v)
			}
		}
	}
	return grants
}

// Rate is how many requests per second the principal may make: the highest of all grants, of which those without a rate have
// the other one. 0 stands for no bound.
func (r *Rules) Rate(otherwise float64) float64 {
	switch {
	case r == nil, r.unrated && otherwise == 0:
		return otherwise
	case r.unrated:
		return max(r.rate, otherwise)
	}
	return r.rate
}

// Key names what the rules decide: Rules with equal keys decide alike. No Rules that allow something have the key of nil.
func (r *Rules) Key() string {
	if r == nil {
		return ""
	}
	return r.key
}
