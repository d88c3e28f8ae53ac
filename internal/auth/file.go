package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.yaml.in/yaml/v3"

	"lockkeeper/internal/locks/access"
)

// Bounds of the file.
const (
	maxFile  = 1 << 20 // bytes
	maxRoles = 256     // of the file
	maxWho   = 10_000  // entries
	// maxRolesOfCaller bounds the seals of requests between gateways, which name a caller's roles.
	maxRolesOfCaller = 32
)

// administrator is the role that a token with the right to administer has. No role of a file has this name.
const administrator = "*"

// issuer is who signs JWTs.
type issuer struct {
	name     string // in the file
	url      string
	audience string
	subject  string // the claim that is the caller's name
	groups   string // the claim with the caller's groups; "" when it has none
	caFile   string // authorities of the issuer's own certificate; "": the system's
	token    string // file with the bearer token that the issuer asks for when its keys are read; "": none
	login    client // by which users of the dashboard log in; the zero value: they do not
}

// client is what the gateway is for an issuer whose users log in with a browser.
type client struct {
	id     string
	secret string // file; "": the issuer asks for none
	scopes string // with spaces between
}

// document is the file as it is written.
type document struct {
	anonymous []access.Verb
	issuers   map[string]*issuer
	common    bool // a client certificate's name is its CN, else the first in its SAN
	roles     map[string][]access.Grant
	who       []entry
}

// overflowUser is the user id of all those that a user namespace does not know (/proc/sys/kernel/overflowuid).
const overflowUser = "65534"

// Names in the file stand in seals and in names of callers.
var (
	roleName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	issuerName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
)

// Read reads the file of rules. Its error is a *FileError.
func Read(path string) (*Policy, error) {
	text, err := contentOf(path)
	if err != nil {
		return nil, err
	}
	return compile(path, text)
}

// contentOf reads the file. A user who may write it is administrator, so no others than its owner may.
func contentOf(path string) ([]byte, error) {
	wrong := func(format string, args ...any) error {
		return &FileError{Path: path, Detail: fmt.Sprintf(format, args...)}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, wrong("it must be a file that this process can read: %v", unwrapped(err))
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, wrong("it cannot be looked at: %v", unwrapped(err))
	case !info.Mode().IsRegular():
		return nil, wrong("it must be a file")
	case info.Mode().Perm()&0o022 != 0:
		return nil, wrong("others can write it (mode %04o), and what they write makes them administrator: chmod go-w %s", info.Mode().Perm(), path)
	case !trustedOwner(info):
		return nil, wrong("it must belong to root or to the user of this process: its owner can write it")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, wrong("it cannot be read: %v", unwrapped(err))
	case len(text) > maxFile:
		return nil, wrong("it must have at most %d KiB", maxFile>>10)
	}
	return text, nil
}

func trustedOwner(info fs.FileInfo) bool {
	at, ok := info.Sys().(*syscall.Stat_t)
	return !ok || at.Uid == 0 || int(at.Uid) == os.Geteuid()
}

// unwrapped is the error without the path, which the sentence has already.
func unwrapped(err error) error {
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		return inner.Err
	}
	return err
}

func readDocument(path string, text []byte) (doc document, err error) {
	err = parse(path, text, func(root node) {
		// The parts in this order, wherever they stand: who names roles and issuers.
		parts := root.fields("the file", map[string]func(node){"anonymous": skip, "issuers": skip, "certificates": skip, "roles": skip, "who": skip})
		for _, part := range []struct {
			key  string
			read func(node)
		}{
			{"anonymous", func(n node) { doc.anonymous = readVerbs(n, "anonymous") }},
			{"issuers", doc.readIssuers}, {"certificates", doc.readCertificates}, {"roles", doc.readRoles}, {"who", doc.readWho},
		} {
			if n, given := parts[part.key]; given {
				part.read(n)
			}
		}
	})
	return doc, err
}

func skip(node) {}

func readVerbs(n node, what string) (verbs []access.Verb) {
	n.items(what, func(item node) {
		verb, err := access.ParseVerb(item.text("a verb"))
		if err != nil {
			item.fail("%v", err)
		}
		verbs = append(verbs, verb)
	})
	return verbs
}

func (d *document) readIssuers(n node) {
	d.issuers = map[string]*issuer{}
	byURL := map[string]string{}
	n.entries("issuers", func(key, value node) {
		switch {
		case !issuerName.MatchString(key.Value):
			key.fail("an issuer's name must be at most 32 small letters, digits and hyphens, beginning with a letter")
		case reservedKind(key.Value):
			key.fail("an issuer must not have the name %s: names of other callers begin so", key.Value)
		}
		iss := &issuer{name: key.Value, subject: "sub"}
		given := value.fields("an issuer", map[string]func(node){
			"issuer":     func(n node) { iss.url = issuerURL(n) },
			"audience":   func(n node) { iss.audience = n.text("audience") },
			"name":       func(n node) { iss.subject = n.text("name") },
			"groups":     func(n node) { iss.groups = n.text("groups") },
			"ca_file":    func(n node) { iss.caFile = n.file("ca_file") },
			"token_file": func(n node) { iss.token = n.file("token_file") },
			"dashboard":  func(n node) { iss.login = readClient(n) },
		})
		if _, err := iss.roots(); err != nil {
			given["ca_file"].fail("ca_file %v", err)
		}
		value.needs("an issuer", given, "issuer", "audience")
		if other, twice := byURL[iss.url]; twice {
			value.fail("the issuers %s and %s have the same address: write one of them, with entries in who for each kind of caller", other, iss.name)
		}
		byURL[iss.url] = iss.name
		d.issuers[iss.name] = iss
	})
}

// readClient reads how users log in to the dashboard.
func readClient(n node) client {
	var c client
	scopes := []string{oidc.ScopeOpenID, "profile", "email"}
	given := n.fields("dashboard", map[string]func(node){
		"client_id":   func(n node) { c.id = n.text("client_id") },
		"secret_file": func(n node) { c.secret = n.file("secret_file") },
		"scopes": func(n node) {
			scopes = []string{oidc.ScopeOpenID} // without it the issuer gives no ID token
			n.items("scopes", func(item node) { scopes = append(scopes, item.scope()) })
		},
	})
	n.needs("dashboard", given, "client_id")
	if _, err := c.password(); err != nil {
		given["secret_file"].fail("%v", err)
	}
	slices.Sort(scopes)
	c.scopes = strings.Join(slices.Compact(scopes), " ")
	return c
}

func (n node) scope() string {
	scope := n.text("a scope")
	if strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		n.fail("a scope must be one word, as openid")
	}
	return scope
}

// needs refuses a mapping without one of the keys.
func (n node) needs(what string, given map[string]node, keys ...string) {
	for _, key := range keys {
		if _, ok := given[key]; !ok {
			n.fail("%s must have the key %s", what, key)
		}
	}
}

// issuerURL is an address by which only the issuer itself can answer: https, or this machine.
func issuerURL(n node) string {
	text := n.text("issuer")
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		n.fail("issuer must be an address as https://id.example.com, exactly as the tokens' iss")
	}
	addr, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		n.fail("issuer must begin with https://: its keys decide who is let in")
	}
	return text
}

// file is the path of another file, from the directory of this one.
func (n node) file(what string) string {
	path := n.text(what)
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(n.path), path)
	}
	return path
}

func (d *document) readCertificates(n node) {
	n.fields("certificates", map[string]func(node){
		"name": func(n node) {
			switch n.text("name") {
			case "san":
			case "cn":
				d.common = true
			default:
				n.fail("name must be san (the first of the certificate's subject alternative names) or cn (its common name)")
			}
		},
	})
}

func (d *document) readRoles(n node) {
	d.roles = map[string][]access.Grant{}
	n.entries("roles", func(key, value node) {
		if !roleName.MatchString(key.Value) {
			key.fail("a role's name must be at most 64 letters, digits, dots, hyphens and underscores")
		}
		var grants []access.Grant
		value.items("the role "+key.Value, func(item node) { grants = append(grants, readGrant(item)...) })
		d.roles[key.Value] = grants
	})
	if len(d.roles) > maxRoles {
		n.fail("there must be at most %d roles", maxRoles)
	}
}

// readGrant reads one grant: one for each glob of its locks.
func readGrant(n node) []access.Grant {
	var g access.Grant
	var globs []string
	given := n.fields("a grant", map[string]func(node){
		"ns":         func(n node) { g.NS = n.glob("ns") },
		"locks":      func(n node) { n.oneOrMore("locks", func(item node) { globs = append(globs, item.glob("locks")) }) },
		"verbs":      func(n node) { g.Verbs = readVerbs(n, "verbs") },
		"max_ttl":    func(n node) { g.MaxTTL = n.span("max_ttl") },
		"leases":     func(n node) { g.Leases = n.count("leases") },
		"rate":       func(n node) { g.Rate = n.rate("rate") },
		"notify_url": func(n node) { g.NotifyHosts = n.hosts("notify_url") },
	})
	n.needs("a grant", given, "ns", "locks", "verbs")
	grants := make([]access.Grant, len(globs))
	for i, glob := range globs {
		grants[i] = g
		grants[i].Locks = glob
		if err := grants[i].Check(); err != nil {
			n.fail("%v", err)
		}
	}
	return grants
}

// hosts are globs of hosts: true is nil, for all of them, and false an empty list.
func (n node) hosts(what string) []string {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" {
		if strings.EqualFold(n.Value, "true") {
			return nil
		}
		return []string{}
	}
	var hosts []string
	n.oneOrMore(what, func(item node) { hosts = append(hosts, item.text(what)) })
	return hosts
}

func (n node) glob(what string) string {
	glob := n.text(what)
	if err := access.CheckGlob(glob); err != nil {
		n.fail("%s %v", what, err)
	}
	return glob
}

// userID reads the id of a user.
func (n node) userID() string {
	if _, err := strconv.ParseUint(n.Value, 10, 32); err != nil {
		n.fail("uid must be the number of a user, as 1000")
	}
	if n.Value == overflowUser {
		n.fail("uid must not be %s: the kernel gives this number to every user that the gateway's user namespace does not know; give the user another id", overflowUser)
	}
	return n.Value
}
