package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"lockkeeper/client"
)

// webhookCommand is lockctl webhook.
type webhookCommand struct {
	List     webhookList     `cmd:"" name:"ls" help:"List webhooks."`
	Show     webhookShow     `cmd:"" help:"Show a webhook and its deliveries."`
	Add      webhookAdd      `cmd:"" help:"Make a webhook, and print its secret once."`
	Set      webhookSet      `cmd:"" help:"Change a webhook."`
	Pause    webhookPause    `cmd:"" help:"Disable deliveries."`
	Resume   webhookResume   `cmd:"" help:"Enable deliveries."`
	Rotate   webhookRotate   `cmd:"" help:"Give a webhook a new secret."`
	Test     webhookTest     `cmd:"" help:"Send a test message."`
	Attempts webhookAttempts `cmd:"" aliases:"deliveries" help:"List what was tried lately."`
	Dead     webhookDead     `cmd:"" name:"dead-letters" help:"List messages that had their last try."`
	Replay   webhookReplay   `cmd:"" help:"Send dead letters once more, or what waits at once."`
	Remove   webhookRemove   `cmd:"" name:"rm" help:"Remove a webhook, and what waits for it."`
}

// webhookID names one webhook.
type webhookID struct {
	ID string `arg:"" name:"id" help:"The webhook's id, wh_..."`
}

func (w *webhookID) path(after string) string { return "/v1/webhooks/" + url.PathEscape(w.ID) + after }

// webhookView is what lockctl shows of a webhook.
type webhookView struct {
	ID             string   `json:"id"`
	URL            string   `json:"url"`
	Secret         string   `json:"secret"`
	Events         []string `json:"events"`
	NS             string   `json:"ns"`
	Locks          string   `json:"locks"`
	Owner          string   `json:"owner"`
	Reason         string   `json:"reason"`
	AcquireReason  string   `json:"acquire_reason"`
	Format         string   `json:"format"`
	Description    string   `json:"description"`
	Enabled        bool     `json:"enabled"`
	DisabledReason string   `json:"disabled_reason"`
	PausedReason   string   `json:"paused_reason"`
	Maker          string   `json:"maker"`
	Deliveries     struct {
		Waiting      int    `json:"waiting"`
		DeadLetters  int    `json:"dead_letters"`
		Dropped      int    `json:"dropped"`
		FailingSince string `json:"failing_since"`
		NextAttempt  string `json:"next_attempt_at"`
	} `json:"deliveries"`
}

func (w *webhookView) state() string {
	switch {
	case !w.Enabled && w.DisabledReason != "":
		return "disabled: " + w.DisabledReason
	case !w.Enabled:
		return "paused"
	case w.PausedReason != "":
		return "paused: " + w.PausedReason
	case w.Deliveries.FailingSince != "":
		state := "failing since " + w.Deliveries.FailingSince
		if next := w.Deliveries.NextAttempt; next != "" {
			state += ", next try at " + next
		}
		return state
	}
	return "on"
}

func (w *webhookView) row() []string {
	events, locks := "all ends", w.Locks
	if len(w.Events) > 0 {
		events = strings.Join(w.Events, ",")
	}
	if locks == "" {
		locks = "*"
	}
	if w.NS != "" {
		locks = w.NS + "/" + locks
	}
	if w.Owner != "" {
		locks += " owner=" + w.Owner
	}
	if w.Reason != "" {
		locks += " reason=" + w.Reason
	}
	if w.AcquireReason != "" {
		locks += " acquire-reason=" + w.AcquireReason
	}
	return []string{w.ID, w.URL, cmp.Or(w.Format, "standard"), locks, events, strconv.Itoa(w.Deliveries.Waiting), strconv.Itoa(w.Deliveries.DeadLetters), w.state()}
}

var webhookHeadings = []string{"WEBHOOK", "URL", "FORMAT", "LOCKS", "EVENTS", "WAITING", "DEAD", "STATE"}

type webhookList struct{}

func (*webhookList) Run(ctx context.Context, a *app) error {
	return listed(ctx, a, "/v1/webhooks", "no webhooks", webhookHeadings, func(w *webhookView) []string { return w.row() })
}

// listed prints the items of a list.
func listed[T any](ctx context.Context, a *app, path, none string, headings []string, row func(*T) []string) error {
	var raw json.RawMessage
	if err := a.call(ctx, client.Request{Path: path}, &raw); err != nil {
		return err
	}
	if !a.tables() {
		return a.printJSON(raw)
	}
	var answer struct {
		Items     []T `json:"items"`
		Unreached []struct {
			Gateway string `json:"gateway_id"`
			Detail  string `json:"detail"`
		} `json:"unreached"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	for _, u := range answer.Unreached {
		fmt.Fprintf(a.stderr, "warning: gateway %s is missing: %s\n", visible(u.Gateway), visible(u.Detail))
	}
	if len(answer.Items) == 0 {
		fmt.Fprintln(a.stderr, none)
		return nil
	}
	var rows [][]string
	for i := range answer.Items {
		rows = append(rows, row(&answer.Items[i]))
	}
	return a.table(headings, rows)
}

// webhook sends a request that is answered with a webhook, and prints that.
func (a *app) webhook(ctx context.Context, r client.Request) error {
	var raw json.RawMessage
	if err := a.call(ctx, r, &raw); err != nil {
		return err
	}
	if !a.tables() {
		return a.printJSON(raw)
	}
	var w webhookView
	if err := json.Unmarshal(raw, &w); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	if err := a.table(webhookHeadings, [][]string{w.row()}); err != nil {
		return err
	}
	if w.Secret != "" {
		fmt.Fprintf(a.stdout, "\nThe secret verifies messages, and is shown this once:\n%s\n", w.Secret)
	}
	return nil
}

type webhookShow struct{ webhookID }

func (w *webhookShow) Run(ctx context.Context, a *app) error {
	return a.webhook(ctx, client.Request{Path: w.path("")})
}

// webhookFields are what add and set have in common.
type webhookFields struct {
	Events      []string `name:"events" placeholder:"TYPE,..." help:"Types of events, such as lease.released; all ends of leases unless given."`
	Locks       string   `name:"locks" placeholder:"PATTERN" help:"Names of locks, with * for any characters."`
	NS          string   `name:"ns" placeholder:"PATTERN" help:"Namespaces, with * for any characters."`
	Owner       string   `name:"owner" placeholder:"PATTERN" help:"Owners of leases, with * for any characters."`
	Reason      string   `name:"reason" placeholder:"PATTERN" help:"Reasons, such as expired, or the text of the administrator, with * for any characters."`
	For         string   `name:"acquire-reason" placeholder:"PATTERN" help:"What leases were taken for, with * for any characters."`
	Format      string   `name:"format" placeholder:"FORMAT" help:"How messages are written: standard, slack, teams, discord or ntfy."`
	Description string   `name:"description" placeholder:"TEXT" help:"A text for people."`
	HeaderFile  string   `name:"header-file" placeholder:"FILE" help:"File with headers to send along, each in a line: Authorization: Bearer 42."`
	ReceiverCA  string   `name:"receiver-ca-file" placeholder:"FILE" help:"Certificates (PEM) that the receiver's has to be signed by."`
}

func (f *webhookFields) body() (map[string]any, error) {
	body := without(map[string]any{"events": f.Events, "locks": f.Locks, "ns": f.NS, "owner": f.Owner, "reason": f.Reason, "acquire_reason": f.For, "format": f.Format, "description": f.Description})
	if f.ReceiverCA != "" {
		pem, err := os.ReadFile(f.ReceiverCA)
		if err != nil {
			return nil, usagef("", "--receiver-ca-file: %w", err)
		}
		body["ca"] = string(pem)
	}
	if f.HeaderFile == "" {
		return body, nil
	}
	text, err := os.ReadFile(f.HeaderFile)
	if err != nil {
		return nil, usagef("", "--header-file: %w", err)
	}
	headers := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok && name != "" {
			return nil, usagef("a line is like Authorization: Bearer 42", "--header-file: each line must be a header, with a colon")
		}
		if ok {
			headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	body["headers"] = headers
	return body, nil
}

type webhookAdd struct {
	URL string `arg:"" name:"url" help:"Where messages go: http:// or https://."`
	webhookFields
}

// Help is what --help adds.
func (*webhookAdd) Help() string {
	return `From the answer on, each end of a lease of these locks is told to the URL at least once. The answer has the secret that verifies
messages, this once.

  lockctl webhook add https://example.com/hooks/locks --locks 'deploy*' --events lease.expired,lease.revoked`
}

func (w *webhookAdd) Run(ctx context.Context, a *app) error {
	body, err := w.body()
	if err != nil {
		return err
	}
	body["url"] = w.URL
	err = a.webhook(ctx, client.Request{Method: "POST", Path: "/v1/webhooks", Body: body})
	return onceOnly(err, "the webhook may have been made: lockctl webhook ls shows it; its secret is lost then, and lockctl webhook rotate makes another one")
}

type webhookSet struct {
	webhookID
	URL string `name:"to" placeholder:"URL" help:"Where messages go. Another host, port, scheme or path takes no headers along."`
	webhookFields
	RemoveHeader []string `name:"remove-header" placeholder:"NAME,..." help:"Send these headers no more."`
}

func (w *webhookSet) Run(ctx context.Context, a *app) error {
	body, err := w.body()
	if err != nil {
		return err
	}
	if w.URL != "" {
		body["url"] = w.URL
	}
	if len(w.RemoveHeader) > 0 {
		headers := map[string]any{}
		if given, ok := body["headers"].(map[string]string); ok {
			for name, value := range given {
				headers[name] = value
			}
		}
		for _, name := range w.RemoveHeader {
			headers[name] = nil
		}
		body["headers"] = headers
	}
	if len(body) == 0 {
		return usagef("for example --locks 'deploy*'", "at least one flag must say what to change")
	}
	return a.webhook(ctx, client.Request{Method: "PATCH", Path: w.path(""), Body: body})
}

type webhookPause struct{ webhookID }

// Help is what --help adds.
func (*webhookPause) Help() string {
	return `Messages that wait become dead letters, and ends that come meanwhile are not kept for it.`
}

func (w *webhookPause) Run(ctx context.Context, a *app) error {
	return a.webhook(ctx, client.Request{Method: "PATCH", Path: w.path(""), Body: map[string]bool{"enabled": false}})
}

type webhookResume struct{ webhookID }

func (w *webhookResume) Run(ctx context.Context, a *app) error {
	return a.webhook(ctx, client.Request{Method: "PATCH", Path: w.path(""), Body: map[string]bool{"enabled": true}})
}

type webhookRemove struct {
	webhookID
	Yes bool `name:"yes" short:"y" help:"Do not ask first. Needed where no terminal is."`
}

func (w *webhookRemove) Run(ctx context.Context, a *app) error {
	if !w.Yes {
		if !a.canConfirm() {
			return usagef("what waits for the webhook, and its dead letters, are forgotten with it", "--yes must be given where no terminal is")
		}
		if err := a.confirm(ctx, "Remove "+visible(w.ID)+", with its dead letters and what waits for it?"); err != nil {
			return err
		}
	}
	return a.call(ctx, client.Request{Method: "DELETE", Path: w.path("")}, nil)
}
