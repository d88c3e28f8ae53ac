package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"lockkeeper/client"
)

// listCommand is lockctl ls.
type listCommand struct {
	Prefix   string `arg:"" optional:"" completion:"lockctl complete-locks --timeout 1s" help:"Only locks whose names begin with this."`
	NS       string `name:"ns" placeholder:"NAMESPACE" help:"The namespace; default unless given."`
	Contains string `name:"contains" placeholder:"TEXT" help:"Only locks whose names contain this."`
	Owner    string `name:"owner" placeholder:"OWNER" help:"Only locks that a lease of this owner holds or waits for."`
	Host     string `name:"host" placeholder:"HOST" help:"The same, of owners that end with @HOST."`
	Mode     string `name:"mode" enum:",exclusive,shared,semaphore" default:"" placeholder:"MODE" help:"Only locks that are held or waited for in this mode: exclusive, shared or semaphore."`
	State    string `name:"state" enum:",free,held,unclaimed,queued,delayed" default:"" placeholder:"STATE" help:"Only locks in this state: free, held, unclaimed, queued or delayed."`
	Sort     string `name:"sort" enum:",waiters,held,wait" default:"" placeholder:"BY" help:"Most waiters, longest held, or longest wait of the first waiter first: waiters, held or wait."`
	Limit    int    `name:"limit" placeholder:"N" help:"Show N at most; all unless given."`
}

// Help is what --help adds.
func (*listCommand) Help() string {
	return `Locks that are held or waited for, or have settings. JSON is {"items": [...]}, each as GET /v1/locks has it.

  lockctl ls team:
  lockctl ls --sort waiters --limit 10
  lockctl ls --host ci-7 --sort held`
}

// lockView is what lockctl shows of a lock.
type lockView struct {
	Lock        string          `json:"lock"`
	NS          string          `json:"ns"`
	State       string          `json:"state"`
	Holders     []contenderView `json:"holders"`
	HolderCount int             `json:"holder_count"`
	Waiters     []contenderView `json:"waiters"`
	QueueLength int             `json:"queue_length"`
	Settings    *struct {
		Limit  int  `json:"limit"`
		Agreed bool `json:"agreed"`
	} `json:"settings"`
	Hazards []struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	} `json:"hazards"`
	Rev        string `json:"rev"`
	NextCursor string `json:"next_cursor"`
}

const mostOnPage = 1000

func (l *listCommand) Run(ctx context.Context, a *app) error {
	if l.Limit < 0 {
		return usagef("leave it out for all of them", "--limit must not be negative")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	q := url.Values{}
	for name, value := range map[string]string{"ns": l.NS, "prefix": l.Prefix, "contains": l.Contains, "owner": l.Owner, "host": l.Host, "mode": l.Mode, "state": l.State} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if l.Sort != "" {
		q.Set("sort", "-"+l.Sort)
	}
	show := a.listJSON
	if a.tables() {
		show = a.listTable
	}
	out := show()
	for shown := 0; ; {
		page := mostOnPage
		if l.Limit > 0 {
			page = min(page, l.Limit-shown)
		}
		q.Set("limit", strconv.Itoa(page))
		var answer struct {
			Items      []json.RawMessage `json:"items"`
			NextCursor string            `json:"next_cursor"`
			Unreached  []struct {
				GatewayID string `json:"gateway_id"`
				Detail    string `json:"detail"`
			} `json:"unreached"`
		}
		if err := a.callWith(ctx, c, client.Request{Path: "/v1/locks?" + q.Encode()}, &answer); err != nil {
			return err
		}
		for _, g := range answer.Unreached {
			fmt.Fprintf(a.stderr, "warning: leases of gateway %s may be missing: %s\n", g.GatewayID, g.Detail)
		}
		if err := out.page(answer.Items); err != nil {
			return err
		}
		shown += len(answer.Items)
		if answer.NextCursor == "" || l.Limit > 0 && shown >= l.Limit {
			return out.end()
		}
		q.Set("cursor", answer.NextCursor)
	}
}

// pages shows a list page by page, so that a long one takes no memory.
type pages struct {
	page func(items []json.RawMessage) error
	end  func() error
}

// listJSON writes one document, as its items come.
func (a *app) listJSON() pages {
	separator := `{"items": [` + "\n"
	return pages{
		page: func(items []json.RawMessage) error {
			for _, item := range items {
				if _, err := fmt.Fprintf(a.stdout, "%s  %s", separator, item); err != nil {
					return err
				}
				separator = ",\n"
			}
			return nil
		},
		end: func() error {
			if separator != ",\n" {
				_, err := io.WriteString(a.stdout, `{"items": []}`+"\n")
				return err
			}
			_, err := io.WriteString(a.stdout, "\n]}\n")
			return err
		},
	}
}

func (a *app) listTable() pages {
	headings := []string{"LOCK", "STATE", "HOLDER", "FENCE", "HELD", "EXPIRES", "WAITING", "NOTES"}
	none := true
	return pages{
		page: func(items []json.RawMessage) error {
			var rows [][]string
			for _, item := range items {
				var lock lockView
				if err := json.Unmarshal(item, &lock); err != nil {
					return fmt.Errorf("the answer cannot be read: %w", err)
				}
				rows = append(rows, lock.row())
			}
			if len(rows) == 0 {
				return nil
			}
			none = false
			return a.table(headings, rows)
		},
		end: func() error {
			if none {
				fmt.Fprintln(a.stderr, "no locks")
			}
			return nil
		},
	}
}
