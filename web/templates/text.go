package templates

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A fragment is pushed when its bytes have changed. So nothing here reads a
// clock: a time is rendered as an instant, and the page makes "3m 12s" of it.

// iso is a time for machines and for titles, "" for none.
func iso(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// millis is a time for the page's script.
func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// clock is a time for readers whose browser runs no script.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// stamp is clock with milliseconds.
func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000 UTC") }

// count writes 12345 as "12,345".
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// counted is a number with its noun: "1 lock", "2 locks".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// tail is the end of a lease id or session: all of one gateway begin alike.
func tail(id string) string {
	const shown = 8
	if len(id) <= shown+1 {
		return id
	}
	return "…" + id[len(id)-shown:]
}

// within is path as seen from dir.
func within(dir, path string) string {
	if path == dir {
		return "(the directory itself)"
	}
	if rest, ok := strings.CutPrefix(path, dir+"/"); ok {
		return rest
	}
	return path
}

// domID makes an element's id of kind and parts. Escaping keeps them apart, and
// white space, which an id may not have, out.
func domID(kind string, parts ...string) string {
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return kind + "/" + strings.Join(parts, "/")
}

// who is a contender's name.
func who(w Who) string {
	switch {
	case w.Owner != "":
		return w.Owner
	case w.Foreign && w.Program != "":
		return w.Program
	case w.Foreign:
		return "another program"
	case w.LeaseID != "":
		return "lease " + tail(w.LeaseID)
	}
	return "unnamed"
}

// foreignLabel is the chip of a contender that another program put there. It
// names the program unless who() does.
func foreignLabel(w Who) string {
	if w.Program == "" || w.Owner == "" {
		return "foreign"
	}
	return "foreign · " + w.Program
}

// signature changes when a row of the overview is worth a glance: another state
// or other holders. A queue that grows is not.
func (r LockRow) signature() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", r.State, r.HolderCount)
	for _, h := range r.Holders {
		b.WriteString(" " + tail(h.LeaseID))
	}
	return b.String()
}

// state as people read it.
func stateLabel(state string) string {
	if state == "" {
		return "unknown"
	}
	return state
}

// tone chooses a chip's colours; the text says the same.
func tone(state string) string {
	switch state {
	case "held", "free", "unclaimed", "queued", "delayed":
		return state
	}
	return "other"
}

// happened is an event's type as people read it: "lease.revoke_requested" is
// "revoke requested".
func happened(event string) string {
	subject, verb, ok := strings.Cut(event, ".")
	switch {
	case !ok:
		verb = event
	case subject == "deadlock": // "detected" alone says nothing
		verb = subject + " " + verb
	}
	return strings.ReplaceAll(verb, "_", " ")
}

// sign is the shape and colour of an event: something came, let in, left as it
// should, or was ended by something else than its client.
func sign(event string) string {
	switch event {
	case "lease.queued", "node.created", "gateway.joined":
		return "in"
	case "lease.granted", "zookeeper.connected":
		return "on"
	case "lease.released", "lease.cancelled", "lease.revoke_withdrawn", "node.deleted", "gateway.left":
		return "out"
	case "lease.expired", "lease.unclaimed", "lease.revoked", "lease.removed", "lease.revoke_requested", "lock.destroyed", "lock.hazard", "deadlock.detected", "webhook.dropped", "auth.refused",
		"zookeeper.suspended", "zookeeper.expired":
		return "lost"
	}
	return "was"
}

// mark is the sign of a znode's change in the log.
func mark(event string) string {
	switch event {
	case "node.created":
		return "+"
	case "node.deleted":
		return "−"
	case "node.changed":
		return "~"
	}
	return "·"
}

// zooKeeperLabel is the connection in words. One that is part of the gateway
// is named so: there is no other server to look for.
func zooKeeperLabel(state string, embedded bool) string {
	switch {
	case embedded && state == "connected":
		return "embedded"
	case embedded:
		return "embedded, down"
	}
	switch state {
	case "connected":
		return "connected"
	case "suspended":
		return "connection lost"
	}
	return "away"
}

// zooKeeperTone is the connection as a colour.
func zooKeeperTone(state string) string {
	switch state {
	case "connected":
		return "good"
	case "suspended":
		return "warn"
	}
	return "bad"
}

// trouble is why not everything works, "" when it does.
func (s Status) trouble() string {
	switch {
	case s.Serving:
		return ""
	case s.ZooKeeper == "suspended" && s.Embedded:
		return "This gateway cannot write to its disk. Leases keep their time, but locks can be neither acquired nor released until it can."
	case s.ZooKeeper == "suspended":
		return "The connection to ZooKeeper is lost. Leases keep their time, but locks can be neither acquired nor released until it is back."
	case s.ZooKeeper != "connected":
		return "There is no ZooKeeper session. Locks can be neither acquired nor released; held leases stay held."
	case !s.Trusted:
		return "Not trusted: ZooKeeper has not confirmed this gateway's writes for " + counted(int(s.PromiseWindow.Seconds()), "second") + "."
	case !s.ReplicaCurrent:
		return "This gateway lags behind ZooKeeper: this page may be out of date."
	}
	return "This gateway does not serve yet."
}

// stale: what the page shows may not be so any more.
func (s Status) stale() bool { return s.ZooKeeper != "connected" || !s.ReplicaCurrent }

// pips is how many waiters are drawn; more are only counted.
func pips(waiting int) int { return min(waiting, 12) }

// tabIndex of a row: the Tab key stops at the first alone.
func tabIndex(first bool) string {
	if first {
		return "0"
	}
	return "-1"
}

func flag(b bool) string { return strconv.FormatBool(b) }

// happenings and nodeEvents give every entry an id of its own: the same change
// twice in one millisecond differs in a number, counted from the oldest, so that
// what comes later does not rename what is there.
func happeningIDs(list []Happening) []string {
	return distinct(len(list), func(i int) string {
		h := list[i]
		return domID("was", millis(h.At), h.Event, tail(h.LeaseID))
	})
}

func nodeEventIDs(list []NodeEvent) []string {
	return distinct(len(list), func(i int) string {
		n := list[i]
		return domID("node", millis(n.At), n.Event, n.Path)
	})
}

func distinct(n int, id func(int) string) []string {
	ids, seen := make([]string, n), make(map[string]int, n)
	for i := n - 1; i >= 0; i-- {
		ids[i] = id(i)
		if seen[ids[i]]++; seen[ids[i]] > 1 {
			ids[i] += "/" + strconv.Itoa(seen[ids[i]])
		}
	}
	return ids
}

// decimal is a number for machines.
func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func chamberTitle(v Lock) string {
	switch n := v.HolderCount; {
	case v.State == "delayed":
		return "In lock delay"
	case n > 0 && v.State == "queued":
		return "At the front"
	case n == 0:
		return "Holder"
	case n == 1:
		return "Held by"
	case v.readersOnly():
		return "Held by " + counted(n, "reader") + " together"
	default:
		return "Held by " + count(n)
	}
}

func (v Lock) readersOnly() bool {
	for _, c := range v.Holders {
		if c.Mode != "shared" || c.Delayed {
			return false
		}
	}
	return true
}

// andMore is how many wait behind the page that is shown.
func andMore(v Lock) string {
	if len(v.Waiters) == 0 {
		return ""
	}
	if more := v.QueueLength - v.Waiters[len(v.Waiters)-1].Position; more > 0 {
		return "and " + count(more) + " more"
	}
	return ""
}

// whoTitle is all of a contender's names.
func whoTitle(w Who) string {
	title := strings.TrimSpace(w.Owner + " " + w.LeaseID)
	if w.Purpose != "" {
		title += ": " + w.Purpose
	}
	if w.Delayed {
		title += ": ended; its lock delay keeps its place"
	}
	return title
}

// modeTag is how a lock is held when that is not the usual way.
func (r LockRow) modeTag() string {
	switch {
	case r.Limit > 0:
		return count(r.Permits) + " of " + count(r.Limit)
	case r.Mode == "exclusive":
		return ""
	}
	return r.Mode
}

// cut parts a znode's name before the end that is always shown: its sequence
// number, of ten digits, and what stands before it.
func cut(name string) (head, end string) {
	const kept = 16
	runes := []rune(name)
	if len(runes) <= kept {
		return "", name
	}
	return string(runes[:len(runes)-kept]), string(runes[len(runes)-kept:])
}

// inNamespace is what a request for a lock of ns has in its query.
func inNamespace(ns string) string {
	if ns == "" || ns == "default" {
		return ""
	}
	return "&ns=" + url.QueryEscape(ns)
}

// everyLock is the overview of ns without a filter.
func everyLock(ns string) string {
	if in := inNamespace(ns); in != "" {
		return home + "?" + in[1:]
	}
	return home
}

// tokenFile has curl show a credential.
func tokenFile(needed bool) string {
	if needed {
		return "-H @TOKEN_FILE "
	}
	return ""
}

// shownName is a lock's name without the escapes that programs put into names of znodes; as it is where it has none, or where they do not make a text.
func shownName(name string) string {
	if !strings.Contains(name, "%") {
		return name
	}
	text, err := url.PathUnescape(name)
	if err != nil || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return name
	}
	return text
}
