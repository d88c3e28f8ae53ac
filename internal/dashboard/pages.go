package dashboard

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

// maxSearches is how many pages and polls search all locks at a time.
const maxSearches = 2

// page answers with the whole page of a row and a subject.
func (d *Dashboard) page(w http.ResponseWriter, r *http.Request, at *row, subject string) {
	p, wrong := pageAt(r, at, subject)
	if wrong != nil {
		d.refuse(w, r, wrong)
		return
	}
	who := visitor(r)
	if to := d.readableInstead(r, p, who); to != "" {
		http.Redirect(w, r, to, http.StatusFound)
		return
	}
	c, err := d.readOnce(r.Context(), p, who)
	if wrong := refusalOf(err); wrong != nil {
		d.failed(r, wrong, err)
		d.refuse(w, r, wrong)
		return
	}
	c.Frame().Status.Now, c.Frame().Viewer = time.Now().UTC(), d.shownViewer(r)
	html, err := render(r.Context(), c.document())
	d.answer(w, r, http.StatusOK, packed(r, w.Header(), html), err)
}

// poll answers with all fragments of a page, one after the other, like the
// first push of its socket.
func (d *Dashboard) poll(w http.ResponseWriter, r *http.Request) {
	p, wrong := livePage(r)
	if wrong != nil {
		d.refuse(w, r, wrong)
		return
	}
	who := visitor(r)
	if snap := d.snapshotOf(sightOf(p, who)); snap != nil {
		html, err := snap.message(r.Context())
		d.answer(w, r, http.StatusOK, packed(r, w.Header(), html), err)
		return
	}
	c, err := d.readOnce(r.Context(), p, who)
	// The fragments themselves say what is wrong with the page.
	if wrong := refusalOf(err); wrong != nil && wrong.status >= http.StatusInternalServerError {
		d.failed(r, wrong, err)
		d.refuse(w, r, wrong)
		return
	}
	html, err := renderStatus(r.Context(), c.Frame().Status, time.Now())
	for _, part := range c.parts() {
		if err != nil {
			break
		}
		var fragment []byte
		fragment, err = render(r.Context(), part.component)
		html = append(html, fragment...)
	}
	d.answer(w, r, http.StatusOK, packed(r, w.Header(), html), err)
}

// readOnce reads what p shows to one visitor. A filter may have to search
// every lock; such requests take turns, so they use the lock
// manager for a small part of the time however many they are.
func (d *Dashboard) readOnce(ctx context.Context, p page, who locks.Principal) (content, error) {
	if p.searches() {
		select {
		case d.searching <- struct{}{}:
			defer func() { <-d.searching }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if ctx.Err() != nil { // the request ended while it waited
			return nil, context.Cause(ctx)
		}
	}
	return d.read(ctx, p, who, d.recent(p, who))
}

// recent are the events that the hub remembers of those that a page keeps.
func (d *Dashboard) recent(p page, who locks.Principal) []*events.Event {
	k := p.keeps(who.Rules)
	if k == nil {
		return nil
	}
	k.begin(d.opt.Events)
	return k.events
}

// refuse answers with the page that says what is wrong.
func (d *Dashboard) refuse(w http.ResponseWriter, r *http.Request, wrong *refusal) {
	page := templates.Page{Title: wrong.title + " · Lockkeeper", Assets: d.assets, Pages: d.Navigation(), Viewer: d.shownViewer(r)}
	if who := visitor(r); who.Rules.Nothing() {
		page.Bare = true
	} else {
		page.Status = d.status.statusOf(d.status.get(r.Context()), who)
		page.Status.Now = time.Now().UTC()
	}
	html, err := render(r.Context(), templates.ProblemPage(templates.Problem{
		Page: page, Status: wrong.status, Title: wrong.title, Detail: wrong.detail, LogIn: wrong.logIn,
	}))
	d.answer(w, r, wrong.status, html, err)
}

// answer sends HTML that was rendered, and perhaps packed, whole before its first byte is out.
func (d *Dashboard) answer(w http.ResponseWriter, r *http.Request, status int, html []byte, err error) {
	if err != nil {
		if r.Context().Err() == nil {
			d.opt.Logger.Error("a page could not be rendered", "path", r.URL.Path, "error", err)
		}
		w.Header().Del("Content-Encoding")
		http.Error(w, "the page could not be rendered; see the gateway's log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(html)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(html) // an error: the client is gone
	}
}

// failed logs what is the gateway's own fault.
func (d *Dashboard) failed(r *http.Request, wrong *refusal, err error) {
	if wrong.status >= http.StatusInternalServerError && r.Context().Err() == nil {
		d.opt.Logger.Error("a page could not be read", "path", r.URL.Path, "error", err)
	}
}

// snapshotOf is the latest that a topic has rendered, nil when
// there is none.
func (d *Dashboard) snapshotOf(at sight) *snapshot {
	d.mu.Lock()
	t := d.topics[at]
	d.mu.Unlock()
	if t == nil {
		return nil
	}
	if snap := t.latest.Load(); snap.seq > 0 {
		return snap
	}
	return nil
}
