package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

const pagePinned = "pinned"

// maxPinned is how many locks the page has: each is asked for by itself.
const maxPinned = 20

// pinnedPage is the locks that a viewer has pinned. The gateway does not know which these are: its browser names them.
type pinnedPage struct {
	plain
	pins string // NAMESPACE/NAME, one a line
}

func parsePinned(_ string, values url.Values) (page, *refusal) {
	var pins []string
	for pin := range strings.SplitSeq(values.Get("pin"), ",") {
		if pin == "" || slices.Contains(pins, pin) {
			continue
		}
		ns, lock, ok := strings.Cut(pin, "/")
		name, err := url.PathUnescape(lock)
		if !ok || err != nil || ns == "" || name == "" || visible(name) != name {
			return nil, wrongParameter(http.StatusUnprocessableEntity, "pin is NAMESPACE/NAME, with commas between, each name percent-encoded; %s is not.", quoted(pin))
		}
		pins = append(pins, ns+"/"+url.PathEscape(name))
	}
	if len(pins) > maxPinned {
		return nil, wrongParameter(http.StatusUnprocessableEntity, "pin has %d locks; %d at most may be pinned.", len(pins), maxPinned)
	}
	return pinnedPage{pins: strings.Join(pins, ",")}, nil
}

func (pinnedPage) name() string  { return pagePinned }
func (pinnedPage) title() string { return "Pinned locks" }

func (p pinnedPage) own() (subject string, parameters url.Values) {
	return "", differing([3]string{"pin", p.pins})
}

// waits: a lock may have to be read of ZooKeeper.
func (pinnedPage) waits() bool { return true }

func (p pinnedPage) read(ctx context.Context, from *Options, as reading) (content, error) {
	shown := &pinnedContent{templates.Pinned{Page: as.frame, WithNS: len(as.info.Namespaces) > 1}}
	shown.Sheet = "overview.css"
	for pin := range strings.SplitSeq(p.pins, ",") {
		ns, escaped, _ := strings.Cut(pin, "/")
		name, err := url.PathUnescape(escaped)
		if err != nil || name == "" {
			continue
		}
		// A lock that the viewer may not read is not there, nor one of a namespace that is gone.
		if l, err := from.Locks.Lock(ctx, locks.LockRequest{Principal: as.who, NS: ns, Lock: name, Limit: 1}); err == nil {
			row := as.row(&l)
			row.Pinned = true
			shown.Rows = append(shown.Rows, row)
		}
	}
	return shown, nil
}

type pinnedContent struct{ templates.Pinned }

func (c *pinnedContent) document() templ.Component { return templates.PinnedPage(c.Pinned) }
func (c *pinnedContent) parts() []part {
	return []part{{"pinned", templates.PinnedFragment(c.Pinned)}}
}
