package history

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/events"
)

// The defaults of Options, and the bounds of what may be given.
const (
	DefaultKeep = 168 * time.Hour
	DefaultSize = 200 << 20
	// MemorySize is how much a store in memory may take at most.
	MemorySize = 32 << 20
	MinSize    = 1 << 20
	MinKeep    = time.Minute
	MaxKeep    = 366 * 24 * time.Hour
	MaxSize    = 1 << 40
)

// How long the parts wait.
const (
	retryOpen = 30 * time.Second // until a store that could not be opened is tried again
	flushes   = time.Second      // between two batches of the follower
	maxQueued = 64               // batches before the writer
	maxBatch  = 2048             // operations after which a batch is full
)

// Metrics receives what happens to the store. Implementations must be quick and safe for concurrent use.
type Metrics interface {
	// HistoryState says how full the store is, and whether it takes what happens.
	HistoryState(rows, bytes int64, on bool)
	// HistoryDropped counts what was not written, and HistoryFailed what went wrong.
	HistoryDropped(n int)
	HistoryFailed()
}

// Source is another gateway of the fleet.
type Source struct {
	Gateway string
	Ask     func(ctx context.Context, q Query) (Answer, error)
}

// Options of a History.
type Options struct {
	Dir  string        // "": in memory
	Keep time.Duration // 0: DefaultKeep
	Size int64         // in bytes; 0: DefaultSize
	Hub  *events.Hub
	Now  Now
	// Others are the gateways that may fill a gap.
	Others  func() []Source
	Metrics Metrics      // nil: none
	Log     *slog.Logger // nil: none
}

// History is a gateway's memory. Make one with New and run it with Run; its queries answer ErrOff before that, and whenever
// there is no store. All methods are safe for concurrent use.
type History struct {
	opt   Options
	store atomic.Pointer[store] // nil: none is open
	// using is held for reading by queries, and for writing when the store is closed.
	using sync.RWMutex

	mu     sync.Mutex
	status Status
	cached map[string]cachedStats

	dropped atomic.Uint64
}

// Status says how the store is.
type Status struct {
	On      bool   // it takes what happens
	Place   string // the directory; "" in memory
	Problem string // why it is not on, or what became of a damaged file; "" for none
	Since   time.Time
	Rows    int64
	Bytes   int64
	Size    int64
	Keep    time.Duration
	Dropped uint64 // operations that were not written
	Gaps    []Gap  // that are not filled, the newest first
}

// ErrOff is the answer of a query when there is no store.
var ErrOff = errors.New("this gateway has no history now")

// New makes a History. It opens nothing.
func New(o Options) *History {
	if o.Keep <= 0 {
		o.Keep = DefaultKeep
	}
	if o.Size <= 0 {
		o.Size = DefaultSize
	}
	if o.Dir == "" {
		o.Size = min(o.Size, MemorySize)
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h := &History{opt: o, cached: map[string]cachedStats{}}
	h.status = Status{Place: o.Dir, Size: o.Size, Keep: o.Keep, Problem: "it is being opened"}
	return h
}

// Run keeps the history until ctx ends; then it writes what it has. It returns nil: no failure of the store ends the gateway.
func (h *History) Run(ctx context.Context) error {
	for cause := ""; ctx.Err() == nil; {
		// What happens while the store is opened is in the hub's ring.
		first, _ := h.opt.Hub.Subscribe(following, "") // without a place the follower asks again
		from := time.Now()
		s, err := openStore(ctx, h.opt.Dir, h.opt.Size)
		if err == nil {
			err = h.follow(ctx, s, cause, first, from)
			h.using.Lock()
			h.store.Store(nil)
			s.close()
			h.using.Unlock()
		}
		if first != nil {
			first.Close()
		}
		switch {
		case ctx.Err() != nil || err == nil:
			return nil
		case errors.Is(err, errDamaged):
			cause = CauseDamaged
		}
		h.fail(err)
		wait := time.NewTimer(retryOpen)
		if cause == CauseDamaged && h.opt.Dir != "" {
			wait.Reset(time.Second) // the next opening sets it aside
		}
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
	}
	return nil
}

// follow works on an open store until ctx ends or the store is of no use any more.
func (h *History) follow(ctx context.Context, s *store, cause string, first *events.Subscriber, from time.Time) error {
	w, err := newWriter(ctx, h, s)
	if err != nil {
		return err
	}
	defer w.close()
	missed := w.gapAtStart(cause, from)
	if err := w.write(&batch{at: time.Now(), read: from, ops: []op{{do: doGap, gap: *missed}}}); err != nil {
		return err
	}
	h.opened(s, w)
	queue := make(chan *batch, maxQueued)
	f := newFollower(h, queue, missed)
	f.first = first
	running, stop := context.WithCancel(ctx)
	defer stop()
	var parts sync.WaitGroup
	parts.Go(func() { f.run(running); close(queue) })
	parts.Go(func() { h.fillGaps(running, queue) })
	err = w.run(queue)
	stop()
	for range queue { // what the follower still gives: the store takes nothing
	}
	parts.Wait()
	return err
}

// opened says that there is a store.
func (h *History) opened(s *store, w *writer) {
	h.mu.Lock()
	h.status.On = w.failed.IsZero()
	if h.status.On {
		h.status.Problem = ""
	}
	if s.aside != "" {
		h.status.Problem = "a damaged file was moved to " + s.aside
		if errors.Is(s.found, errNewerOne) {
			h.status.Problem = "a file of another form, or of another program, was moved to " + s.aside
		}
	}
	h.status.Since = w.since
	h.mu.Unlock()
	h.store.Store(s)
	where := s.path
	if where == "" {
		where = "memory"
	}
	h.opt.Log.Info("the history is open", "in", where, "rows", w.rows, "since", w.since.UTC().Format(time.RFC3339))
	if s.aside != "" {
		h.opt.Log.Error("the file of the history cannot be used: it was moved aside, and a new one begins", "why", s.found, "to", s.aside)
	}
}

// fail says that there is none, or that it takes nothing.
func (h *History) fail(err error) {
	h.mu.Lock()
	new := h.status.On || h.status.Problem != err.Error()
	h.status.On, h.status.Problem = false, err.Error()
	rows, bytes := h.status.Rows, h.status.Bytes
	h.mu.Unlock()
	h.opt.Metrics.HistoryFailed()
	h.opt.Metrics.HistoryState(rows, bytes, false)
	if new {
		h.opt.Log.Error("the history takes nothing; the gateway goes on without it", "err", err)
	}
}

// lost counts what was not written.
func (h *History) lost(n int) {
	h.dropped.Add(uint64(n))
	h.opt.Metrics.HistoryDropped(n)
}

// Status says how the store is.
func (h *History) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.status
	s.Dropped = h.dropped.Load()
	return s
}

type noMetrics struct{}

func (noMetrics) HistoryState(int64, int64, bool) {}
func (noMetrics) HistoryDropped(int)              {}
func (noMetrics) HistoryFailed()                  {}
