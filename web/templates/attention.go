package templates

import "time"

// Attention is what an operator should look at first.
type Attention struct {
	Waits []LongWait
	Hooks []WebhookRow // to which nothing gets through
}

// LongWait is a lock whose first in line waits for much longer than is usual.
type LongWait struct {
	NS, Name, URL string
	Who           Who
	Since         time.Time
	Usually       time.Duration
	Waiting       int
}

// usually says what is usual in a word or two.
func (w LongWait) usually() string {
	if w.Usually < time.Second {
		return "usually under 1 s"
	}
	return "usually " + SpanText(w.Usually.Round(time.Second))
}

func (a Attention) nothing() bool { return len(a.Waits)+len(a.Hooks) == 0 }

// rangeText says which of how many locks are shown: "1–50 of 5,047". Where the page begins is not known behind its first page.
func (v Overview) rangeText() string {
	switch n := len(v.Rows); {
	case v.Total < n || n == 0:
		return ""
	case v.First == "":
		return "1–" + count(n) + " of " + count(v.Total)
	default:
		return count(n) + " of " + count(v.Total)
	}
}

// Pinned are locks that the viewer has pinned. Its fragment: "pinned".
type Pinned struct {
	Page
	Rows   []LockRow
	WithNS bool
}

func (v Overview) searches() bool { return v.Query != "" || v.State != "" }
