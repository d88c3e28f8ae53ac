package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

const pageWall = "wall"

// maxCards is how many locks the wall has: more cannot be read from where one stands.
const maxCards = 24

// The shortest and the longest time after which a wait may be called too long.
const (
	minWarn = time.Second
	maxWarn = 7 * 24 * time.Hour
)

// wallPage is for a screen on a wall: locks as cards.
type wallPage struct {
	plain
	ns    string
	query string        // part of the locks' names
	warn  time.Duration // after which a wait is too long; 0: when it is unusual
}

func parseWall(_ string, values url.Values) (page, *refusal) {
	p := wallPage{ns: namespaceOf(values), query: strings.TrimSpace(values.Get("q"))}
	if text := values.Get("warn"); text != "" {
		var err error
		if p.warn, err = time.ParseDuration(text); err != nil || p.warn < minWarn || p.warn > maxWarn {
			return nil, wrongParameter(http.StatusUnprocessableEntity, "warn is a time from 1s to 168h, such as 10m, not %s.", quoted(text))
		}
	}
	return p, nil
}

func (wallPage) name() string  { return pageWall }
func (wallPage) title() string { return "Wall" }

func (p wallPage) own() (subject string, parameters url.Values) {
	warn := ""
	if p.warn > 0 {
		warn = p.warn.String()
	}
	return "", differing([3]string{"ns", p.ns, locks.DefaultNamespace}, [3]string{"q", p.query}, [3]string{"warn", warn})
}

// waits: what is usual is asked of the history.
func (wallPage) waits() bool      { return true }
func (p wallPage) searches() bool { return p.query != "" }

func (p wallPage) read(ctx context.Context, from *Options, as reading) (content, error) {
	shown := &wallContent{templates.Wall{Page: as.frame, Query: p.query}}
	shown.Sheet = "activity.css"
	list, err := from.Locks.Locks(ctx, locks.LockFilter{Principal: as.who, NS: p.ns, Contains: p.query, Sort: locks.SortWaiters, Limit: maxCards})
	if err != nil {
		shown.Problem = problemOf(err)
		return shown, err
	}
	shown.More = list.NextCursor != ""
	within, cancel := context.WithTimeout(ctx, attentionWithin)
	defer cancel()
	for i := range list.Items {
		shown.Cards = append(shown.Cards, p.card(within, from, as, &list.Items[i]))
	}
	slices.SortStableFunc(shown.Cards, func(a, b templates.Card) int { // those that wait too long first, then by name: cards stay where they are
		if a.TooLong != b.TooLong {
			if a.TooLong {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return shown, nil
}

// card is a lock's card. Who waits is asked of the lock where anything does.
func (p wallPage) card(ctx context.Context, from *Options, as reading, l *locks.Lock) templates.Card {
	c := templates.Card{LockRow: as.row(l)}
	if l.QueueLength == 0 {
		return c
	}
	if p.warn == 0 {
		if w, long := longWait(ctx, from.Locks, as.memory, as.who, l.NS, l.Name); long {
			c.TooLong, c.Waits = true, w.Since
			return c
		}
	}
	if whole, err := from.Locks.Lock(ctx, locks.LockRequest{Principal: as.who, NS: l.NS, Lock: l.Name, Limit: 1}); err == nil && len(whole.Waiters) > 0 && whole.Waiters[0].AgeKnown {
		first := &whole.Waiters[0]
		c.Waits, c.TooLong = first.At.Add(-first.Age), p.warn > 0 && first.Age >= p.warn
	}
	return c
}

type wallContent struct{ templates.Wall }

func (c *wallContent) document() templ.Component { return templates.WallPage(c.Wall) }
func (c *wallContent) parts() []part {
	return []part{{"wall", templates.WallFragment(c.Wall)}}
}
