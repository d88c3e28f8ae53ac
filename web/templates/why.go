package templates

import (
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
)

// text is what a waiter waits for, "" when its place in line says it.
func (w Why) text() string {
	switch {
	case w.Need > 0 && w.Free == 0:
		return "needs " + counted(w.Need, "permit") + "; those ahead leave none of " + count(w.Of)
	case w.Need > 0:
		return "needs " + counted(w.Need, "permit") + "; those ahead leave " + count(w.Free) + " of " + count(w.Of)
	case w.Delay:
		text := "waits for the end of " + who(w.For[0]) + "'s lock delay"
		if !w.Until.IsZero() {
			text += ":"
		}
		return text
	}
	text := w.inTheWay()
	if w.Together > 0 {
		if text != "" {
			text += "; "
		}
		text += "is granted with the next reader"
		if w.Together > 1 {
			text = strings.TrimSuffix(text, "reader") + counted(w.Together, "reader")
		}
	}
	return text
}

func (w Why) inTheWay() string {
	switch {
	case len(w.For) > 0 && w.Readers && w.Others > 0:
		return "waits for " + counted(len(w.For)+w.Others, "reader")
	case len(w.For) > 0:
		names := make([]string, 0, len(w.For)+1)
		for _, h := range w.For {
			names = append(names, who(h))
		}
		if w.Others > 0 {
			names = append(names, counted(w.Others, "other"))
		}
		return "waits for " + listed(names)
	case w.At > 0 && w.Writer:
		return "waits for the writer at " + count(w.At)
	case w.At > 0:
		return "waits for the one at " + count(w.At)
	}
	return ""
}

// listed is "a", "a and b" or "a, b and c".
func listed(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// barPart is a piece of the bar of permits.
type barPart struct {
	X, Width    string // percent of the bar
	Kind        string // "share", "rest" or "next"
	Text, Title string
}

// whole is what the bar's width stands for: the limit, unless more is taken.
func (p Permits) whole() int { return max(p.Limit, p.Taken, 1) }

// beyond reports whether what the next one needs goes beyond the limit: it hangs out of the bar.
func (p Permits) beyond() bool { return p.Next > 0 && p.Taken+p.Next > p.Limit }

func (p Permits) percent(n int) string {
	return strconv.FormatFloat(100*float64(n)/float64(p.whole()), 'f', 3, 64) + "%"
}

func (p Permits) parts() []barPart {
	var parts []barPart
	at := 0
	add := func(kind string, n int, text, title string) {
		parts = append(parts, barPart{X: p.percent(at), Width: p.percent(n), Kind: kind, Text: text, Title: title})
		at += n
	}
	for _, s := range p.Shares {
		title := who(s.Who) + ": " + counted(s.Permits, "permit")
		add("share", s.Permits, count(s.Permits)+" "+who(s.Who), title)
	}
	if rest := p.Taken - at; rest > 0 {
		add("rest", rest, count(rest)+" of others", counted(rest, "permit")+" of others")
	}
	if fits := min(p.Next, p.whole()-p.Taken); fits > 0 {
		add("next", fits, "", p.nextTitle())
	}
	return parts
}

func (p Permits) nextTitle() string { return who(p.NextWho) + " needs " + counted(p.Next, "permit") }

// nextNeeds is what the first in line lacks.
func (p Permits) nextNeeds() string {
	free := max(p.Limit-p.Taken, 0)
	verb := " are free"
	if free == 1 {
		verb = " is free"
	}
	return who(p.NextWho) + " needs " + count(p.Next) + ", " + count(free) + verb
}

// permitTag is how many permits of how many.
func permitTag(c Contender) string {
	if c.Limit > 0 {
		return count(c.Permits) + " of " + counted(c.Limit, "permit")
	}
	return counted(c.Permits, "permit")
}

func limitTitle(v Lock) string {
	if v.LimitAgreed {
		return "agreed by the acquire that named it; it goes with the idle lock"
	}
	return "set for this lock"
}

// occupancy is the number of holders, in a word or two.
func (v Lock) occupancy() string {
	switch {
	case v.State == "delayed":
		return "no holder"
	case v.State == "queued" && v.HolderCount > 0:
		return count(v.HolderCount) + " at the front"
	}
	return counted(v.HolderCount, "holder")
}

// endedWord is a reason in a word or two.
func endedWord(reason string) string {
	if reason == "" {
		return "unknown"
	}
	return strings.ReplaceAll(reason, "_", " ")
}

// explained is why something happened, as people read it: a reason of the
// gateway's own list in a sentence, "" when the event says it itself; then the
// caller's reason.
func explained(h Happening) string {
	why := sentenceOf(h)
	switch {
	case h.Detail == "":
		return why
	case why == "":
		return h.Detail
	}
	return why + ": " + h.Detail
}

func sentenceOf(h Happening) string {
	if h.Event == "lease.revoke_requested" { // the asker's own words
		return h.Reason
	}
	switch h.Reason {
	case "released", "cancelled":
		return ""
	case "expired":
		return "no heartbeat"
	case "unclaimed":
		return "granted, never claimed"
	case "wait_elapsed":
		return "its wait time was over"
	case "would_deadlock":
		return "it waited in a deadlock"
	case "removed":
		return "znode deleted by another program"
	case "unknown":
		return "reason unknown"
	case "revoked":
		return "by an administrator"
	case "destroyed":
		return "lock destroyed"
	case "gateway_left":
		return "ephemeral: its gateway's session has ended"
	}
	return h.Reason
}

// reserved reports whether no heartbeat keeps its lease.
func (c Contender) reserved() bool { return !c.EndsAt.IsZero() || c.ReservedFor > 0 }

// day is a time of which the date matters, too.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// signature changes when a holder is worth a glance.
func (c Contender) signature() string {
	switch {
	case c.Delayed:
		return "delayed"
	case c.Asked != nil:
		return "asked"
	}
	return "holder"
}

// target is what a dialog says of a contender that it may end.
func target(c Contender) templ.Attributes {
	a := templ.Attributes{"data-who": who(c.Who), "data-znode": c.Znode}
	if c.LeaseID != "" {
		a["data-lease-id"] = c.LeaseID // the URL that breaks it follows from that
	} else {
		a["data-break"] = c.Break
	}
	if c.CanAsk {
		a["data-ask"] = ""
	}
	if c.Foreign {
		a["data-foreign"] = foreignLabel(c.Who)
	}
	if c.Delayed {
		a["data-over"] = ""
	}
	if len(c.Group) > 0 {
		names := make([]string, len(c.Group))
		for i, l := range c.Group {
			names[i] = l.Name
		}
		a["data-group"] = listed(names)
	}
	return a
}

// askable is what a dialog needs to ask the holder of a row; nothing when it cannot be asked.
func askable(v Owner, row OwnedRow) templ.Attributes {
	if row.Revoke == "" {
		return nil
	}
	name := row.Lock.Name
	if v.Host {
		name += ", " + who(row.Who)
	}
	return templ.Attributes{"data-who": name, "data-lease-id": row.LeaseID, "data-revoke": row.Revoke}
}
