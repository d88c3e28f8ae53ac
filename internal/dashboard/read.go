package dashboard

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/a-h/templ"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

// notReached is what a page shows before the first state.
const notReached = "ZooKeeper has not been reached yet. The content appears as soon as it is."

// read asks for what p shows to who; kept are the events that p keeps, the newest first. See page.read.
func (d *Dashboard) read(ctx context.Context, p page, who locks.Principal, kept []*events.Event) (content, error) {
	info := d.status.get(ctx).For(who)
	return p.read(ctx, &d.opt, reading{who: who, kept: kept, info: info, waits: d.waits, memory: d.memory, lookout: d.lookout, fleet: d.fleet, trends: d.trends, frame: templates.Page{
		Title: p.title() + " · Lockkeeper", Status: d.status.statusOf(info, who), Live: liveURL(p), Poll: pollURL(p), Assets: d.assets, Pages: d.Navigation(), Here: rowNamed(p.name()).navPath(), Credential: d.opt.Logins != nil,
	}})
}

// problemOf is the sentence that a page shows in place of its content.
func problemOf(err error) string {
	var e *locks.Error
	switch {
	case !errors.As(err, &e):
		return "The gateway could not read this. See its log."
	case e.Code == locks.CodeUnavailable:
		return notReached
	}
	return sentence(visible(e.Detail))
}

// refusalOf is the refusal when err means that there is no such page; nil when the
// page itself shows the error.
func refusalOf(err error) *refusal {
	var e *locks.Error
	var known *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case !errors.As(err, &e):
		return &refusal{status: http.StatusInternalServerError, title: "Internal error", detail: problemOf(err)}
	case e.Code == locks.CodeUnavailable:
		return nil
	case e.Code == locks.CodeInvalid && e.Field == "lock":
		return &refusal{status: http.StatusUnprocessableEntity, title: "No lock can have this name", detail: sentence(visible(e.Detail))}
	case e.Code == locks.CodeInvalid:
		return &refusal{status: http.StatusUnprocessableEntity, title: "Invalid URL", detail: sentence("The parameter " + e.Field + ": " + visible(e.Detail))}
	case e.Code == locks.CodeForbidden:
		return &refusal{status: http.StatusForbidden, title: "Not for you to see", detail: sentence(visible(e.Detail))}
	case e.Code == locks.CodeNamespaceUnknown:
		return &refusal{status: http.StatusNotFound, title: "There is no such namespace", detail: sentence(visible(e.Detail))}
	}
	return &refusal{status: http.StatusInternalServerError, title: "Internal error", detail: problemOf(err)}
}

// sentence begins with a capital and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return s
	}
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + strings.TrimSuffix(s[size:], ".") + "."
}

// statusID is the fragment that every page has: the first of them.
const statusID = "status"

func render(ctx context.Context, c templ.Component) ([]byte, error) {
	var b bytes.Buffer
	err := c.Render(ctx, &b)
	return b.Bytes(), err
}

func renderStatus(ctx context.Context, s templates.Status, now time.Time) ([]byte, error) {
	s.Now = now.UTC()
	return render(ctx, templates.StatusFragment(s))
}
