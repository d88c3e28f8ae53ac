package templates

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Timeline is who has held a lock, and how each hold ended. Its fragments: "timeline" (the picture, and what is marked in it) and
// "holds" (the same as a list).
type Timeline struct {
	Off      string // why there is none, in a sentence; "" normally
	From, To time.Time
	Live     bool      // To is the present
	Since    time.Time // how far back the history reaches
	Page     string    // URL of the page without a past
	Range    string
	Ranges   []Link
	Earlier  string // URLs of the time before and after, and of the present; "" for none
	Later    string
	Now      string
	Ticks    []Tick
	Step     time.Duration // from one to the next
	Lanes    int
	Counted  bool // the last lane has quick holds, which are counted
	Bars     []Bar
	Missing  []Missing
	Holds    []Hold // the latest first
	Number   int    // of all in the time
	More     bool   // there are more than were read

	At        time.Time // the instant that is marked; zero: none
	AtX       float64
	AtSeen    bool   // it is in the window
	AtFuture  bool   // it has not come yet
	AtMissing string // why the history may not know of it; ""
	AtHolds   []Hold // who held then
	AtMore    int    // more of them

	Card *HoldCard // the hold that was chosen; nil: none
}

// Tick is a name on the axis.
type Tick struct {
	X  float64
	At time.Time
}

// Missing is a time of which the history lacks something.
type Missing struct {
	X, To       float64
	From, Until time.Time
	Cause       string
}

// Bar is a hold as it is drawn, in percent of the width.
type Bar struct {
	Lane        int
	X, To       float64
	Early, Late float64 // between Early and X it may have held, and between Late and To
	Begin, End  time.Time
	Ongoing     bool
	Count       int // of holds
	Single      bool
	Loud        bool
	Doubtful    bool
	Chosen      bool
	Hold        Hold // when there is one alone
	URL         string
}

// Hold is one row of the history.
type Hold struct {
	Who
	Name         string // of a foreign contender's znode
	URL          string // shows it
	Mode         string
	Permits      int
	Begin        time.Time
	Early        time.Duration // it began that much earlier at most
	End          time.Time     // zero: it goes on
	Late         time.Duration // it ended that much earlier at most
	Waited       time.Duration
	WaitedKnown  bool
	Reason       string
	By, Detail   string
	FencingToken int64
	Gateway      string
	Principal    string
	Count        int           // quick holds that were counted; 0: it is one
	Mean         time.Duration // of those
	Loud         bool          // it was ended by something else than its client
	Doubtful     bool          // it is not certain that it held at the instant that is marked
}

// HoldCard is all that is known of a hold.
type HoldCard struct {
	Hold
	Gone       bool // the history does not have it
	Close      string
	Lock       string // URL of the lock's page as it is now
	Next       *Hold
	NextAfter  time.Duration
	Heartbeat  time.Duration // the last one, before the end; 0: not known
	TTL        time.Duration
	BeatAt     time.Time // the last one of a hold that goes on; zero: not known
	Metadata   []Piece
	Postmortem string // URL in the API; "": it is not kept any more
}

const (
	laneHeight = 30
	axisHeight = 22
)

// percent is a length in an SVG, to a tenth of a pixel.
func percent(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) + "%" }

// width is a length that can be seen.
func width(from, to float64) string { return percent(max(to-from, 0.2)) }

func (t Timeline) height() int { return max(t.Lanes, 1)*laneHeight + axisHeight }

func laneTop(lane int) string { return strconv.Itoa(lane*laneHeight + 3) }

// spell writes a length of time as the page's script does: two units.
func spell(d time.Duration) string {
	two := func(n time.Duration) string {
		if n < 10 {
			return "0" + strconv.Itoa(int(n))
		}
		return strconv.Itoa(int(n))
	}
	switch s := d / time.Second; {
	case d < time.Second:
		return strconv.Itoa(int(d/time.Millisecond)) + "ms"
	case s < 60:
		return strconv.Itoa(int(s)) + "s"
	case s < 3600:
		return strconv.Itoa(int(s/60)) + "m " + two(s%60) + "s"
	case s < 86400:
		return strconv.Itoa(int(s/3600)) + "h " + two(s/60%60) + "m"
	default:
		return strconv.Itoa(int(s/86400)) + "d " + two(s/3600%24) + "h"
	}
}

// rough is a length of time with one unit, as people say it: "3 min".
func rough(d time.Duration) string {
	round := func(unit time.Duration) string { return strconv.Itoa(int((d + unit/2) / unit)) }
	switch {
	case d < time.Second:
		return "under 1 s"
	case d < 99500*time.Millisecond:
		return round(time.Second) + " s"
	case d < 100*time.Minute:
		return round(time.Minute) + " min"
	case d < 48*time.Hour:
		return round(time.Hour) + " h"
	}
	return round(24*time.Hour) + " days"
}

// minute is an instant in words: to the minute, or more exactly where it is. The page's script writes it in the viewer's zone, where the element is
// marked with data-utc and begins with it.
func minute(t time.Time) string { return field(t, " ") + " UTC" }

// fromTo is a time from one instant to another, in words as minute is.
func fromTo(from, to time.Time) string { return field(from, " ") + " to " + minute(to) }

// period is the time that is shown.
func (t Timeline) period() string {
	return fromTo(t.From.Truncate(time.Minute), t.To.Truncate(time.Minute))
}

// label is a name on the axis: a time, or a day where one begins. Those at the edges would be cut.
func (k Tick) label() string {
	at := k.At.UTC()
	switch {
	case k.X < 3 || k.X > 97:
		return ""
	case at.Hour() == 0 && at.Minute() == 0:
		return at.Format("2 Jan")
	}
	return at.Format("15:04")
}

// visibility hides a tick from beyond the axis, which is on it in other zones than UTC.
func (k Tick) visibility() string {
	if k.X > 100 {
		return "hidden"
	}
	return "visible"
}

// named is a holder; one without a name of its own has that of its znode.
func (h Hold) named() string {
	switch {
	case h.Count > 0:
		return counted(h.Count, "quick hold")
	case h.Owner == "" && h.Foreign && h.Program == "" && h.Name != "":
		return h.Name
	}
	return who(h.Who)
}

// ended is how a hold ended, in a word or two.
func (h Hold) ended() string {
	switch {
	case h.Count > 0:
		return "released"
	case h.End.IsZero():
		return "holds"
	case h.Reason == "":
		return "ended, reason unknown"
	case h.Reason == "unknown":
		return "ended, reason unknown"
	}
	return endedWord(h.Reason)
}

// because is the reason of an end in a sentence, with the words and the name of the caller that ended it; "" when there is nothing to say.
func (h Hold) because() string {
	if h.End.IsZero() || h.Count > 0 {
		return ""
	}
	text := explained(Happening{Event: "lease.ended", Reason: h.Reason, Detail: h.Detail})
	if h.By != "" {
		if text != "" {
			text += ", "
		}
		text += "by " + h.By
	}
	return text
}

// lasted is for how long it held, with its bounds.
func (h Hold) lasted() string {
	if h.Count > 0 {
		return spell(h.Mean) + " each"
	}
	span := h.End.Sub(h.Begin)
	least, most := max(span-h.Late, 0), span+h.Early
	if h.Early > 0 || h.Late > 0 {
		return "between " + spell(least) + " and " + spell(most)
	}
	return spell(span)
}

// title is what a bar says of itself.
func (b Bar) title() string {
	if b.URL != "" && !b.Single && b.Hold.Count == 0 {
		text := fromTo(b.Begin, b.End) + ": " + count(b.Count) + " holds"
		if b.Loud {
			text += ", of which some were ended"
		}
		return text
	}
	h := b.Hold
	if h.End.IsZero() {
		return minute(h.Begin) + " on: " + h.named() + ", " + h.ended()
	}
	return fromTo(h.Begin, h.End) + ": " + h.named() + ", " + h.ended()
}

// label is what a bar has room for.
func (b Bar) label() string {
	switch {
	case b.To-b.X < 4:
		return ""
	case b.Single || b.Hold.Count > 0:
		return b.Hold.named()
	}
	return count(b.Count) + " holds"
}

// kind is the class of a bar.
func (b Bar) kind() string {
	names := []string{"bar"}
	switch {
	case b.Loud:
		names = append(names, "bar-loud")
	case b.Doubtful:
		names = append(names, "bar-doubtful")
	default:
		names = append(names, "bar-quiet")
	}
	if b.Ongoing {
		names = append(names, "bar-on")
	}
	if b.Chosen {
		names = append(names, "bar-chosen")
	}
	if !b.Single {
		names = append(names, "bar-many")
	}
	return strings.Join(names, " ")
}

// missing is why the history lacks a time, as a sentence goes on after "because".
func missing(cause string) string {
	switch cause {
	case "before":
		return "the history does not reach back that far"
	case "many":
		return "there were too many holds since: choose a shorter range"
	case "stopped":
		return "the gateway did not run"
	case "lagged", "dropped":
		return "the history fell behind"
	case "disk":
		return "the disk took nothing"
	case "zookeeper":
		return "the gateway had no ZooKeeper session"
	case "damaged":
		return "the file of the history was damaged"
	}
	return "the gateway did not see it"
}

// partsMissing is how many parts of the time the history lacks.
func partsMissing(n int) string {
	if n == 1 {
		return "1 part of this time is not recorded"
	}
	return count(n) + " parts of this time are not recorded"
}

// listed is how many holds the list has.
func (t Timeline) listed() string {
	switch {
	case t.More:
		return "The latest " + count(len(t.Holds)) + " of more than " + count(t.Number) + " holds as a list"
	case t.Number > len(t.Holds):
		return "The latest " + count(len(t.Holds)) + " of " + count(t.Number) + " holds as a list"
	}
	return counted(t.Number, "hold") + " as a list"
}

// none is why the list is empty.
func (t Timeline) none() string {
	if len(t.Missing) > 0 {
		return "No hold is recorded in this time, of which the history lacks a part."
	}
	return "The lock was free in this time."
}

// mode is the mode of a hold, with its permits.
func (h Hold) mode() string {
	if h.Permits > 0 {
		return h.Mode + ", " + counted(h.Permits, "permit")
	}
	return h.Mode
}

// formOf takes an address apart for a form, which sends parameters of its own.
func formOf(address string) (action string, hidden []Link) {
	u, err := url.Parse(address)
	if err != nil {
		return address, nil
	}
	for name, list := range u.Query() {
		hidden = append(hidden, Link{Name: name, URL: list[0]})
	}
	slices.SortFunc(hidden, func(a, b Link) int { return strings.Compare(a.Name, b.Name) })
	u.RawQuery = ""
	return u.String(), hidden
}

// told are the latest parts that are missing, in words.
func (t Timeline) told() []Missing {
	const most = 6
	var list []Missing
	for i := len(t.Missing) - 1; i >= 0 && len(list) < most; i-- {
		list = append(list, t.Missing[i])
	}
	return list
}

// atWords says who held at the instant that is marked, before their names.
func (t Timeline) atWords() string {
	when := minute(t.At) + ": "
	switch {
	case t.AtFuture:
		return when + "this time has not come yet."
	case len(t.AtHolds) == 0 && t.AtMissing != "":
		return when + "the history does not know of a holder: " + missing(t.AtMissing) + "."
	case len(t.AtHolds) == 0:
		return when + "the lock was free."
	case len(t.AtHolds) == 1 && t.AtHolds[0].Count > 0:
		return when + "it went through"
	case len(t.AtHolds) == 1 && t.AtHolds[0].Doubtful:
		return when + "this may have held it:"
	}
	return when + "it was held by"
}

// field is an instant as a browser's field has it, where the parts are a "T" apart.
func field(t time.Time, apart string) string {
	form := time.DateOnly + apart + "15:04"
	switch {
	case t.IsZero():
		return ""
	case t.Second() != 0:
		form += ":05"
	}
	return t.UTC().Format(form)
}
