package webhooks

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEventsAreEncodedAsByReflection(t *testing.T) {
	texts := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[a-z/:_-]{1,12}`), rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }), rapid.SampledFrom([]string{"\u2028", "<&>", `"\`, "\x7f", "\xff", "é"}))
	times := rapid.Map(rapid.Int64Range(0, 1<<42), func(ms int64) time.Time { return time.UnixMilli(ms).UTC() })
	events := rapid.Custom(func(r *rapid.T) Event {
		text := func(name string) string { return texts.Draw(r, name) }
		return Event{Type: text("type"), Time: times.Draw(r, "time"), NS: text("ns"), Lock: text("lock"), LeaseID: text("lease"), Program: text("program"),
			Znode: text("znode"), Owner: text("owner"), Mode: text("mode"), FencingToken: rapid.Int64().Draw(r, "token"), Reason: text("reason"),
			Detail: text("detail"), By: text("by"), Code: text("code"), Programs: rapid.SliceOfN(texts, 0, 3).Draw(r, "programs"), Gateway: text("gateway"), Waiting: rapid.Bool().Draw(r, "waiting")}
	})
	notices := rapid.Custom(func(r *rapid.T) Notice {
		return Notice{Event: events.Draw(r, "event"), To: rapid.SliceOfN(rapid.IntRange(0, 300), 1, 3).Draw(r, "to")}
	})
	dead := rapid.Custom(func(r *rapid.T) Dead {
		return Dead{Notice: rapid.IntRange(0, 9).Draw(r, "notice"), At: times.Draw(r, "at"), Attempts: 10, Error: texts.Draw(r, "error")}
	})
	same := func(r *rapid.T, got []byte, of any) {
		want, err := json.Marshal(of)
		if err != nil || string(got) != string(want) {
			r.Fatalf("%s\nwant %s (%v)", got, want, err)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		e := events.Draw(r, "event")
		same(r, appendEvent(nil, &e), &e)
		same(r, e.Body(), &struct {
			Type      string    `json:"type"`
			Timestamp time.Time `json:"timestamp"`
			Data      *Event    `json:"data"`
		}{e.Type, e.Time, &e})
		entry := &Entry{Subscriptions: rapid.SliceOfN(texts, 1, 3).Draw(r, "subscriptions"), Notices: rapid.SliceOfN(notices, 1, 3).Draw(r, "notices"),
			TraceParent: texts.Draw(r, "trace"), Dead: rapid.SliceOfN(dead, 0, 2).Draw(r, "dead")}
		same(r, entry.Data(), entry) // Data sets the version
	})
}

// The ids are a promise to receivers: the same at every gateway and in every release.
func TestTheIDOfAMessageStays(t *testing.T) {
	e := &Event{NS: "default", Lock: "a \"b\"\n\u00e9"}
	for entry, want := range map[string]string{"l_1": "msg_xvcmjlzheypevyyqrh25is554i", "l_1-granted": "msg_dkjznb73ewcepdfbngywi7eone"} {
		if got := MessageID(entry, e, "wh_x"); got != want {
			t.Errorf("%s: got %s, want %s", entry, got, want)
		}
	}
}
