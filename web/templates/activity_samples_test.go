package templates

import (
	"maps"
	"math"
	"strings"
	"time"

	"github.com/a-h/templ"
)

func activitySample(now time.Time) Activity {
	v := Activity{Page: page(now, "Activity · Lockkeeper"), Windows: []Window{{"1h", "/activity?window=1h", false}, {"24h", "/activity", true}, {"7d", "/activity?window=7d", false}},
		Since: now.Add(-20 * time.Hour), At: now.Add(-3 * time.Second), Span: 24 * time.Hour, Partial: "Of this time it has only the last 20 h, and it has a gap.",
		Figures: []Figure{{"Grants", "184,022", "holds that began in this time"}, {"Grants a second", "2.13", "in the mean"}, {"Left unserved", "37", "left the queue without a grant"},
			{"Wait, median", "340 ms", "until the grant"}, {"Hold, median", "2 min 5 s", "from the grant to the end"}},
		Ends: []EndRow{{"released", 181022, 184000}, {"expired", 2713, 184000}, {"revoked", 31, 184000}, {"unclaimed", 2, 184000}},
		Spans: []SpanRow{{"Waited", 184022, 340 * time.Millisecond, 41 * time.Second, 9 * time.Minute, time.Hour},
			{"Held", 184000, 125 * time.Second, 18 * time.Minute, 3 * time.Hour, 26 * time.Hour}},
		Permits: []SemaphoreRow{{"default", "gpu-pool", "/lock", 16, 15, 4, 12}, {"default", "licences:matlab", "/lock", 5, 2, 0, 0}, {"default", "db:connections", "/lock", 200, 200, 1, 31}},
	}
	v.Sheet = "activity.css"
	top := func(id, title string, rows ...TopRow) TopList {
		return TopList{ID: id, Title: title, None: "Nothing.", Rows: rows}
	}
	v.Lists = []TopList{
		top("contended", "Most contended", TopRow{"default", "db:migrate:orders", "/lock", "waited 3 h 12 min in all", 1}, TopRow{"default", "deploy:prod", "/lock", "waited 41 min in all", .2},
			TopRow{"default", strings.Repeat("very-long-lock-name.", 9), "/lock", "waited 3 s in all", .01}),
		top("longest", "Longest held", TopRow{"default", "deploy:prod", "/lock", "26 h 3 min", 1}),
		top("expired", "Most expired"),
	}
	rate := Chart{ID: "grants", Title: "Grants a second", Summary: "At most 4.2 a second, 3 h ago.", Unit: "/s", From: now.Add(-24 * time.Hour), To: now,
		Gaps: []Gap{{From: now.Add(-24 * time.Hour), To: now.Add(-20 * time.Hour)}, {From: now.Add(-8 * time.Hour), To: now.Add(-7 * time.Hour)}}}
	wait := rate
	wait.ID, wait.Title, wait.Unit, wait.Summary = "waits", "Wait until the grant, p95", "", "95 in 100 waited for 41 s at most. It was worst 3 h ago: 9 min."
	for i := range 60 {
		x := 2.1 + 1.9*math.Sin(float64(i)/6)
		if i < 10 || i >= 40 && i < 43 {
			x = 0
		}
		rate.Values, wait.Values = append(rate.Values, x), append(wait.Values, x*x*12)
	}
	v.Charts = []Chart{rate, wait}
	return v
}

func activitySamples(now time.Time) map[string]templ.Component {
	all := map[string]templ.Component{}
	empty := activitySample(now)
	empty.Ends, empty.Permits, empty.Spans = nil, nil, []SpanRow{{Name: "Waited"}, {Name: "Held"}}
	for i := range empty.Charts {
		empty.Charts[i].Values, empty.Charts[i].Gaps = nil, nil
	}
	for i := range empty.Lists {
		empty.Lists[i].Rows = nil
	}
	off := activitySample(now)
	off.Off = true
	evil := activitySample(now)
	evil.WithNS, evil.Partial = true, hostile
	evil.Permits = []SemaphoreRow{{hostile, hostile, "javascript:alert(5)", 3, 1, 9, 1}}
	evil.Ends = []EndRow{{hostile, 3, 2}}
	evil.Lists[0].Rows = []TopRow{{hostile, hostile, "javascript:alert(6)", hostile, 7}}
	evil.Charts[0].Summary, evil.Charts[0].Title = hostile, hostile
	lost := Activity{Page: away(page(now, "Activity · Lockkeeper")), Problem: hostile}
	busy := overviewSample(now)
	busy.Live, busy.Poll = "/ui/live?still", "/ui/poll?still"
	busy.Sheet = "overview.css"
	busy.Total, busy.Hazardous, busy.HazardousURL, busy.Attention = 5047, 3, "/?state=hazard", attentionSample(now)
	evilBusy := busy
	evilBusy.Attention = Attention{Waits: []LongWait{{NS: hostile, Name: hostile, URL: "javascript:alert(8)", Who: Who{Owner: hostile}, Since: now}},
		Hooks: []WebhookRow{{ID: hostile, URL: "javascript:alert(9)", Target: hostile, Disabled: hostile}}}
	evilWall := wallSample(now)
	evilWall.Query, evilWall.Cards = hostile, []Card{{LockRow: LockRow{NS: hostile, Name: hostile, State: hostile, Holders: []Who{{Owner: hostile}}, HolderCount: 2, Waiting: 9}, TooLong: true}}
	bare := wallSample(now)
	bare.Cards, bare.More = nil, false
	pinned := Pinned{Page: page(now, "Pinned locks · Lockkeeper"), Rows: pinnedSample(now), WithNS: true}
	pinned.Sheet = "overview.css"
	for path, c := range map[string]templ.Component{"/busy": OverviewPage(busy), "/evil-busy": OverviewPage(evilBusy), "/wall": WallPage(wallSample(now)), "/evil-wall": WallPage(evilWall), "/wall-none": WallPage(bare),
		"/pinned": PinnedPage(pinned)} {
		all[path] = c
	}
	maps.Copy(all, map[string]templ.Component{"/activity": ActivityPage(activitySample(now)), "/activity-empty": ActivityPage(empty), "/activity-off": ActivityPage(off),
		"/evil-activity": ActivityPage(evil), "/activity-lost": ActivityPage(lost)})
	return all
}

func attentionSample(now time.Time) Attention {
	return Attention{Waits: []LongWait{{"default", "db:migrate:orders", "/lock", Who{Owner: "ci-runner-4", LeaseID: leaseID(4)}, now.Add(-14 * time.Minute), 40 * time.Second, 31},
		{"curator", "leader", "/lock", Who{Foreign: true, Program: "Curator"}, now.Add(-40 * time.Second), 300 * time.Millisecond, 1}},
		Hooks: []WebhookRow{{ID: "wh_aaaabbbbccccdddd", URL: "/webhook", Target: "https://hooks.example.com", Enabled: true, Failing: now.Add(-2 * time.Hour), Waiting: 66},
			{ID: "wh_aaaabbbbccccddde", URL: "/webhook", Target: "https://gone.example.com", Disabled: "It answered 410."}}}
}

// pinnedSample is the rows of the overview, pinned.
func pinnedSample(now time.Time) []LockRow {
	rows := overviewSample(now).Rows
	for i := range rows {
		rows[i].Pinned = true
	}
	return rows
}

func wallSample(now time.Time) Wall {
	v := Wall{Page: page(now, "Wall · Lockkeeper"), Query: "prod", More: true}
	v.Sheet, v.Live, v.Poll = "activity.css", "/ui/live?still", "/ui/poll?still"
	for i, row := range overviewSample(now).Rows {
		c := Card{LockRow: row, TooLong: i == 1}
		if row.Waiting > 0 {
			c.Waits = now.Add(-time.Duration(i+1) * 97 * time.Second)
		}
		v.Cards = append(v.Cards, c)
	}
	return v
}
