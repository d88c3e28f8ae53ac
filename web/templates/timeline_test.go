package templates

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// timelineSample is six hours of a lock: one hold after the other, some that ended badly, quick ones that were counted, and gaps.
func timelineSample(now time.Time) *Timeline {
	t := &Timeline{From: now.Add(-6 * time.Hour), To: now, Live: true, Since: now.Add(-330 * time.Minute), Page: "/lock?ns=team", Range: "6h", Earlier: "/lock?until=1", Lanes: 3, Counted: true,
		Ranges: []Link{{"1h", "/lock"}, {"6h", "/lock?range=6h"}, {"24h", "/lock?range=24h"}, {"7d", "/lock?range=7d"}},
		At:     now.Add(-3 * time.Hour), AtX: 50, AtSeen: true, Number: 7}
	t.Step = time.Hour
	for n := range 7 {
		t.Ticks = append(t.Ticks, Tick{float64(n) * 100 / 6, now.Add(time.Duration(n-6) * time.Hour)})
	}
	at := func(x float64) time.Time { return t.From.Add(time.Duration(x / 100 * float64(6*time.Hour))) }
	put := func(lane int, from, to float64, owner, reason string) *Bar {
		h := Hold{Who: Who{Owner: owner, LeaseID: leaseID(len(t.Bars))}, URL: fmt.Sprintf("/lock?hold=%d", len(t.Bars)), Mode: "exclusive", Begin: at(from), End: at(to), Reason: reason, Waited: time.Minute, WaitedKnown: true, FencingToken: 7,
			Loud: reason == "expired" || reason == "revoked"}
		if reason == "" {
			h.End = time.Time{}
		}
		t.Bars = append(t.Bars, Bar{Lane: lane, X: from, To: to, Early: from, Late: to, Begin: at(from), End: at(to), Ongoing: reason == "", Count: 1, Single: true, Loud: h.Loud, Doubtful: reason == "unknown", Hold: h, URL: h.URL})
		t.Holds = append([]Hold{h}, t.Holds...)
		return &t.Bars[len(t.Bars)-1]
	}
	put(0, 10, 28, "ci-runner-1", "released")
	put(0, 28.5, 41, "ci-runner-2 with a long label that has no room", "revoked").Chosen = true
	put(0, 42, 60, "nightly", "expired")
	unsure := put(0, 62, 72, "backup", "unknown")
	unsure.Early, unsure.Late = 60.5, 69
	put(0, 76, 100, "ci-runner-3", "")
	put(1, 80, 92, "web-1", "released")
	t.Bars = append(t.Bars, Bar{Lane: 1, X: 30, To: 31, Early: 30, Late: 31, Begin: at(30), End: at(31), Count: 412, Loud: true, URL: "/lock?at=1"},
		Bar{Lane: 2, X: 50, To: 56, Early: 50, Late: 56, Begin: at(50), End: at(56), Count: 4100, Hold: Hold{Count: 4100, Mean: 20 * time.Millisecond, Begin: at(50), End: at(56)}, URL: "/lock?hold=b1"})
	t.Missing = []Missing{{0, 8.3, t.From, t.Since, "before"}, {73, 75.5, at(73), at(75.5), "stopped"}}
	t.AtHolds = []Hold{t.Bars[2].Hold}
	t.Card = &HoldCard{Hold: t.Bars[1].Hold, Close: "/lock", Next: &t.Bars[2].Hold, NextAfter: 3 * time.Second, Heartbeat: 61 * time.Second, TTL: time.Minute, Postmortem: "/v1/leases/lk1/postmortem", Metadata: Linked(`see https://ci.example.com/7`)}
	t.Card.By, t.Card.Detail = "token:anna", "stuck since Monday"
	return t
}

// evilTimeline is one in which every text is hostile.
func evilTimeline(now time.Time) *Timeline {
	t := timelineSample(now)
	h := Hold{Who: Who{Owner: hostile, LeaseID: hostile, Program: hostile, Purpose: hostile}, Name: hostile, URL: "javascript:alert(7)", Mode: hostile, Reason: hostile, By: hostile, Detail: hostile, Gateway: hostile, Principal: hostile, Begin: now, End: now}
	t.Bars[0].Hold, t.Bars[0].URL, t.Holds[0], t.AtHolds = h, "javascript:alert(8)", h, []Hold{h}
	t.Card = &HoldCard{Hold: h, Close: "javascript:alert(9)", Metadata: Linked(hostile), Postmortem: "javascript:alert(10)"}
	return t
}

func TestTheListSaysWhatTheBarsSay(t *testing.T) {
	v := timelineSample(noon)
	list, picture := render(HoldsFragment(*v)), render(TimelineFragment(*v))
	for _, b := range v.Bars {
		assert.That(t, !b.Single || strings.Contains(list, templEscaped(b.Hold.named())) && strings.Contains(list, b.Hold.ended()), "%s, %s is not in the list", b.Hold.named(), b.Hold.ended())
		assert.That(t, strings.Contains(picture, templEscaped(b.title())), "%s has no title", b.title())
	}
	// The picture is hidden from those who cannot see it, and the Tab key passes it.
	assert.That(t, strings.Contains(picture, `class="bars" width="100%" height="112" aria-hidden="true"`) && strings.Count(picture, `tabindex="-1"`) == len(v.Bars), "the picture is not hidden")
	assert.Equal(t, strings.Count(picture, `class="bar-mark"`), 3, "ends that are marked not by their colour alone")
	assert.That(t, strings.Contains(v.Bars[3].Hold.lasted(), "36m"), "%s", v.Bars[3].Hold.lasted())
}

func TestLengthsOfTimeAreRoundedForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{20 * time.Millisecond: "under 1 s", 45 * time.Second: "45 s", 3 * time.Minute: "3 min", 95 * time.Minute: "95 min", 7 * time.Hour: "7 h", 80 * time.Hour: "3 days"} {
		assert.Equal(t, rough(d), want)
	}
	for d, want := range map[time.Duration]string{20 * time.Millisecond: "20ms", 45 * time.Second: "45s", 192 * time.Second: "3m 12s", 7 * time.Hour: "7h 00m", 50 * time.Hour: "2d 02h"} {
		assert.Equal(t, spell(d), want)
	}
}
