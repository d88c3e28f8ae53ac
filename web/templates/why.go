package templates

import (
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
	Kind        string // "share", "rest", "next" or "beyond" (the limit)
	Text, Title string
}

// room is what part of the bar's width the limit has, when something hangs out at its right; the rest is for that.
const room = 84.0

// edge is where the limit is: the right end of the bar, unless more is taken, or needed, than there is.
func (p Permits) edge() string {
	if p.missing() > 0 {
		return percent(room)
	}
	return "100%"
}

// missing is by how much what is taken and what the next one needs go beyond the limit.
func (p Permits) missing() int { return max(p.Taken+p.Next-p.Limit, 0) }

// at is where a number of permits is in the bar. Beyond the limit it is drawn as long as there is room.
func (p Permits) at(n int) float64 {
	limit := float64(max(p.Limit, 1))
	whole := 100.0
	if p.missing() > 0 {
		whole = room
	}
	if n <= p.Limit {
		return whole * float64(n) / limit
	}
	return min(whole+whole*float64(n-p.Limit)/limit, 100)
}

func (p Permits) parts() []barPart {
	var parts []barPart
	at := 0
	put := func(kind string, n int, text, title string) {
		if n > 0 {
			parts = append(parts, barPart{X: percent(p.at(at)), Width: percent(p.at(at+n) - p.at(at)), Kind: kind, Text: text, Title: title})
		}
		at += n
	}
	for _, s := range p.Shares {
		put("share", s.Permits, count(s.Permits)+" "+who(s.Who), who(s.Who)+": "+counted(s.Permits, "permit"))
	}
	if rest := p.Taken - at; rest > 0 {
		put("rest", rest, count(rest)+" of others", counted(rest, "permit")+" of others")
	}
	if p.Next > 0 {
		title := who(p.NextWho) + " needs " + counted(p.Next, "permit")
		free := min(max(p.Limit-at, 0), p.Next)
		put("next", free, "", title)
		put("beyond", p.Next-free, "+"+count(p.Next-free), title)
	}
	return parts
}

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
		return "its client stopped heartbeating"
	case "unclaimed":
		return "granted, and not claimed by its client"
	case "wait_elapsed":
		return "its wait time was over"
	case "would_deadlock":
		return "it waited in a deadlock"
	case "removed":
		return "its znode was deleted by another program"
	case "unknown":
		return "this gateway does not know why"
	case "revoked":
		return "by an administrator"
	case "destroyed":
		return "the lock was destroyed"
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
	a := templ.Attributes{"data-who": who(c.Who), "data-break": c.Break}
	a["data-znode"] = c.Znode
	if c.LeaseID != "" {
		a["data-lease"], a["data-lease-id"] = tail(c.LeaseID), c.LeaseID
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
	return templ.Attributes{"data-who": name, "data-lease": tail(row.LeaseID), "data-lease-id": row.LeaseID, "data-revoke": row.Revoke}
}
