package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// past is the time that a lock's timeline shows, and what is marked in it. It is part of a page: comparable, and equal for equal times.
type past struct {
	span  string // the range's name; "": defaultSpan
	until int64  // where it ends, in milliseconds since 1970; 0: the present, or around the instant
	at    int64  // the instant that is marked; 0: none
	hold  string // the hold that is shown: its lease's id, its znode's name, or its beginning
}

// defaultSpan is the range of a page that names none.
const defaultSpan = "1h"

// spans are the ranges, by name, the shortest first.
var spans = []struct {
	name string
	span time.Duration
}{{"1h", time.Hour}, {"6h", 6 * time.Hour}, {"24h", 24 * time.Hour}, {"7d", 7 * 24 * time.Hour}}

// instantForms are those in which an instant is read: as RFC 3339 has it, without seconds, and as a browser's field gives it, which is UTC here.
var instantForms = []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05.999", "2006-01-02T15:04"}

const instantHelp = "an instant such as 2026-11-22T03:00Z"

func parsePast(values url.Values) (p past, wrong *refusal) {
	p = past{hold: values.Get("hold")}
	if name := values.Get("range"); name != "" && name != defaultSpan {
		if p.span = name; p.length() == 0 {
			return p, wrongParameter(http.StatusUnprocessableEntity, "range is 1h, 6h, 24h or 7d, not %s.", quoted(name))
		}
	}
	if p.until, wrong = instantOf(values, "until"); wrong != nil {
		return p, wrong
	}
	p.at, wrong = instantOf(values, "at")
	return p, wrong
}

// instantOf reads a parameter that is an instant; 0 when it is not there.
func instantOf(values url.Values, name string) (int64, *refusal) {
	text := values.Get(name)
	if text == "" {
		return 0, nil
	}
	for _, form := range instantForms {
		if t, err := time.Parse(form, text); err == nil && t.Year() >= 2000 && t.Year() < 2200 {
			return t.UnixMilli(), nil
		}
	}
	return 0, wrongParameter(http.StatusUnprocessableEntity, "%s is %s, not %s.", name, instantHelp, quoted(text))
}

// instant is how an instant is written in an address.
func instant(ms int64) string {
	if ms == 0 {
		return ""
	}
	t := time.UnixMilli(ms).UTC()
	if t.Second() == 0 && t.Nanosecond() == 0 {
		return t.Format("2006-01-02T15:04Z")
	}
	return t.Format("2006-01-02T15:04:05.999Z")
}

func (p past) name() string { return cmp.Or(p.span, defaultSpan) }

func (p past) length() time.Duration {
	for _, s := range spans {
		if s.name == p.name() {
			return s.span
		}
	}
	return 0
}

// parameters are the triples for differing.
func (p past) parameters() [][3]string {
	return [][3]string{{"range", p.name(), defaultSpan}, {"until", instant(p.until), ""}, {"at", instant(p.at), ""}, {"hold", p.hold, ""}}
}

// window is the time that is shown: until the end that was chosen, else around the instant, else until now.
func (p past) window(now time.Time) window {
	w := window{now: now, to: now}
	switch {
	case p.until != 0:
		w.to = time.UnixMilli(p.until)
	case p.at != 0:
		w.to = time.UnixMilli(p.at).Add(p.length() / 2)
	}
	if !w.to.Before(now) {
		w.to, w.live = now, true
	}
	w.from, w.to = w.to.Add(-p.length()).UTC(), w.to.UTC()
	return w
}

// fresh is for how long a reading of a time is good: what is drawn moves by a part of it, or the page changes because of something else.
func (p past) fresh(live bool) time.Duration {
	if !live {
		return time.Minute
	}
	return min(max(p.length()/(2*maxParts), 5*time.Second), time.Minute)
}

// maxParts is how fine a live timeline is followed.
const maxParts = 180

// moved is the time one range earlier or later; later than now it is the present.
func (p past) moved(w window, ranges int, now time.Time) past {
	end := w.to.Add(time.Duration(ranges) * p.length())
	p.hold = ""
	if p.until = end.Truncate(time.Second).UnixMilli(); !end.Before(now) {
		p.until = 0
		if p.at != 0 && time.UnixMilli(p.at).Before(now.Add(-p.length()/2)) {
			p.at = 0 // it would show the time around that again
		}
	}
	return p
}

// spanning is another range: around the instant, or until the same end.
func (p past) spanning(name string) past {
	if p.span, p.hold = name, ""; name == defaultSpan {
		p.span = ""
	}
	if p.at != 0 {
		p.until = 0
	}
	return p
}

// present is the time until now, with nothing marked.
func (p past) present() past { return past{span: p.span} }

// about is the time with a hold that is shown. One that has ended stays in sight: the window does not move on.
func (p past) about(hold string, ended bool, w window) past {
	p.hold = hold
	if ended && p.until == 0 {
		p.until = w.to.Truncate(time.Second).UnixMilli()
	}
	return p
}

// beginning names a hold that has no lease and no znode.
func beginning(t time.Time) string { return "b" + strconv.FormatInt(t.UnixMicro(), 36) }
