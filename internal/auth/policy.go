package auth

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
)

// maxKept bounds the sets of roles, and the callers, that a policy remembers.
const maxKept = 4096

// Policy is the file of rules, compiled. It is safe for concurrent use.
type Policy struct {
	document
	digest [sha256.Size]byte // of the text

	mu      sync.Mutex
	rules   map[string]*access.Rules // by names of roles, in order
	callers map[callerKey]*resolved  // that no JWT names; a JWT keeps its own
}

// callerKey is all that decides about a caller that no JWT names.
type callerKey struct {
	kind  Kind
	name  string
	admin bool
}

func compile(path string, text []byte) (*Policy, error) {
	doc, err := readDocument(path, text)
	if err != nil {
		return nil, err
	}
	return &Policy{document: doc, digest: sha256.Sum256(text), rules: map[string]*access.Rules{}, callers: map[callerKey]*resolved{}}, nil
}

// String counts what the file has.
func (p *Policy) String() string {
	return fmt.Sprintf("%d roles, %d entries, %d issuers", len(p.roles), len(p.who), len(p.issuers))
}

// rolesOf are the names of the roles that a caller has, in order.
func (p *Policy) rolesOf(id *identity) (roles []string) {
	if id.kind == Anonymous {
		return nil
	}
	if id.admin {
		roles = append(roles, administrator)
	}
	for i := range p.who {
		if p.who[i].matches(id) {
			roles = append(roles, p.who[i].roles...)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

// rulesOf are the rules of roles, with what everybody may do. A role that the file does not have gives nothing.
func (p *Policy) rulesOf(roles []string) *access.Rules {
	if slices.Contains(roles, administrator) {
		return access.Everything()
	}
	key := strings.Join(roles, ",")
	p.mu.Lock()
	defer p.mu.Unlock()
	if rules := p.rules[key]; rules != nil {
		return rules
	}
	var grants []access.Grant
	if len(p.anonymous) > 0 {
		grants = append(grants, access.Grant{NS: "*", Locks: "*", Verbs: p.anonymous})
	}
	for _, role := range roles {
		grants = append(grants, p.roles[role]...)
	}
	rules, err := access.New(grants...)
	if err != nil {
		panic("rules that were checked: " + err.Error())
	}
	if len(p.rules) >= maxKept {
		clear(p.rules)
	}
	p.rules[key] = rules
	return rules
}

// known is what resolve said before; nil when it was not asked.
func (p *Policy) known(key callerKey) *resolved {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.callers[key]
}

// resolve says what a caller may do that no JWT names. What it said before it finds again without the entries.
func (p *Policy) resolve(id *identity) (*resolved, error) {
	key := callerKey{id.kind, id.name, id.admin}
	if known := p.known(key); known != nil {
		return known, nil
	}
	known, err := p.decide(id)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.callers) >= maxKept {
		clear(p.callers)
	}
	p.callers[key] = known
	return known, nil
}

// decide goes through the entries.
func (p *Policy) decide(id *identity) (*resolved, error) {
	roles := p.rolesOf(id)
	if len(roles) > maxRolesOfCaller {
		return nil, refused("the caller must have at most %d roles, and has %d", maxRolesOfCaller, len(roles))
	}
	return &resolved{policy: p, roles: roles, principal: p.principal(id.fullName(), roles)}, nil
}

// principal is what the caller may do.
func (p *Policy) principal(name string, roles []string) locks.Principal {
	return locks.Principal{Name: name, Rules: p.rulesOf(roles), Counts: true}
}

// listOf says which names there are.
func listOf[T any](what string, named map[string]T) string {
	if len(named) == 0 {
		return "the file has no " + what + ": write it there first"
	}
	return what + " are " + strings.Join(slices.Sorted(maps.Keys(named)), ", ")
}
