package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"lockkeeper/internal/audit"
	"lockkeeper/internal/auth"
	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/dashboard"
	"lockkeeper/internal/events"
	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// authFlags are the flags about who may do what.
type authFlags struct {
	File           string   `name:"auth-file" placeholder:"FILE" help:"Who may do what (YAML): roles, and which tokens, JWTs, certificates and users have them. Others must not be able to write it. It is read again when it changes; a broken one leaves the old rules in force. Without it every client may do everything."`
	Plaintext      bool     `name:"plaintext" help:"With --auth-file, take credentials on an address that others can reach without TLS: only behind something that speaks TLS with the clients."`
	OpenNamespaces []string `name:"open-namespace" placeholder:"NAME" help:"With --auth-file and --zk, a namespace that other programs share: every client of ZooKeeper can take and end its locks, whatever the file says. Each but default must be named; in default only gateways reach the locks then. Repeatable."`
}

func (f *authFlags) opens(namespace string) bool { return slices.Contains(f.OpenNamespaces, namespace) }

// authenticates reports whether the gateway asks clients who they are.
func (c *config) authenticates() bool { return c.Auth.File != "" }

// seals is the version of seals that this gateway acts by.
func (c *config) seals() int {
	if c.authenticates() {
		return fleet.Seals
	}
	return fleet.SealsWithoutCaller
}

// checkAuth refuses what would lead around the rules.
func (c *config) checkAuth() error {
	switch {
	case !c.authenticates() && c.Auth.Plaintext:
		return usage("leave it out, or say who may do what with --auth-file", "--plaintext is about credentials, and without --auth-file there are none")
	case !c.authenticates() && len(c.Auth.OpenNamespaces) > 0:
		return usage("leave it out, or say who may do what with --auth-file", "--open-namespace is about --auth-file: without it every namespace is open")
	case !c.authenticates():
		return nil
	case c.Auth.opens(locks.DefaultNamespace):
		return usage("leave --open-namespace "+locks.DefaultNamespace+" out, and share locks with other programs in a namespace of their own: --namespace NAME=ROOT",
			"--open-namespace must not name %s: with --auth-file gateways alone reach its locks", locks.DefaultNamespace)
	case c.EmbeddedListen != "":
		return usage("leave --embedded-listen out; programs that speak ZooKeeper's protocol share locks with gateways on an ensemble: --zk, with --open-namespace",
			"--embedded-listen leads around --auth-file: a ZooKeeper client that connects there shows no credential, and can take, end and hinder every lock")
	case c.ZK != "" && !c.identified():
		return usage("give all gateways an identity with --zk-auth-file, or --zk-tls with --zk-cert-file (docs/operate/zookeeper-permissions.md)",
			"--auth-file needs the fleet's ZooKeeper identity: without one every client of ZooKeeper could make tokens, and read the secret by which gateways believe each other")
	}
	return nil
}

// checkLayout refuses what leads around the rules in ZooKeeper.
func (c *config) checkLayout(l *layout.Layout) error {
	switch {
	case !c.authenticates():
		return nil
	case l.Secret.Exposed:
		return &zk.FatalError{Kind: zk.KindAuth, Hint: "stop all gateways, and run gateway secret rotate --offline with the same --zk and --zk-auth-file, or --data-dir",
			Err: errors.New("--auth-file needs a secret that others could never read: with the one that is there they can speak for a gateway, and so for every principal")}
	case c.ZK == "":
		return nil // no other client reaches the store
	}
	for _, name := range slices.Sorted(maps.Keys(l.Namespaces)) {
		if name != locks.DefaultNamespace && !c.Auth.opens(name) {
			return &zk.FatalError{Kind: zk.KindNamespace, Hint: "add --open-namespace " + name + " if other programs are to share it",
				Err: fmt.Errorf("the namespace %s leads around --auth-file: every client of ZooKeeper can take and end the locks below %s", name, l.Namespaces[name].Root)}
		}
	}
	return nil
}

// openAuth reads --auth-file.
func (g *gateway) openAuth() error {
	if !g.c.authenticates() {
		return nil
	}
	a, err := auth.New(auth.Options{Path: g.c.Auth.File, Tokens: apiTokens{g}, Logger: g.log.With("part", "auth"), Metrics: g.metrics,
		Secret: g.keyring.Living(auth.MaxSession), Refused: g.rulesRefused, Loaded: g.rulesLoaded})
	if wrong, ok := errors.AsType[*auth.FileError](err); ok {
		g.rulesRefused(wrong)
		g.writeAudit()() // no other line follows
	}
	if err != nil {
		return rulesProblem(err)
	}
	g.auth = a
	g.rulesLoaded()
	return nil
}

// rulesProblem says what to do about a file of rules that cannot be used.
func rulesProblem(err error) error {
	return &problemError{code: exitConfig, err: fmt.Errorf("--auth-file: %w", err), hint: "correct the file at that place; docs/operate/security.md has a whole one"}
}

// rulesCommand is the command line of gateway auth.
type rulesCommand struct {
	Check rulesCheck `cmd:"" help:"Say whether --auth-file is in order, without a gateway."`
}

type rulesCheck struct{}

func (rulesCheck) run(c *config, stdout io.Writer) error {
	if !c.authenticates() {
		return usage("gateway auth check --auth-file auth.yaml", "--auth-file must name the file to check")
	}
	policy, err := auth.Read(c.Auth.File)
	if err != nil {
		return rulesProblem(err)
	}
	_, err = fmt.Fprintf(stdout, "%s is in order: %s\n", c.Auth.File, policy)
	return err
}

// rulesLoaded tells that the content of --auth-file is in force.
func (g *gateway) rulesLoaded() {
	g.audit.Add(audit.Line{Event: "auth.loaded", File: g.c.Auth.File})
	g.publishRules(events.AuthLoaded, filepath.Base(g.c.Auth.File)+" is in force")
}

// rulesRefused tells that the content of --auth-file is not in force, and why.
func (g *gateway) rulesRefused(wrong *auth.FileError) {
	g.audit.Add(audit.Line{Event: "auth.refused", File: wrong.Path, FileLine: wrong.Line, Reason: wrong.Error()})
	named := *wrong
	named.Path = filepath.Base(wrong.Path)
	g.publishRules(events.AuthRefused, named.Error()+"; the rules from before stay in force")
}

// publishRules tells administrators on the event stream what has become of --auth-file. At the start there is no stream yet.
func (g *gateway) publishRules(what events.Type, detail string) {
	if g.hub == nil {
		return
	}
	id, _ := g.manager.Identity()
	g.hub.Publish(&events.Event{Type: what, Gateway: id, Detail: detail})
}

// authenticator is the gateway's for the API; nil without --auth-file.
func (g *gateway) authenticator() httpapi.Authenticator {
	if g.auth == nil {
		return nil
	}
	return g.auth
}

// standing says what the maker of a webhook may read; nil without --auth-file.
func (g *gateway) standing() func(name, kind, credential string, roles []string) (rules *access.Rules, paused string, known bool) {
	if g.auth == nil {
		return nil
	}
	return g.auth.Standing
}

// logins let users log in to the dashboard; nil without --auth-file.
func (g *gateway) logins() dashboard.Logins {
	if g.auth == nil {
		return nil
	}
	return g.auth
}

// watchRules keeps the rules and the issuers' keys up to date until ctx ends.
func (g *gateway) watchRules(ctx context.Context) {
	if g.auth != nil {
		_ = g.auth.Run(ctx) // the error is ctx's
	}
}

// apiTokens are the gateway's tokens, which it makes later than it reads --auth-file.
type apiTokens struct{ g *gateway }

func (t apiTokens) Authenticate(text string) (*token.Record, error) {
	return t.g.tokens.Authenticate(text)
}
func (t apiTokens) Lookup(id string) (*token.Record, error) { return t.g.tokens.Lookup(id) }
