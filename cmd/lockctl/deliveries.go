package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"lockkeeper/client"
)

// onceOnly says what is to be known when an answer was lost to a request that must not be sent again.
func onceOnly(err error, hint string) error {
	var reach *url.Error
	var p *client.Problem
	if errors.As(err, &reach) || errors.As(err, &p) && p.Code == "outcome_unknown" {
		if code, _ := classify(err); code == exitUnavailable && !errors.As(err, new(*failure)) {
			return &failure{code: exitUnavailable, err: err, hint: hint}
		}
	}
	return err
}

type webhookRotate struct {
	webhookID
	Overlap time.Duration `name:"overlap" default:"24h" placeholder:"24h" help:"How long messages are signed with the secret before, too: 0s to 168h."`
}

func (w *webhookRotate) Run(ctx context.Context, a *app) error {
	err := a.webhook(ctx, client.Request{Method: "POST", Path: w.path("/rotate"), Body: map[string]string{"overlap": w.Overlap.String()}})
	return onceOnly(err, "the secret may have been replaced: repeat the command to get one that is known")
}

// attemptView is one try.
type attemptView struct {
	Time      string `json:"time"`
	MessageID string `json:"message_id"`
	Type      string `json:"type"`
	Lock      string `json:"lock"`
	Try       int    `json:"try"`
	Result    string `json:"result"`
	Status    int    `json:"status"`
	Error     string `json:"error"`
	Took      int64  `json:"took_ms"`
}

var attemptHeadings = []string{"TIME", "MESSAGE", "TYPE", "LOCK", "TRY", "RESULT", "STATUS", "TOOK", "ERROR"}

func (t *attemptView) row() []string {
	status := ""
	if t.Status != 0 {
		status = strconv.Itoa(t.Status)
	}
	return []string{shortTime(t.Time), t.MessageID, t.Type, t.Lock, strconv.Itoa(t.Try), t.Result, status, span(t.Took), t.Error}
}

// shortTime is a time of the API in seconds, by the local clock.
func shortTime(text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

type webhookTest struct{ webhookID }

// Help is what --help adds.
func (*webhookTest) Help() string {
	return `The message is sent at once, and once, also when the webhook is paused. When the receiver does not take it, the exit code is 1.`
}

func (w *webhookTest) Run(ctx context.Context, a *app) error {
	var raw json.RawMessage
	if err := a.call(ctx, client.Request{Method: "POST", Path: w.path("/test")}, &raw); err != nil {
		return err
	}
	var t attemptView
	if err := json.Unmarshal(raw, &t); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	var err error
	if a.tables() {
		err = a.table(attemptHeadings, [][]string{t.row()})
	} else {
		err = a.printJSON(raw)
	}
	if err == nil && t.Result != "delivered" {
		err = &failure{code: exitFailure, err: fmt.Errorf("the receiver has not taken the message: %s %s", t.Result, t.Error), hint: "docs/webhooks.md says where messages may go"}
	}
	return err
}

type webhookAttempts struct {
	webhookID
	Limit int `name:"limit" default:"100" placeholder:"N" help:"List N at most, the newest first."`
}

func (w *webhookAttempts) Run(ctx context.Context, a *app) error {
	return listed(ctx, a, w.path("/attempts?limit="+strconv.Itoa(w.Limit)), "none lately", attemptHeadings, func(t *attemptView) []string { return t.row() })
}

// deadLetter is a message that had its last try.
type deadLetter struct {
	MessageID string `json:"message_id"`
	Time      string `json:"time"`
	Attempts  int    `json:"attempts"`
	Error     string `json:"error"`
	Event     struct {
		Type string `json:"type"`
		Lock string `json:"lock"`
	} `json:"event"`
}

type webhookDead struct {
	webhookID
	Limit int `name:"limit" default:"100" placeholder:"N" help:"List N at most, the oldest first."`
}

func (w *webhookDead) Run(ctx context.Context, a *app) error {
	return listed(ctx, a, w.path("/dead-letters?limit="+strconv.Itoa(w.Limit)), "no dead letters", []string{"GIVEN UP", "MESSAGE", "TYPE", "LOCK", "TRIES", "ERROR"},
		func(d *deadLetter) []string {
			return []string{shortTime(d.Time), d.MessageID, d.Event.Type, d.Event.Lock, strconv.Itoa(d.Attempts), d.Error}
		})
}

type webhookReplay struct {
	webhookID
	Message string `name:"message" placeholder:"ID" xor:"what" help:"Only this message, msg_...; all of the webhook unless given."`
	Waiting bool   `name:"waiting" xor:"what" help:"Try at once what waits for its next try, in place of dead letters."`
}

func (w *webhookReplay) Run(ctx context.Context, a *app) error {
	var raw json.RawMessage
	body := without(map[string]any{"message_id": w.Message})
	if w.Waiting {
		body["waiting"] = true // an older gateway does not know the field
	}
	r := client.Request{Method: "POST", Path: w.path("/replay"), Body: body}
	if err := a.call(ctx, r, &raw); err != nil {
		return err
	}
	if !a.tables() {
		return a.printJSON(raw)
	}
	var answer struct {
		Replayed int `json:"replayed"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	words := "sent once more"
	if w.Waiting {
		words = "waiting, tried now"
	}
	_, err := fmt.Fprintf(a.stdout, "%d %s\n", answer.Replayed, words)
	return err
}
