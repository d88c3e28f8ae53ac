package webhooks

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

// hostile is what a client may write into owner and reason in the hope that a chat system acts on it.
const hostile = "<!channel> <@U1> <https://evil|click> *b* _i_ ~s~ `c` @everyone @here [t](https://evil) <at>ana</at> &amp; |x|\n# head \u202e\x1b"

func chatEvent() *Event {
	return &Event{Type: Revoked, Time: time.Date(2026, 11, 23, 9, 30, 0, 0, time.UTC), NS: "default", Lock: "deploy", LeaseID: "lk1", Owner: hostile, Purpose: hostile, Mode: "exclusive", FencingToken: 7,
		Reason: "revoked", Detail: hostile, By: "ana <b>", Gateway: "g"}
}

// written is the body in that format.
func written(format string, e *Event) (body []byte, headers map[string]string) {
	r := (&Subscription{Format: format}).render(e)
	return r.body, r.headers
}

// units is a length as these systems count it at most.
func units(s string) int { return len(utf16.Encode([]rune(s))) }

type slackText struct {
	Type, Text string
	Emoji      bool
}

type slackMessage struct {
	Text        string
	Mrkdwn      bool
	UnfurlLinks bool `json:"unfurl_links"`
	Blocks      []struct {
		Type   string
		Text   *slackText
		Fields []slackText
	}
}

func readAs[T any](t assert.T, body []byte) (v T) {
	d := json.NewDecoder(strings.NewReader(string(body)))
	assert.NoError(t, d.Decode(&v), "%s", body)
	return v
}

func TestASlackMessageShowsTextsAsTheyAre(t *testing.T) {
	body, headers := written(FormatSlack, chatEvent())
	m := readAs[slackMessage](t, body)
	assert.That(t, len(headers) == 0 && !m.Mrkdwn && !m.UnfurlLinks && len(m.Blocks) == 2 && m.Blocks[0].Type == "header" && m.Blocks[1].Type == "section", "%s", body)
	assert.Equal(t, m.Text, "deploy: ended by an administrator", "the notification")
	all := m.Text
	for _, text := range append(m.Blocks[1].Fields, *m.Blocks[0].Text) {
		assert.That(t, text.Type == "plain_text" && !text.Emoji, "%+v", text) // no *bold*, no :emoji:
		all += text.Text
	}
	// "Slack uses &, <, and > as control characters for special parsing in text objects, so they must be converted to HTML entities"
	assert.That(t, !strings.ContainsAny(all, "<>\n\x1b\u202e") && strings.Contains(all, "&lt;!channel&gt;") && strings.Contains(all, "&amp;amp;"), "%s", all)
	assert.That(t, strings.Contains(all, "By: ana &lt;b&gt;"), "%s", all)
}

func TestATeamsMessageIsACardWithoutMarkdown(t *testing.T) {
	body, _ := written(FormatTeams, chatEvent())
	m := readAs[struct {
		Type        string
		Attachments []struct {
			ContentType string
			Content     struct {
				Type, Version string
				Body          []struct {
					Type    string
					Inlines []struct{ Type, Text string }
				}
			}
		}
	}](t, body)
	assert.Must(t, m.Type == "message" && len(m.Attachments) == 1, "%s", body)
	card := m.Attachments[0]
	assert.That(t, card.ContentType == "application/vnd.microsoft.card.adaptive" && card.Content.Type == "AdaptiveCard" && card.Content.Version == "1.4", "%s", body)
	owner := false
	for _, block := range card.Content.Body {
		// "RichTextBlock does not support markdown"
		assert.That(t, block.Type == "RichTextBlock", "%s is in a %s", body, block.Type)
		for _, run := range block.Inlines {
			assert.That(t, run.Type == "TextRun" && !strings.ContainsAny(run.Text, "\n\x1b\u202e"), "%+v", run)
			owner = owner || strings.HasPrefix(run.Text, "<!channel> <@U1> ")
		}
	}
	assert.That(t, owner && card.Content.Body[0].Inlines[0].Text == "deploy: ended by an administrator", "%s", body)
}

type discordMessage struct {
	Content string
	Embeds  []struct {
		Fields []struct{ Name, Value string }
	}
	AllowedMentions map[string][]string `json:"allowed_mentions"`
}

func TestADiscordMessageMentionsNobodyAndHasNoMarkup(t *testing.T) {
	body, _ := written(FormatDiscord, chatEvent())
	m := readAs[discordMessage](t, body)
	parse, there := m.AllowedMentions["parse"]
	assert.That(t, there && parse != nil && len(parse) == 0 && len(m.AllowedMentions) == 1, "%s", body)
	assert.Equal(t, m.Content, `deploy\: ended by an administrator`, "the content")
	assert.Must(t, len(m.Embeds) == 1 && len(m.Embeds[0].Fields) > 3, "%s", body)
	for _, f := range m.Embeds[0].Fields {
		// Each character of markup has a backslash before it.
		bare := strings.NewReplacer(`\\`, "", `\*`, "", `\_`, "", `\~`, "", "\\`", "", `\@`, "", `\[`, "", `\<`, "", `\#`, "", `\|`, "", `\/`, "", `\>`, "").Replace(f.Value)
		assert.That(t, !strings.ContainsAny(bare, "*_~`@[<#|/>\n"), "%q", f.Value)
	}
}

func TestAnNtfyMessageIsPlainText(t *testing.T) {
	e := chatEvent()
	body, headers := written(FormatNtfy, e)
	assert.That(t, headers["Content-Type"] == "text/plain; charset=utf-8" && headers["Title"] == "deploy: ended by an administrator" && headers["Tags"] == "unlock", "%v", headers)
	lines := strings.Split(string(body), "\n")
	assert.That(t, strings.HasPrefix(lines[0], "Owner: <!channel>") && !strings.ContainsAny(string(body), "\x1b\u202e") && strings.HasPrefix(lines[1], "For: <!channel>") && lines[3] == "By: ana <b>", "%q", body)
	e.Lock = "straße"
	_, headers = written(FormatNtfy, e)
	title := assert.Value((&mime.WordDecoder{}).DecodeHeader(headers["Title"]))(t)
	assert.That(t, strings.HasPrefix(headers["Title"], "=?utf-8?b?") && title == "straße: ended by an administrator", "%q", headers["Title"])
}

// The numbers are those of the systems' documents; see format.go.
func TestMessagesKeepToTheLimitsOfTheirSystem(t *testing.T) {
	texts := rapid.Custom(func(r *rapid.T) string {
		return strings.Repeat(rapid.SampledFrom([]string{"a", "&", "<", "*", "ß", "\U0001F512", "\\", "\n", "\u202e", "\xff"}).Draw(r, "of"), rapid.SampledFrom([]int{0, 1, 30, 127, 300, 5000}).Draw(r, "n"))
	})
	check := func(r assert.T, e *Event) {
		r.Helper()
		body, _ := written(FormatSlack, e)
		m := readAs[slackMessage](r, body)
		assert.That(r, units(m.Blocks[0].Text.Text) <= 150 && m.Blocks[0].Text.Text != "", "a header of %d", units(m.Blocks[0].Text.Text))
		assert.That(r, len(m.Blocks[1].Fields) <= 10 && len(m.Blocks[1].Fields) > 0, "%d fields", len(m.Blocks[1].Fields))
		for _, f := range m.Blocks[1].Fields {
			assert.That(r, units(f.Text) <= 2000 && f.Text != "", "a field of %d", units(f.Text))
		}

		body, _ = written(FormatTeams, e)
		assert.That(r, len(body) <= 28<<10, "%d bytes for Teams", len(body))

		body, _ = written(FormatDiscord, e)
		d := readAs[discordMessage](r, body)
		total := 0
		assert.That(r, units(d.Content) <= 2000 && d.Content != "" && len(d.Embeds[0].Fields) <= 25, "%s", body)
		for _, f := range d.Embeds[0].Fields {
			assert.That(r, units(f.Value) <= 1024 && f.Value != "" && units(f.Name) <= 256, "a field of %d", units(f.Value))
			total += units(f.Name) + units(f.Value)
		}
		assert.That(r, total <= 6000, "%d in an embed", total)

		body, headers := written(FormatNtfy, e)
		assert.That(r, len(body) <= 4096 && len(body) > 0 && !strings.ContainsAny(headers["Title"], "\r\n"), "%d bytes for ntfy", len(body))
	}
	for _, of := range []string{"a", "&", "<", "*", "ß", "漢", "\U0001F512"} {
		text := strings.Repeat(of, 5000)
		check(t, &Event{Type: Revoked, NS: text, Lock: text, Owner: text, Detail: text, By: text, Program: text, Programs: []string{text}, LeaseID: text, Purpose: text})
	}
	rapid.Check(t, func(r *rapid.T) {
		text := func(name string) string { return texts.Draw(r, name) }
		e := &Event{Type: rapid.SampledFrom(append(append([]string{Test, "lease.later"}, Durable...), BestEffort...)).Draw(r, "type"), Time: time.Unix(1, 0), NS: text("ns"), Lock: text("lock"), Owner: text("owner"),
			Detail: text("detail"), By: text("by"), Program: text("program"), Code: text("code"), Programs: []string{text("programs")}, LeaseID: text("lease"), Purpose: text("purpose")}
		check(r, e)
	})
}

func TestAMessageInAFormatIsSignedAndHasItsHeaders(t *testing.T) {
	var body []byte
	var h http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		h = r.Header.Clone()
	}))
	defer server.Close()
	for _, format := range Formats {
		sub := &Subscription{ID: NewID(), URL: server.URL + "/topic", Format: format, Secrets: []Secret{NewSecret()}, Headers: map[string]string{"Tags": "mine", "Authorization": "Bearer x"}}
		assert.NoError(t, sub.Normalize(everywhere(t)), "%s", format)
		a := newSender(t, everywhere(t)).Send(t.Context(), sub, newMessage("msg_a", chatEvent(), sub))
		assert.Must(t, a.Result == Delivered, "%s: %+v", format, a)
		assert.NoError(t, assert.Value(standardwebhooks.NewWebhook(sub.Secrets[0].Value))(t).Verify(body, h), "%s", format)
		want := "application/json"
		if format == FormatNtfy {
			want = "text/plain; charset=utf-8"
		}
		assert.That(t, h.Get("Content-Type") == want && h.Get("Authorization") == "Bearer x" && (h.Get("Title") != "") == (format == FormatNtfy), "%s: %v", format, h)
		assert.Equal(t, h.Get("Tags"), "mine", "the subscription's own header")
		assert.That(t, sub.ShownFormat() == format && strings.Contains(string(body), "data") == (format == FormatStandard), "%s: %s", format, body)
	}
}
