package history

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/locks"
)

// batch is what is written in one transaction.
type batch struct {
	at   time.Time // when it was made
	read time.Time // until then the follower has read all events; zero: its maker read none
	ops  []op
}

// op is one operation of the writer.
type op struct {
	do    deed
	item  *Item
	gap   Gap       // doGap; doReconcile, doFill: for which one
	list  []*Item   // doReconcile: who holds; doFill: what another gateway has
	since time.Time // doReconcile: what began later is not in the list
	fill  *fill     // doFill
}

type deed uint8

const (
	doInsert deed = iota
	doEnd
	doAmend
	doGap
	doReconcile
	doFill
)

// How often the writer does what no batch asks for.
const (
	aliveEvery = 5 * time.Second  // notes that the gateway runs
	failPause  = 5 * time.Second  // after a failure, until the next try
	pruneEvery = 2 * time.Second  // deletes a step of what is too old
	namesEvery = 10 * time.Minute // deletes names that no row has
	writeTime  = 30 * time.Second // of one transaction
)

// writer owns the store's connection for writing. It belongs to one goroutine.
type writer struct {
	h     *History
	s     *store
	names names
	last  int64 // the id that was asked for last
	taken int64 // and what it became

	rows   int64
	doubt  time.Time // since then the rows that have not ended were not compared with who holds; zero: they were
	full   bool      // what has not ended fills the store: pruning does not help
	since  time.Time // how far back the store reaches
	failed time.Time // zero: the last write was done
	gone   time.Time // what was lost since; zero: nothing

	alive, pruned, named time.Time
	uses                 map[string]*sql.Stmt
	resting              bool // it has given back what it kept in memory, and there was nothing to write since
}

// newWriter reads what it has to know of the store.
func newWriter(ctx context.Context, h *History, s *store) (*writer, error) {
	w := &writer{h: h, s: s, uses: map[string]*sql.Stmt{}}
	now := time.Now()
	w.named = now
	if err := s.write.QueryRowContext(ctx, "SELECT count(*) FROM rows").Scan(&w.rows); err != nil {
		return nil, damage(err)
	}
	since, err := s.meta(ctx, "since")
	if err != nil {
		return nil, damage(err)
	}
	if doubt, err := s.meta(ctx, "doubt"); err != nil {
		return nil, damage(err)
	} else if doubt != 0 {
		w.doubt = time.UnixMicro(doubt)
	}
	w.since = time.UnixMicro(since)
	if since == 0 {
		w.since = now
		if _, err = s.write.ExecContext(ctx, "INSERT INTO meta VALUES('since', ?)", now.UnixMicro()); err != nil {
			return nil, damage(err)
		}
	}
	return w, nil
}

// gapAtStart is the time in which no process wrote, until the follower began; cause is "" unless the file before was damaged.
func (w *writer) gapAtStart(cause string, until time.Time) *Gap {
	g := &Gap{From: w.s.alive, To: until, Cause: cmp.Or(cause, CauseStopped)}
	if w.s.fresh || w.s.alive.IsZero() {
		g = &Gap{From: until.Add(-w.h.opt.Keep), To: until, Cause: causeBefore}
	}
	if w.doubt.IsZero() {
		w.doubt = g.From
	}
	return g
}

// run writes batches until the queue is closed. Its error says that the store is of no use any more.
func (w *writer) run(queue <-chan *batch) error {
	for b := range queue {
		if err := w.write(b); err != nil {
			return err
		}
	}
	return nil
}

// close lets go of the store's connection: with its last one SQLite puts its log into the file.
func (w *writer) close() {
	for _, s := range w.uses {
		_ = s.Close() // it was done with
	}
	w.uses = nil
}

// write writes one batch, and what is due.
func (w *writer) write(b *batch) error {
	if len(b.ops) > 0 {
		w.resting = false
	} else if !w.resting {
		w.rest()
	}
	if len(b.ops) == 0 && b.at.Sub(w.alive) < aliveEvery && b.at.Sub(w.pruned) < pruneEvery {
		return nil
	}
	if !w.failed.IsZero() && b.at.Sub(w.failed) < failPause {
		w.lose(b)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	err := damage(w.transact(ctx, b))
	if err == nil {
		w.written(b)
		return nil
	}
	w.names.forget() // those of the transaction that was not done
	w.lose(b)
	w.failed = b.at
	if errors.Is(err, errDamaged) {
		return err
	}
	w.h.fail(fmt.Errorf("writing: %w", err))
	return nil
}

// rest gives back what a burst has left in memory: the names, and the pages of the file. Both are read again where they are needed.
func (w *writer) rest() {
	w.names.forget()
	_, _ = w.s.write.ExecContext(context.Background(), "PRAGMA shrink_memory") // where it fails, the memory stays
	w.resting = true
}

// lose counts a batch that was not written.
func (w *writer) lose(b *batch) {
	w.h.lost(len(b.ops))
	if w.gone.IsZero() {
		w.gone = b.at.Add(-flushes - youngest)
	}
}

// written notes that a batch was written.
func (w *writer) written(b *batch) {
	if !w.failed.IsZero() {
		w.failed, w.gone = time.Time{}, time.Time{}
		w.h.opt.Log.Info("the history is written again")
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	bytes, _ := w.s.used(ctx)
	gaps, _ := w.s.gaps(ctx, w.since, b.at)
	w.h.mu.Lock()
	st := &w.h.status
	st.On, st.Rows, st.Bytes, st.Since, st.Gaps = true, w.rows, bytes, w.since, gaps
	if st.Problem != "" && w.s.aside == "" {
		st.Problem = ""
	}
	w.h.mu.Unlock()
	w.h.opt.Metrics.HistoryState(w.rows, bytes, true)
}

// transact does one transaction.
func (w *writer) transact(ctx context.Context, b *batch) (err error) {
	t := &transaction{w: w, tx: w.s.write, ctx: ctx, now: b.at}
	if t.exec("BEGIN IMMEDIATE"); t.err != nil {
		return t.err
	}
	rows, since := w.rows, w.since
	defer func() {
		if err != nil {
			_, _ = w.s.write.ExecContext(context.Background(), "ROLLBACK") // it fails where the error has done so already
			w.rows, w.since = rows, since
		}
	}()
	if !w.gone.IsZero() {
		t.note(Gap{From: w.gone, To: b.at, Cause: CauseDisk})
	}
	for i := range b.ops {
		if err := t.do(&b.ops[i]); err != nil {
			return err
		}
	}
	t.prune()
	if !b.read.IsZero() {
		t.meta("alive", b.read)
	}
	t.meta("doubt", w.doubt)
	if t.exec("COMMIT"); t.err != nil {
		return t.err
	}
	if !b.read.IsZero() {
		w.alive = b.read
	}
	return nil
}

// transaction is one that is under way. Its first error ends it; what follows does nothing.
type transaction struct {
	w   *writer
	tx  *sql.Conn
	ctx context.Context
	now time.Time
	err error
}

// use is a prepared statement.
func (t *transaction) use(query string) *sql.Stmt {
	s := t.w.uses[query]
	if s == nil {
		if s, t.err = t.tx.PrepareContext(t.ctx, query); t.err != nil {
			return nil
		}
		t.w.uses[query] = s
	}
	return s
}

// exec does a statement and returns how many rows it changed.
func (t *transaction) exec(query string, args ...any) int64 {
	if t.err != nil {
		return 0
	}
	var result sql.Result
	s := t.use(query)
	if t.err != nil {
		return 0
	}
	if result, t.err = s.ExecContext(t.ctx, args...); t.err != nil {
		return 0
	}
	n, _ := result.RowsAffected() // SQLite always knows
	return n
}

// find reads one row, and reports whether there is one.
func (t *transaction) find(query string, args []any, to ...any) bool {
	if t.err != nil {
		return false
	}
	s := t.use(query)
	if t.err != nil {
		return false
	}
	err := s.QueryRowContext(t.ctx, args...).Scan(to...)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.err = err
	}
	return err == nil
}

// meta notes a time of the store itself; zero: none.
func (t *transaction) meta(name string, at time.Time) {
	if at.IsZero() {
		t.exec("DELETE FROM meta WHERE name = ?", name)
		return
	}
	t.exec("INSERT INTO meta VALUES(?1, ?2) ON CONFLICT(name) DO UPDATE SET value = ?2", name, at.UnixMicro())
}

func (t *transaction) do(o *op) error {
	switch o.do {
	case doInsert:
		t.insert(o.item)
	case doEnd:
		t.end(o.item)
	case doAmend:
		t.amend(o.item)
	case doGap:
		t.note(o.gap)
	case doReconcile:
		t.reconcile(o)
		t.w.doubt = time.Time{}
	case doFill:
		t.fill(o)
	}
	return t.err
}

// null is NULL for the zero value.
func null[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}

const insertRow = `INSERT INTO rows(id, kind, place, owner, principal, gateway, program, mark, mode, permits, token, early, span, late, waited, reason, n, mean, extra, long)
 VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO NOTHING`

// insert adds a row. One that has not ended, and is there already, stays as it is.
func (t *transaction) insert(i *Item) {
	if t.err != nil {
		return
	}
	if i.End.IsZero() {
		if id, _ := t.open(i); id != 0 {
			return
		}
		if t.w.full { // its end makes a row
			t.w.h.lost(1)
			t.note(Gap{From: i.Begin.Add(-i.Early), To: t.now, Cause: CauseDropped})
			return
		}
	}
	args := t.columns(i)
	id := i.Begin.UnixMicro()
	if id == t.w.last {
		id = t.w.taken + 1 // many contenders that one answer showed have one time
	}
	t.w.last = i.Begin.UnixMicro()
	for ; t.err == nil; id++ {
		args[0] = id
		if t.exec(insertRow, args...) == 1 {
			t.w.taken = id
			t.w.rows++
			return
		}
	}
}

// columns are the values of a row, without its id.
func (t *transaction) columns(i *Item) []any {
	var program, span any
	if i.Foreign {
		program = t.name(word, i.Program, "")
	}
	long := 1
	if !i.End.IsZero() {
		span = max(i.End.Sub(i.Begin), 0).Milliseconds()
		if i.End.Sub(i.Begin) < longSpan {
			long = 0
		}
	}
	var waited any
	if i.WaitedKnown {
		waited = i.Waited.Milliseconds()
	}
	var owner, principal, gateway any
	if i.Owner != "" {
		owner = t.name(owners, i.Owner, locks.HostOf(i.Owner))
	}
	if i.Principal != "" {
		principal = t.name(word, i.Principal, "")
	}
	if i.Gateway != "" {
		gateway = t.name(word, i.Gateway, "")
	}
	return []any{0, int(i.Kind), t.name(lockNames, i.NS, i.Lock), owner, principal, gateway, program, null(i.mark()), null(modeNumber(i.Mode)),
		null(i.Permits), null(i.FencingToken), null(i.Early.Milliseconds()), span, null(i.Late.Milliseconds()), waited,
		null(numberOf(i.Reason)), null(i.Count), null(i.Mean.Milliseconds()), extraOf(i), long}
}

// extra are the texts that few rows have: the reason of the acquire, the administrator, his text, a hazard's programs.
type extra struct {
	Purpose  string   `json:"p,omitempty"`
	By       string   `json:"b,omitempty"`
	Detail   string   `json:"d,omitempty"`
	Programs []string `json:"s,omitempty"`
}

func extraOf(i *Item) any {
	if i.Purpose == "" && i.By == "" && i.Detail == "" && len(i.Programs) == 0 {
		return nil
	}
	b, err := json.Marshal(extra{i.Purpose, i.By, i.Detail, i.Programs})
	if err != nil {
		panic("history: texts that cannot be encoded: " + err.Error()) // they are strings
	}
	return string(b)
}

// open finds the row of the item that has not ended.
func (t *transaction) open(i *Item) (id int64, found *Item) {
	at := t.name(lockNames, i.NS, i.Lock)
	if !t.find("SELECT id FROM rows INDEXED BY rows_open WHERE mark = ? AND span IS NULL AND place = ? ORDER BY id DESC LIMIT 1", []any{i.mark(), at}, &id) {
		return 0, nil
	}
	items, err := selectItems(t.ctx, t.tx, "r.id = ?", "", id)
	if err != nil || len(items) == 0 {
		t.err = err
		return 0, nil
	}
	return id, &items[0].Item
}

// end ends a row, or adds one of what was not seen to begin.
func (t *transaction) end(i *Item) {
	id, old := t.open(i)
	switch {
	case t.err != nil:
	case id != 0:
		old.end(i)
		t.replace(id, old)
	case i.Kind != Hold: // a hazard that was there before the store
	case i.held:
		i.Begin = i.End
		if !i.Queued.IsZero() {
			i.Early = max(i.End.Sub(i.Queued), 0)
		}
		t.insert(i)
	default:
		i.Kind, i.Begin = Wait, i.End
		if !i.Queued.IsZero() {
			i.Begin, i.Waited, i.WaitedKnown = i.Queued, max(i.End.Sub(i.Queued), 0), true
		}
		t.insert(i)
	}
}

// amend takes over what is known better of what has not ended.
func (t *transaction) amend(i *Item) {
	id, old := t.open(i)
	if id == 0 {
		return
	}
	if i.Early == 0 && !i.Begin.IsZero() && old.Early != 0 {
		old.Begin, old.Early = i.Begin, 0 // its record says when it was granted
	}
	old.amend(i)
	t.replace(id, old)
}

// replace writes a row anew.
func (t *transaction) replace(id int64, i *Item) {
	args := t.columns(i)
	if at := i.Begin.UnixMicro(); id >= at && id < at+int64(time.Second/time.Microsecond) {
		args[0] = id
		t.exec(`UPDATE rows SET kind=?2, place=?3, owner=?4, principal=?5, gateway=?6, program=?7, mark=?8, mode=?9, permits=?10, token=?11, early=?12, span=?13,
 late=?14, waited=?15, reason=?16, n=?17, mean=?18, extra=?19, long=?20 WHERE id=?1`, args...)
		return
	}
	t.w.rows -= t.exec("DELETE FROM rows WHERE id = ?", id)
	t.insert(i)
}

// reconcile ends what is in the store and holds no more, and adds what holds and is not in the store.
func (t *transaction) reconcile(o *op) {
	if from := t.w.doubt; !from.IsZero() && from.Before(o.gap.From) {
		o.gap.From = from
	}
	list, err := selectItems(t.ctx, t.tx, "r.span IS NULL", "")
	if err != nil {
		t.err = err
		return
	}
	there := make(map[key]*Item, len(o.list))
	for _, i := range o.list {
		there[i.key()] = i
	}
	for n := range list {
		old := &list[n].Item
		k := old.key()
		if i := there[k]; i != nil {
			delete(there, k)
			if i.Early == 0 && old.Early != 0 || old.Owner == "" && i.Owner != "" {
				t.amend(i)
			}
			continue
		}
		if old.Begin.After(o.since) {
			continue // it began after the holders were asked for
		}
		old.End, old.Reason = o.gap.To, locks.ReasonUnknown
		if old.End.Before(old.Begin) {
			old.End = old.Begin
		}
		old.Late = old.End.Sub(latest(old.Begin, o.gap.From))
		t.replace(list[n].id, old)
	}
	for _, i := range o.list {
		if there[i.key()] == i {
			if low := i.Begin.Add(-i.Early); i.Early != 0 && o.gap.Cause != causeBefore && low.Before(o.gap.From) && !o.gap.From.After(i.Begin) {
				i.Early = i.Begin.Sub(o.gap.From) // before the gap it did not hold
			}
			t.insert(i)
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
