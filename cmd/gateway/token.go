package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/zk/layout"
)

// tokenCommand is the command line of gateway token.
type tokenCommand struct {
	Create tokenCreate `cmd:"" help:"Make an API token, and print it once."`
	List   tokenList   `cmd:"" help:"List the API tokens, without their secrets."`
	Revoke tokenRevoke `cmd:"" help:"End an API token at all gateways."`
}

// run does what one of the commands says.
func (t *tokenCommand) run(ctx context.Context, command string, c *config, stdout, stderr io.Writer) error {
	switch command {
	case "token create":
		return t.Create.run(ctx, c, stdout, stderr)
	case "token list":
		return t.List.run(ctx, c, stdout, stderr)
	}
	return t.Revoke.run(ctx, c, stdout, stderr)
}

type tokenCreate struct {
	Name  string `name:"name" required:"" env:"-" placeholder:"NAME" help:"What rules call the client. Two tokens may have one name, so that the next can replace the last."`
	TTL   string `name:"ttl" default:"90d" env:"-" placeholder:"90d" help:"How long the token is good for, such as 12h or 90d, at most 3650d; or never."`
	Admin bool   `name:"admin" env:"-" help:"Give the token the built-in role admin, whatever the rules say. It has to expire within 366d."`
}

type tokenList struct {
	Output string `name:"output" short:"o" enum:"text,json" default:"text" env:"-" help:"text or json."`
}

type tokenRevoke struct {
	Which string `arg:"" name:"id-or-name" help:"The id of a token, which is its first part without lkt_, or the name of one."`
}

const whereTokensAre = `
Tokens are kept in ZooKeeper, and each gateway knows them within a second. Without --zk the command asks the gateway that runs on
--data-dir over its admin.sock, as the same user, or opens the store itself when none runs. With --zk it needs the fleet's
--zk-auth-file. Who has neither can make no token: the API makes none.`

// Help is what gateway token create --help adds.
func (tokenCreate) Help() string {
	return `The token is the only thing on standard output, and is shown this once: ZooKeeper has its hash alone.

  gateway token create --name ci-shop --ttl 90d > ci-shop.token
  gateway token create --name me --admin --ttl 8h --zk zk1:2181,zk2:2181,zk3:2181/apps --zk-auth-file FILE
` + whereTokensAre
}

// Help is what gateway token list --help adds.
func (tokenList) Help() string {
	return `LAST USED is a day, in UTC, and some minutes late. A token that has expired or was revoked is listed for 30 days.
` + whereTokensAre
}

// Help is what gateway token revoke --help adds.
func (tokenRevoke) Help() string {
	return `A name that several tokens have is refused, with their ids. Leases that were taken with the token go on: each has a token of
its own. End those with gateway's API.
` + whereTokensAre
}

// tokenKeeper makes, lists and ends tokens: the gateway that runs on a data directory, or ZooKeeper itself.
type tokenKeeper interface {
	create(ctx context.Context, r tokenRequest) (madeToken, error)
	list(ctx context.Context) ([]tokenShape, error)
	revoke(ctx context.Context, which string) (tokenShape, error)
}

func (t *tokenCreate) run(ctx context.Context, c *config, stdout, stderr io.Writer) error {
	ttl, err := parseTTL(t.TTL)
	if err != nil {
		return err
	}
	request := tokenRequest{Name: t.Name, TTL: ttl, Admin: t.Admin}
	if err := request.check(); err != nil {
		return err
	}
	return c.tokens(ctx, stderr, func(ctx context.Context, k tokenKeeper) error {
		made, err := k.create(ctx, request)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(stdout, made.Token); err != nil {
			return &problemError{code: exitIO, err: fmt.Errorf("printing the token: %w", err), hint: "gateway token revoke " + made.ID + ", and make another one"}
		}
		fmt.Fprintf(stderr, "created token %s of %s; it %s\n", made.ID, made.Name, expires(made.Expires))
		if terminal(stderr) {
			fmt.Fprintf(stderr, `It is not shown again. Keep it in a file that curl reads, because other users see arguments of commands:
  (umask 077; printf 'Authorization: Bearer %%s\n' TOKEN > ~/.lockkeeper)
  curl -H @$HOME/.lockkeeper ...
End it with: gateway token revoke %s
`, made.ID)
		}
		return nil
	})
}

func expires(at *time.Time) string {
	if at == nil {
		return "never expires"
	}
	return "expires " + at.Format(time.RFC3339)
}

func (t *tokenList) run(ctx context.Context, c *config, stdout, stderr io.Writer) error {
	return c.tokens(ctx, stderr, func(ctx context.Context, k tokenKeeper) error {
		all, err := k.list(ctx)
		if err != nil {
			return err
		}
		if t.Output == "json" {
			e := json.NewEncoder(stdout)
			e.SetIndent("", "  ")
			return e.Encode(all)
		}
		w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tNAME\tSTATE\tROLE\tCREATED\tBY\tEXPIRES\tLAST USED")
		for _, s := range all {
			role := "-"
			if s.Admin {
				role = "admin"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, orDash(s.Name), s.State, role, date(s.Created), orDash(s.CreatedBy), date(s.Expires), orDash(s.LastUsed))
		}
		return w.Flush()
	})
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func date(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.Format(time.DateOnly)
}

func (t *tokenRevoke) run(ctx context.Context, c *config, stdout, stderr io.Writer) error {
	return c.tokens(ctx, stderr, func(ctx context.Context, k tokenKeeper) error {
		gone, err := k.revoke(ctx, t.Which)
		if err == nil {
			fmt.Fprintf(stdout, "revoked %s %s\n", gone.ID, orDash(gone.Name))
		}
		return err
	})
}

// parseTTL reads a span of time that may be in days; 0 is never.
func parseTTL(text string) (time.Duration, error) {
	if text == "never" {
		return 0, nil
	}
	ttl, err := parseDays(text)
	if err != nil || ttl < time.Minute || ttl > mostTTL {
		return 0, usage("for example --ttl 90d, --ttl 12h or --ttl never", "--ttl %q must be between 1m and 3650d, with a unit (m, h, d), or never", text)
	}
	return ttl, nil
}

// parseDays reads a span of time that may be in days.
func parseDays(text string) (span time.Duration, err error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		return time.Duration(min(n, 100_000)) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

const (
	mostTTL      = 3650 * 24 * time.Hour
	mostAdminTTL = 366 * 24 * time.Hour
)

// tokens does work with the tokens of the ZooKeeper or the data directory that the configuration names.
func (c *config) tokens(ctx context.Context, stderr io.Writer, work func(context.Context, tokenKeeper) error) error {
	if c.ZK != "" && !c.identified() {
		return usage("give the identity that the gateways have with --zk-auth-file FILE, or --zk-tls with --zk-cert-file and --zk-key-file", "tokens need the fleet's ZooKeeper identity: without one every client of ZooKeeper could make tokens")
	}
	return c.administer(ctx, stderr, func(dir string) error { return work(ctx, tokensOverSocket{dir}) }, func(ctx context.Context, o *layout.Offline, by string) error {
		return work(ctx, tokensAtRest{tree: token.Tree{Nodes: offline.Nodes{Offline: o}, Root: o.Root()}, by: by})
	})
}

// tokensAtRest works on ZooKeeper without a gateway.
type tokensAtRest struct {
	tree token.Tree
	by   string
}

func (k tokensAtRest) create(ctx context.Context, r tokenRequest) (madeToken, error) {
	known, err := k.tree.List(ctx)
	if err != nil {
		return madeToken{}, tokenProblem(err)
	}
	text, made, err := k.tree.Create(ctx, r.by(k.by), known)
	if err != nil {
		return madeToken{}, tokenProblem(err)
	}
	return madeToken{shapeOf(made), text}, nil
}

func (k tokensAtRest) list(ctx context.Context) ([]tokenShape, error) {
	known, err := k.tree.List(ctx)
	return shapesOf(known), tokenProblem(err)
}

func (k tokensAtRest) revoke(ctx context.Context, which string) (tokenShape, error) {
	known, err := k.tree.List(ctx)
	if err != nil {
		return tokenShape{}, tokenProblem(err)
	}
	gone, err := k.tree.Revoke(ctx, which, k.by, known)
	if err != nil {
		return tokenShape{}, tokenProblem(err)
	}
	return shapeOf(gone), nil
}
