package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"lockkeeper/client"
)

// graphCommand is lockctl graph.
type graphCommand struct {
	Lock   string `arg:"" optional:"" completion:"lockctl complete-locks --timeout 1s" help:"Only waits in this lock, and cycles with one of them."`
	NS     string `name:"ns" placeholder:"NAMESPACE" help:"Only waits in this namespace; of a lock default unless given."`
	Owner  string `name:"owner" placeholder:"OWNER" help:"Only waits of this owner and for it, and cycles with one of them."`
	Cycles bool   `name:"cycles" help:"Only the waits of cycles: deadlocks."`
	Limit  int    `name:"limit" default:"1000" placeholder:"N" help:"Show N waits at most; up to 10000."`
	Format string `name:"format" enum:"tree,dot,mermaid,json" default:"tree" placeholder:"FORMAT" help:"tree, dot (Graphviz), mermaid or json."`
}

// Help is what --help adds.
func (*graphCommand) Help() string {
	return `Which contender waits for which, and the cycles: owners that wait for each other. Equal owners are one party.

  lockctl graph --cycles
  lockctl graph --format dot | dot -Tsvg > waits.svg`
}

// graphView is what lockctl shows of the graph.
type graphView struct {
	Nodes []struct {
		ID string `json:"id"`
	} `json:"nodes"`
	Edges     []edgeView `json:"edges"`
	Cycles    []cycle    `json:"cycles"`
	Truncated bool       `json:"truncated"`
	Unread    int        `json:"unread"`
}

type cycle struct {
	Kind   string     `json:"kind"`
	Waits  []edgeView `json:"waits"`
	Advice string     `json:"advice"`
}

type edgeView struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Lock   string `json:"lock"`
	NS     string `json:"ns"`
	Needs  string `json:"needs"`
	Waiter struct {
		Position int `json:"position"`
	} `json:"waiter"`
	Blocker struct {
		Position int `json:"position"`
	} `json:"blocker"`
}

func (g *graphCommand) Run(ctx context.Context, a *app) error {
	if g.Limit < 1 {
		return usagef("leave it out for 1000", "--limit must be at least 1")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	q := url.Values{"limit": {fmt.Sprint(g.Limit)}}
	for name, value := range map[string]string{"ns": g.NS, "lock": g.Lock, "owner": g.Owner} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if g.Cycles {
		q.Set("cycles", "true")
	}
	if g.Format == "dot" || g.Format == "mermaid" {
		q.Set("format", g.Format)
		response, err := c.Open(ctx, client.Request{Path: "/v1/graph?" + q.Encode()})
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(a.stdout, response.Body)
		return err
	}
	var answer json.RawMessage
	if err := a.callWith(ctx, c, client.Request{Path: "/v1/graph?" + q.Encode()}, &answer); err != nil {
		return err
	}
	if g.Format == "json" || a.Output == "json" {
		return a.printJSON(answer)
	}
	var v graphView
	if err := json.Unmarshal(answer, &v); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	v.tree(a.stdout)
	switch {
	case len(v.Edges) == 0:
		fmt.Fprintln(a.stderr, "nothing waits")
	case v.Truncated:
		fmt.Fprintln(a.stderr, "there are more: give a greater --limit, or name a lock or an owner")
	}
	if v.Unread > 0 {
		fmt.Fprintf(a.stderr, "the owners of %d contenders are not known yet: repeat it\n", v.Unread)
	}
	return nil
}

// tree writes the cycles, and then for each party that waits for nothing, or is in a cycle, the parties that wait for it.
func (v *graphView) tree(w io.Writer) {
	for _, c := range v.Cycles {
		fmt.Fprintf(w, "%s deadlock:\n", c.Kind)
		for _, e := range c.Waits {
			fmt.Fprintf(w, "  %s waits in %s for %s\n", e.from(), e.where(), e.to())
		}
		fmt.Fprintf(w, "  %s\n", visible(c.Advice))
	}
	behind := map[string][]edgeView{}
	waits := map[string]bool{}
	for _, e := range v.Edges {
		if e.From != e.To {
			behind[e.To] = append(behind[e.To], e)
			waits[e.From] = true
		}
	}
	shown := map[string]bool{}
	var show func(party string, depth int, path []string)
	show = func(party string, depth int, path []string) {
		if shown[party] && len(behind[party]) > 0 {
			return // its waiters stand where it came first
		}
		shown[party] = true
		for _, e := range behind[party] {
			again := ""
			if slices.Contains(path, e.From) {
				again = " (see above)"
			}
			fmt.Fprintf(w, "%s%s waits in %s, at position %d%s\n", strings.Repeat("  ", depth), e.from(), e.where(), e.Waiter.Position, again)
			if again == "" {
				show(e.From, depth+1, append(slices.Clone(path), e.From))
			}
		}
	}
	for _, roots := range []bool{true, false} { // first what waits for nothing, then what is in cycles
		for _, n := range v.Nodes {
			if waits[n.ID] != roots && len(behind[n.ID]) > 0 && !shown[n.ID] {
				fmt.Fprintln(w, party(n.ID))
				show(n.ID, 1, []string{n.ID})
			}
		}
	}
}

func (e *edgeView) from() string { return party(e.From) }
func (e *edgeView) to() string   { return party(e.To) }

// where is the lock, with what is special about the wait.
func (e *edgeView) where() string {
	s := e.Lock
	if e.NS != "default" {
		s = e.NS + "/" + s
	}
	if e.Needs == "any" {
		s += " (any of its holders)"
	}
	return visible(s)
}

// party is the name of a party: of an owner without its kind.
func party(id string) string {
	name, _ := strings.CutPrefix(id, "owner:")
	return visible(name)
}
