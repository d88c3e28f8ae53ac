package templates

import (
	"strings"
	"time"
)

// WebhookRow is a webhook in one line.
type WebhookRow struct {
	ID          string
	URL         string // of its page
	Target      string // where messages go, without path and query
	Description string
	Maker       string   // whose it is; "": of the administrators
	Events      []string // none: every type that is durable
	BestEffort  []string // of Events
	NS, Locks   string   // globs; "": all
	Owner       string   // glob; "": any
	Reason      string   // glob; "": any
	Purpose     string   // glob: what leases were taken for; "": any
	Format      string   // how messages are written
	Enabled     bool
	Disabled    string    // why the gateway has disabled it
	Failing     time.Time // since when no try has succeeded; zero: the last one did
	Next        time.Time // when the first message is tried that waits for a later try; zero: none does
	Waiting     int       // messages that are not delivered yet
	Dead        int       // messages that had their last try
	Dropped     int       // ends that are not delivered to it for lack of room in the outbox
	LastDropped time.Time // zero: there was none
	Lost        int       // best-effort messages that were not delivered
	LastLost    time.Time // zero: there was none
}

// Webhooks is the list of them. Its fragment: "webhooks".
type Webhooks struct {
	Page
	Rows      []WebhookRow
	Unreached []string // gateways whose part is missing
	Types     WebhookTypes
	Outbox    WebhookOutbox
	MayCreate bool   // the viewer may make one
	Problem   string // as in Overview
}

// WebhookTypes are the types that can be subscribed to, by how they are delivered.
type WebhookTypes struct{ Durable, BestEffort []string }

// WebhookOutbox is how full the outbox is. Ends that find no room are not delivered.
type WebhookOutbox struct {
	Entries, Limit int
	Dropped        int       // such ends
	LastDropped    time.Time // zero: there was none
}

func (o *WebhookOutbox) full() bool { return o.Limit > 0 && o.Entries >= o.Limit }

// warning is what there is to say of it, "" when it is as it should be.
func (o *WebhookOutbox) warning() string {
	lost := ""
	if o.Dropped > 0 {
		lost = counted(o.Dropped, "end") + " had no room in the outbox and will not be delivered to all webhooks."
	}
	if !o.full() {
		return lost
	}
	return strings.TrimSpace("The outbox is full (" + count(o.Entries) + " entries" + "): locks are released, and no events are delivered for them. Make receivers accept what waits, or remove their webhooks. " + lost)
}

// Webhook is one webhook's page. Its fragments: "webhook-head", "dead-letters", "attempts".
type Webhook struct {
	Page
	WebhookRow
	API            string // where requests about it go
	List           string // URL of the list
	Headers        []string
	CA             bool // it has certificates of its own
	Created        time.Time
	OldSecretUntil time.Time // zero: there is none
	Attempts       []WebhookAttempt
	DeadLetters    []WebhookDeadLetter
	Unreached      []string
	Types          WebhookTypes
	MayChange      bool   // the viewer may do more with it than look and delete
	Gone           bool   // it was removed while the page was open
	Problem        string // as in Overview
}

// WebhookAttempt is one attempt.
type WebhookAttempt struct {
	At        time.Time
	Message   string // its webhook-id
	Type      string
	NS, Lock  string
	Number    int // of this message, from 1
	Delivered bool
	Status    int    // 0 without an answer
	Error     string // what went wrong
	Answer    string // the first bytes, of a receiver on the internet

	AnswerBytes int // how long it is
	Took        time.Duration
	Gateway     string
}

// WebhookDeadLetter is a message that had its last try.
type WebhookDeadLetter struct {
	At       time.Time
	Message  string
	Type     string
	NS, Lock string
	Owner    string
	Attempts int
	Error    string
	Gateway  string
}

func (r *WebhookRow) state() string {
	switch {
	case !r.Enabled && r.Disabled != "":
		return "disabled by its receiver"
	case !r.Enabled:
		return "disabled"
	case !r.Failing.IsZero():
		return "failing"
	}
	return "enabled"
}

func (r *WebhookRow) tone() string {
	switch {
	case !r.Enabled && r.Disabled == "":
		return "warn"
	case !r.Enabled, !r.Failing.IsZero():
		return "bad"
	}
	return "good"
}

// holdsBack reports whether messages wait because tries have failed.
func (r *WebhookRow) holdsBack() bool {
	return r.Enabled && r.Waiting > 0 && !(r.Failing.IsZero() && r.Next.IsZero())
}

// typeMeans says in a few words what each type means.
var typeMeans = map[string]string{
	"lease.released":  "released by its client",
	"lease.expired":   "no heartbeat",
	"lease.cancelled": "its client left before it was granted",
	"lease.unclaimed": "granted, never claimed",
	"lease.revoked":   "ended by an administrator",
	"lease.removed":   "znode deleted by another program",
	"lock.destroyed":  "lock destroyed",

	"lease.queued":           "a client waits for a lock",
	"lease.granted":          "a client holds a lock",
	"lease.updated":          "its owner, metadata, TTL, holds or mode changed",
	"lease.revoke_requested": "its holder was asked to release it",
	"lease.revoke_withdrawn": "that request was withdrawn",
	"lease.ending":           "a reservation ends soon",
	"lock.hazard":            "something is wrong with a lock",
	"lock.hazard_cleared":    "that is over",
}

// formatMeans says in a few words who takes each format.
var formatMeans = []struct{ name, words string }{
	{"", "JSON for programs (Standard Webhooks)"}, {"slack", "Slack"}, {"teams", "Microsoft Teams (a workflow)"}, {"discord", "Discord"}, {"ntfy", "ntfy"},
}

// errorID is where a dialog says what is wrong with a field.
func errorID(act, field string) string { return act + "-" + field + "-error" }

// signature changes when a row is worth a glance.
func (r *WebhookRow) signature() string { return r.state() }

// wants says which ends are delivered to it.
func (r *WebhookRow) wants() string {
	words := "all endings"
	if len(r.Events) > 0 {
		words = strings.Join(r.Events, ", ")
	}
	if r.Locks != "" {
		words += " of " + r.Locks
	}
	if r.NS != "" {
		words += " in " + r.NS
	}
	if r.Owner != "" {
		words += ", owner " + r.Owner
	}
	if r.Reason != "" {
		words += ", reason " + r.Reason
	}
	if r.Purpose != "" {
		words += ", taken for " + r.Purpose
	}
	return words
}

func unreached(list []string) string {
	return "No answer from " + strings.Join(list, ", ") + ": their part is missing here."
}

func (t *WebhookAttempt) outcome() string {
	switch {
	case t.Delivered:
		return "delivered"
	case t.Status != 0:
		return "refused"
	}
	return "no answer"
}

func (t *WebhookAttempt) tone() string {
	if t.Delivered {
		return "good"
	}
	return "bad"
}

// short is the end of an id, in which ids differ.
func short(id string) string {
	if len(id) <= 12 {
		return id
	}
	return "…" + id[len(id)-8:]
}
