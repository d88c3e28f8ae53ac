package webhooks

import (
	"encoding/json"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
)

// A subscription has a format: how a message is written for its receiver. Standard is the event itself, which programs read.
// The others are what the incoming webhooks of chat systems take: words for people. Each renderer escapes what clients wrote
// as its system says, so that no text of an owner is a link, a mention or markup there, and keeps to the system's limits.
// Every format is signed.

// The formats.
const (
	FormatStandard = "standard" // in a subscription ""
	FormatSlack    = "slack"
	FormatTeams    = "teams"
	FormatDiscord  = "discord"
	FormatNtfy     = "ntfy"
)

// Formats are all of them.
var Formats = []string{FormatStandard, FormatSlack, FormatTeams, FormatDiscord, FormatNtfy}

// rendering is a message as its receiver takes it.
type rendering struct {
	body    []byte
	headers map[string]string // beside those of each message; those of the subscription win
}

// renderers are those of the chat systems.
var renderers = map[string]func(*summary) rendering{
	FormatSlack: slack, FormatTeams: teams, FormatDiscord: discord, FormatNtfy: ntfy,
}

// render writes an event for the subscription's receiver.
func (s *Subscription) render(e *Event) rendering {
	if write := renderers[s.Format]; write != nil {
		return write(summarize(e))
	}
	return rendering{body: e.Body()}
}

// normalizeFormat brings the format into the form in which it is kept.
func (s *Subscription) normalizeFormat() error {
	switch {
	case s.Format == FormatStandard:
		s.Format = ""
	case s.Format != "" && !slices.Contains(Formats, s.Format):
		return wrong("format", "must be %s or %s", strings.Join(Formats[:len(Formats)-1], ", "), Formats[len(Formats)-1])
	case s.Format == FormatNtfy:
		if u, err := url.Parse(s.URL); err == nil && strings.Trim(u.Path, "/") == "" {
			return wrong("url", "must be the address of a topic for the format ntfy, such as https://ntfy.sh/my-topic")
		}
	}
	return nil
}

// ShownFormat is the format's name in answers.
func (s *Subscription) ShownFormat() string {
	if s.Format == "" {
		return FormatStandard
	}
	return s.Format
}

// summary is an event in words for people, not escaped.
type summary struct {
	title string
	facts []fact
	event *Event
}

type fact struct{ name, text string }

// happened says what the types mean, behind the name of a lock.
var happened = map[string]string{
	Released: "released", Expired: "expired: no heartbeat came in time", Cancelled: "granted, and its client went away",
	Unclaimed: "granted, and its client did not come", Revoked: "ended by an administrator", Removed: "its znode was deleted",
	Destroyed: "destroyed with its queue", Queued: "a client waits", Granted: "granted", Updated: "changed",
	RevokeRequested: "its holder is asked to release it", RevokeWithdrawn: "its holder need not release it any more", EndingSoon: "a reservation ends soon",
	HazardAppeared: "hazard", HazardCleared: "hazard is over", Test: "this is a test of the webhook",
}

func summarize(e *Event) *summary {
	lock, what := e.Lock, happened[e.Type]
	if e.NS != "default" {
		lock = e.NS + "/" + e.Lock
	}
	if what == "" {
		what = e.Type
	}
	if e.Code != "" {
		what += " " + e.Code
	}
	s := &summary{title: lock + ": " + what, event: e}
	add := func(name, text string) {
		if text != "" {
			s.facts = append(s.facts, fact{name, text})
		}
	}
	add("Owner", e.Owner)
	add("For", e.Purpose)
	if e.Code != "" {
		add("What to do", e.Detail)
	} else {
		add("Reason", e.Detail)
	}
	add("By", e.By)
	add("Program", e.Program)
	add("Programs", strings.Join(e.Programs, ", "))
	add("Lease", e.LeaseID)
	add("Time", e.Time.UTC().Format("2006-01-02 15:04:05 MST"))
	return s
}

// fit is a text in one line, each character as escape writes it, in at most so many units of UTF-16: the least favourable way
// in which these systems count characters. What is too long ends with an ellipsis.
func fit(text string, most int, escape func(rune) string) string {
	var b strings.Builder
	length, cut := 0, 0 // cut is where the ellipsis goes
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r): // controls, and what turns the direction of the text
			r = '\uFFFD'
		}
		s := escape(r)
		size := 0
		for _, c := range s {
			size += utf16.RuneLen(c)
		}
		if length+size > most {
			return b.String()[:cut] + "…"
		}
		b.WriteString(s)
		if length += size; length < most {
			cut = b.Len()
		}
	}
	return b.String()
}

func plain(r rune) string { return string(r) }

// object is JSON.
type object map[string]any

func (o object) body() []byte {
	data, err := json.Marshal(o)
	if err != nil {
		panic("encoding a message: " + err.Error()) // strings and lists of them
	}
	return data
}

// Limits of Slack (https://docs.slack.dev/reference/block-kit/blocks).
const (
	slackHeader = 150  // "Maximum length for the text in this field is 150 characters."
	slackField  = 2000 // "Maximum length for the text in each item is 2000 characters."
	slackFields = 10   // "Maximum number of items is 10."
)

// slack is the body of an incoming webhook. "Slack uses &, <, and > as control characters for special parsing in text objects,
// so they must be converted to HTML entities". The text objects are plain_text, which has no other markup.
func slack(s *summary) rendering {
	escape := func(r rune) string {
		switch r {
		case '&':
			return "&amp;"
		case '<':
			return "&lt;"
		case '>':
			return "&gt;"
		}
		return string(r)
	}
	text := func(t string) object { return object{"type": "plain_text", "text": t, "emoji": false} }
	var fields []object
	for _, f := range s.facts[:min(len(s.facts), slackFields)] {
		fields = append(fields, text(f.name+": "+fit(f.text, slackField-len(f.name)-2, escape)))
	}
	title := fit(s.title, slackHeader, escape)
	return rendering{body: object{
		"text": title, "mrkdwn": false, "unfurl_links": false, "unfurl_media": false,
		"blocks": []object{{"type": "header", "text": text(title)}, {"type": "section", "fields": fields}},
	}.body()}
}

// teamsText bounds each text, so that a message stays below the 28 KB that Teams takes: a character has up to six bytes in JSON.
const teamsText = 400

// teams is the body of a workflow that starts "when a Teams webhook request is received": a message with an Adaptive Card.
// "RichTextBlock does not support markdown", so its runs show what clients wrote as it is.
func teams(s *summary) rendering {
	run := func(text string, more object) object {
		run := object{"type": "TextRun", "text": fit(text, teamsText, plain)}
		maps.Copy(run, more)
		return run
	}
	bold := object{"weight": "Bolder"}
	body := []object{{"type": "RichTextBlock", "inlines": []object{run(s.title, object{"weight": "Bolder", "size": "Medium"})}}}
	for _, f := range s.facts {
		body = append(body, object{"type": "RichTextBlock", "spacing": "Small", "inlines": []object{run(f.name+": ", bold), run(f.text, nil)}})
	}
	card := object{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": body}
	return rendering{body: object{"type": "message", "attachments": []object{{
		"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil, "content": card,
	}}}.body()}
}

// Limits of Discord (https://discord.com/developers/docs/resources/webhook#execute-webhook, .../message#embed-object-embed-limits).
const (
	discordContent = 2000
	discordField   = 1024
	discordEmbed   = 6000 // "total across all title, description, field.name, field.value, ..."
	discordFields  = 25
)

// discord is the body that executes a webhook. A backslash takes its meaning from each character of markup, and
// allowed_mentions lets no text mention a user, a role or @everyone.
func discord(s *summary) rendering {
	escape := func(r rune) string {
		if r > ' ' && r < 0x7f && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return `\` + string(r)
		}
		return string(r)
	}
	var fields []object
	left := discordEmbed
	for _, f := range s.facts[:min(len(s.facts), discordFields)] {
		most := min(discordField, left-len(f.name))
		if most < 2 {
			break
		}
		value := fit(f.text, most, escape)
		left -= len(f.name) + len(utf16.Encode([]rune(value)))
		fields = append(fields, object{"name": f.name, "value": value, "inline": len(f.text) <= 40})
	}
	return rendering{body: object{
		"content": fit(s.title, discordContent, escape), "embeds": []object{{"fields": fields}},
		"allowed_mentions": object{"parse": []string{}},
	}.body()}
}

// ntfyMessage is how long a message of ntfy may be, in bytes; a longer one becomes an attachment. A character has three bytes
// for each unit of UTF-16 at most.
const ntfyMessage = 4096

// ntfy is a message that is published to a topic: lines of text, without markup, and its title in a header: "you may also
// encode any header (including the title) as RFC 2047".
func ntfy(s *summary) rendering {
	var lines []string
	left := ntfyMessage
	for _, f := range s.facts {
		line := f.name + ": " + fit(f.text, 300, plain)
		if left -= len(line) + 1; left < 0 {
			break
		}
		lines = append(lines, line)
	}
	tag := "lock"
	switch {
	case s.event.Type == HazardAppeared:
		tag = "warning"
	case slices.Contains(Durable, s.event.Type), s.event.Type == HazardCleared:
		tag = "unlock"
	}
	return rendering{body: []byte(strings.Join(lines, "\n")), headers: map[string]string{
		"Content-Type": "text/plain; charset=utf-8", "Title": mime.BEncoding.Encode("utf-8", fit(s.title, 250, plain)), "Tags": tag,
	}}
}
