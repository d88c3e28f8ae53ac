package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"lockkeeper/client"
)

// tokenCommand is lockctl token.
type tokenCommand struct {
	WhoAmI whoAmICommand `cmd:"" name:"whoami" help:"Show who the gateway takes you for, and what you may do."`
}

// Help is what --help adds.
func (*tokenCommand) Help() string {
	return `API tokens are made, listed and revoked by those who run the gateway, beside it: gateway token create, list, revoke. The API makes none.`
}

type whoAmICommand struct{}

// whoAmI is what lockctl reads of the caller.
type whoAmI struct {
	Authentication bool     `json:"authentication"`
	Name           string   `json:"name"`
	Kind           string   `json:"kind"`
	CredentialID   string   `json:"credential_id"`
	Expires        string   `json:"expires_at"`
	Roles          []string `json:"roles"`
	Grants         []struct {
		NS     string   `json:"ns"`
		Locks  string   `json:"locks"`
		Verbs  []string `json:"verbs"`
		MaxTTL int64    `json:"max_ttl_ms"`
		Leases int      `json:"leases"`
		Rate   float64  `json:"rate"`
	} `json:"grants"`
}

func (*whoAmICommand) Run(ctx context.Context, a *app) error {
	var raw json.RawMessage
	if err := a.call(ctx, client.Request{Path: "/v1/whoami"}, &raw); err != nil {
		return err
	}
	if !a.tables() {
		return a.printJSON(raw)
	}
	var me whoAmI
	if err := json.Unmarshal(raw, &me); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	name := me.Name
	if !me.Authentication {
		name += " (the gateway asks no client who it is)"
	}
	if err := a.table([]string{"NAME", "KIND", "CREDENTIAL", "EXPIRES", "ROLES"}, [][]string{{name, me.Kind, me.CredentialID, shortTime(me.Expires), strings.Join(me.Roles, ",")}}); err != nil {
		return err
	}
	if len(me.Grants) == 0 {
		return nil
	}
	var rows [][]string
	for _, g := range me.Grants {
		var bounds []string
		if g.MaxTTL != 0 {
			bounds = append(bounds, "ttl up to "+span(g.MaxTTL))
		}
		if g.Leases != 0 {
			bounds = append(bounds, fmt.Sprintf("%d leases", g.Leases))
		}
		if g.Rate != 0 {
			bounds = append(bounds, fmt.Sprintf("%g requests a second", g.Rate))
		}
		rows = append(rows, []string{g.NS, g.Locks, strings.Join(g.Verbs, ","), strings.Join(bounds, ", ")})
	}
	fmt.Fprintln(a.stdout)
	return a.table([]string{"NAMESPACE", "LOCKS", "MAY", "BOUNDS"}, rows)
}
