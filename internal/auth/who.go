package auth

import (
	"fmt"
	"slices"
	"time"

	"lockkeeper/internal/locks/access"
)

// Kind is a kind of credential.
type Kind string

// The kinds.
const (
	Token       Kind = "token"
	JWT         Kind = "jwt"
	Certificate Kind = "certificate"
	User        Kind = "uid"
	Anonymous   Kind = "anonymous"
)

// What names of callers begin with, besides the names of issuers.
const (
	tokenPrefix = "token"
	certPrefix  = "cert"
	userPrefix  = "uid"
)

// reservedKind reports whether callers that no issuer names have names that begin so.
func reservedKind(name string) bool {
	return slices.Contains([]string{tokenPrefix, certPrefix, userPrefix, string(Anonymous), "gateway"}, name)
}

// identity is what a credential proves. It is immutable.
type identity struct {
	kind   Kind
	issuer string         // of a JWT, its name in the file
	name   string         // within the kind, or the issuer
	admin  bool           // an API token with the right to administer
	groups []string       // of a JWT
	claims map[string]any // of a JWT

	expires time.Time // of a certificate, which is shown once for many requests; else zero
}

// fullName is the caller's name: no two credentials of different kinds have the same.
func (id *identity) fullName() string {
	switch id.kind {
	case Token:
		return tokenPrefix + ":" + id.name
	case Certificate:
		return certPrefix + ":" + id.name
	case User:
		return userPrefix + ":" + id.name
	case JWT:
		return id.issuer + ":" + id.name
	}
	return string(Anonymous)
}

// entry gives roles to the callers that it names. Each of its conditions has to hold; of a list of values one has to be there.
type entry struct {
	kind     Kind
	globs    []string // of names, of tokens and certificates
	names    []string // exactly, of JWTs and users
	issuer   string
	groups   []string
	claims   map[string][]string
	everyone bool // whatever a JWT of the issuer says
	roles    []string
}

func (e *entry) matches(id *identity) bool {
	switch {
	case e.kind != id.kind, e.issuer != id.issuer:
		return false
	case e.globs != nil && !slices.ContainsFunc(e.globs, func(glob string) bool { return access.Match(glob, id.name) }):
		return false
	case e.names != nil && !slices.Contains(e.names, id.name):
		return false
	case e.groups != nil && !slices.ContainsFunc(e.groups, func(g string) bool { return slices.Contains(id.groups, g) }):
		return false
	}
	for claim, wanted := range e.claims {
		if !claimed(id.claims[claim], wanted) {
			return false
		}
	}
	return true
}

// claimed reports whether a claim is one of the values, or a list that has one of them. Values are compared as text, exactly.
func claimed(claim any, wanted []string) bool {
	switch v := claim.(type) {
	case string:
		return slices.Contains(wanted, v)
	case bool, float64:
		return slices.Contains(wanted, fmt.Sprint(v))
	case []any:
		return slices.ContainsFunc(v, func(item any) bool {
			text, ok := item.(string)
			return ok && slices.Contains(wanted, text)
		})
	}
	return false
}

func (d *document) readWho(n node) {
	n.items("who", func(item node) { d.who = append(d.who, d.readEntry(item)) })
	if len(d.who) > maxWho {
		n.fail("who must have at most %d entries: give groups or claims roles in place of names", maxWho)
	}
}

// readEntry reads one entry: one kind of credential, its conditions, and roles.
func (d *document) readEntry(n node) entry {
	var e entry
	of := func(kind Kind) {
		if e.kind != "" {
			n.fail("an entry must have one of token, cert, uid, issuer, and this one has two: write two entries")
		}
		e.kind = kind
	}
	texts := func(to *[]string, what string) func(node) {
		return func(n node) { n.oneOrMore(what, func(item node) { *to = append(*to, item.text(what)) }) }
	}
	globs := func(kind Kind, what string) func(node) {
		return func(n node) {
			of(kind)
			n.oneOrMore(what, func(item node) { e.globs = append(e.globs, item.nameGlob(what)) })
		}
	}
	given := n.fields("an entry of who", map[string]func(node){
		"token": globs(Token, "token"), "cert": globs(Certificate, "cert"),
		"uid": func(n node) {
			of(User)
			n.oneOrMore("uid", func(item node) { e.names = append(e.names, item.userID()) })
		},
		"issuer": func(n node) {
			of(JWT)
			if e.issuer = n.text("issuer"); d.issuers[e.issuer] == nil {
				n.fail("there is no issuer %q; %s", e.issuer, listOf("issuers", d.issuers))
			}
		},
		"name": texts(&e.names, "name"), "group": texts(&e.groups, "group"),
		"claims":   func(n node) { e.claims = readClaims(n) },
		"everyone": func(n node) { e.everyone = n.isTrue("everyone") },
		"roles":    func(n node) { e.roles = d.readRoleNames(n) },
	})
	n.needs("an entry of who", given, "roles")
	e.check(n, given, d.issuers)
	return e
}

// check refuses what an entry cannot mean.
func (e *entry) check(n node, given map[string]node, issuers map[string]*issuer) {
	if e.kind == "" {
		n.fail("an entry of who must have one of token, cert, uid, issuer")
	}
	for _, key := range []string{"name", "group", "claims", "everyone"} {
		if at, ok := given[key]; ok && e.kind != JWT {
			at.fail("%s is for entries with issuer", key)
		}
	}
	if e.kind != JWT {
		return
	}
	conditions := len(e.names) + len(e.groups) + len(e.claims)
	switch {
	case e.everyone && conditions > 0:
		given["everyone"].fail("everyone must stand without name, group and claims: leave it out, or them")
	case !e.everyone && conditions == 0:
		n.fail("the entry must say which tokens of the issuer %s it means: claims, group or name; everyone: true for all of them", e.issuer)
	case len(e.groups) > 0 && issuers[e.issuer].groups == "":
		given["group"].fail("the issuer %s must say which claim has the groups: groups: groups", e.issuer)
	}
}

func (n node) isTrue(what string) bool {
	if n.Tag != "!!bool" || n.Value != "true" {
		n.fail("%s must be true, or left out", what)
	}
	return true
}

// nameGlob is a pattern of names. A name may have characters that a lock's glob may not.
func (n node) nameGlob(what string) string {
	glob := n.text(what)
	if len(glob) > access.MaxGlob {
		n.fail("%s must be at most %d bytes", what, access.MaxGlob)
	}
	return glob
}

func readClaims(n node) map[string][]string {
	claims := map[string][]string{}
	n.entries("claims", func(key, value node) {
		value.oneOrMore("a claim", func(item node) {
			if item.Tag == "!!bool" {
				claims[key.Value] = append(claims[key.Value], item.Value)
				return
			}
			claims[key.Value] = append(claims[key.Value], item.text("the claim "+key.Value))
		})
	})
	if len(claims) == 0 {
		n.fail("claims must have at least one claim")
	}
	return claims
}

func (d *document) readRoleNames(n node) (roles []string) {
	n.items("roles", func(item node) {
		role := item.text("a role")
		if _, known := d.roles[role]; !known {
			item.fail("there is no role %q; %s", role, listOf("roles", d.roles))
		}
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	})
	if len(roles) == 0 || len(roles) > maxRolesOfCaller {
		n.fail("roles must name 1 to %d roles", maxRolesOfCaller)
	}
	return roles
}
