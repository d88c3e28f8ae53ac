package chaos

import (
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/test/chaos/check"
)

// Recorder collects the history of a run. All times are of its one clock.
type Recorder struct {
	began time.Time

	recording sync.Mutex
	history   check.History
	open      []check.Span // broken, and not yet mended
}

func (r *Recorder) now() time.Duration { return time.Since(r.began) }

func (r *Recorder) did(o check.Op) {
	r.recording.Lock()
	defer r.recording.Unlock()
	r.history.Ops = append(r.history.Ops, o)
}

func (r *Recorder) saw(l check.Listing) {
	r.recording.Lock()
	defer r.recording.Unlock()
	r.history.Listings = append(r.history.Listings, l)
}

func (r *Recorder) breaking(s check.Span) {
	r.recording.Lock()
	defer r.recording.Unlock()
	r.open = append(r.open, s)
}

func (r *Recorder) mended(s check.Span) {
	r.recording.Lock()
	defer r.recording.Unlock()
	r.open = slices.DeleteFunc(r.open, func(o check.Span) bool { return o.Kind == s.Kind && o.From == s.From })
	r.history.Spans = append(r.history.Spans, s)
}

// sofar is the history until now. What is still broken ends now.
func (r *Recorder) sofar() check.History {
	r.recording.Lock()
	defer r.recording.Unlock()
	h := check.History{Ops: slices.Clone(r.history.Ops), Listings: slices.Clone(r.history.Listings), Spans: slices.Clone(r.history.Spans)}
	for _, s := range r.open {
		s.To = r.now()
		h.Spans = append(h.Spans, s)
	}
	return h
}
