package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/paging"
)

const (
	// queryWithin is how long a query may take. Beyond it the answer has what was found, and says that it is not complete.
	queryWithin = 2 * time.Second
	// DefaultLimit and MaxLimit are how many rows an answer has.
	DefaultLimit = 100
	MaxLimit     = 1000
)

// Query asks for rows. The zero value selects nothing: it has no rules.
type Query struct {
	Rules    *access.Rules // rows of locks that they let read
	NS, Lock string        // Lock "": every lock, of every namespace when NS is "", too
	Owner    string        // exactly
	Host     string        // the part of the owner behind the last @
	// From and To select what overlaps that time; zero: without a bound.
	From, To time.Time
	Reason   locks.Reason // of ends
	Kinds    Kinds        // 0: Holds
	Limit    int          // 0: DefaultLimit
	Cursor   string       // Answer.Next of the page before
}

// Coverage says what an answer can know.
type Coverage struct {
	Since    time.Time // how far back the store reaches
	Gaps     []Gap     // in the time that was asked for, the newest first
	Complete bool      // nothing of it is missing, as far as the store knows
}

// Answer is a page of rows, the latest begins first.
type Answer struct {
	Items []Item
	Next  string // the cursor of the next page; "" when there is none
	Coverage
}

// ErrCursor is the answer to a cursor that is none.
var ErrCursor = errors.New("not a cursor of this list")

// stored is a row with its id.
type stored struct {
	Item
	id int64
}

const selectRow = `SELECT r.id, r.kind, p.a, p.b, o.a, w.a, g.a, f.a, r.program, r.mark, r.mode, r.permits, r.token, r.early, r.span, r.late, r.waited,
 r.reason, r.n, r.mean, r.extra FROM rows r `

const joinNames = ` LEFT JOIN names p ON p.id = r.place LEFT JOIN names o ON o.id = r.owner LEFT JOIN names w ON w.id = r.principal
 LEFT JOIN names g ON g.id = r.gateway LEFT JOIN names f ON f.id = r.program WHERE `

// selectItems reads rows.
func selectItems(ctx context.Context, q querier, where, after string, args ...any) (list []stored, err error) {
	err = eachItem(ctx, q, "", where, after, args, func(i *stored) bool {
		list = append(list, *i)
		return true
	})
	return list, err
}

// eachItem reads rows until take returns false. by names an index, "" for whichever SQLite takes.
func eachItem(ctx context.Context, q querier, by, where, after string, args []any, take func(*stored) bool) error {
	rows, err := q.QueryContext(ctx, selectRow+by+joinNames+where+after, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var i stored
		if err := i.scan(rows); err != nil {
			return err
		}
		if !take(&i) {
			return nil
		}
	}
	return rows.Err()
}

func (i *stored) scan(rows *sql.Rows) error {
	var ns, lock, owner, principal, gateway, programName, mark, extras sql.NullString
	var kind int64
	var program, mode, permits, token, early, span, late, waited, reason, n, mean sql.NullInt64
	if err := rows.Scan(&i.id, &kind, &ns, &lock, &owner, &principal, &gateway, &programName, &program, &mark, &mode, &permits, &token, &early, &span, &late, &waited,
		&reason, &n, &mean, &extras); err != nil {
		return err
	}
	ms := func(v sql.NullInt64) time.Duration { return time.Duration(v.Int64) * time.Millisecond }
	i.Kind, i.NS, i.Lock, i.Owner, i.Principal, i.Gateway = Kind(kind), ns.String, lock.String, owner.String, principal.String, gateway.String
	i.Mode, i.Permits, i.FencingToken, i.Begin, i.Early = modeOf(mode.Int64), int(permits.Int64), token.Int64, time.UnixMicro(i.id).UTC(), ms(early)
	if span.Valid {
		i.End, i.Late = i.Begin.Add(ms(span)), ms(late)
	}
	i.Waited, i.WaitedKnown, i.Reason, i.Count, i.Mean = ms(waited), waited.Valid, reasonOf(reason.Int64), int(n.Int64), ms(mean)
	if extras.Valid {
		var x extra
		if err := json.Unmarshal([]byte(extras.String), &x); err != nil {
			return err
		}
		i.Purpose, i.By, i.Detail, i.Programs = x.Purpose, x.By, x.Detail, x.Programs
	}
	i.unmark(mark.String, program.Valid, programName.String)
	return nil
}

// query looks for rows, the latest begins first: of those that began in the time asked for, then of those that had begun before.
func (s *store) query(ctx context.Context, q *Query) (list []stored, more bool, err error) {
	f, err := filterOf(ctx, s.read, q)
	if err != nil || f.empty {
		return nil, false, err
	}
	limit := q.Limit + 1
	take := func(to *[]stored) func(*stored) bool {
		return func(i *stored) bool {
			if f.lets(i) {
				*to = append(*to, *i)
			}
			return len(*to) < limit
		}
	}
	var found [4][]stored
	cut := int64(0) // what began earlier was not looked at in time
	for n, part := range f.parts() {
		if err = eachItem(ctx, s.read, part.by, part.where+f.where, " ORDER BY r.id DESC", append(part.args, f.args...), take(&found[n])); err != nil {
			cut = part.cutAt(found[n])
			break
		}
		if n == 1 && len(found[0])+len(found[1]) >= limit {
			break // what began earlier comes later
		}
	}
	list = slices.Concat(found[:]...)
	slices.SortFunc(list, func(a, b stored) int { return int(max(min(b.id-a.id, 1), -1)) })
	list = slices.DeleteFunc(list, func(i stored) bool { return i.id < cut })
	if len(list) >= limit {
		return list[:q.Limit], true, nil
	}
	if err != nil && ctx.Err() != nil && len(list) > 0 {
		return list, true, nil // what was found in time; the next page goes on
	}
	return list, false, err
}

// filter is a query in SQL.
type filter struct {
	q      *Query
	empty  bool // nothing can match
	where  string
	args   []any
	before int64 // ids that come before the page
}

type part struct {
	by    string // the index
	where string
	args  []any
	below int64 // its ids are below that
}

// cutAt is the id from which on a search knows all rows of the part when it ended after these, the latest first.
func (p *part) cutAt(found []stored) int64 {
	if len(found) == 0 {
		return p.below
	}
	return found[len(found)-1].id
}

func filterOf(ctx context.Context, from querier, q *Query) (*filter, error) {
	f := &filter{q: q, before: 1<<62 - 1}
	if q.Cursor != "" {
		at, err := paging.History.At(q.Cursor)
		id, none := strconv.ParseInt(at, 36, 64)
		if err != nil || none != nil || id <= 0 {
			return nil, ErrCursor
		}
		f.before = id
	}
	add := func(text string, args ...any) { f.where += " AND " + text; f.args = append(f.args, args...) }
	kinds := ""
	for k := Hold; k <= Deadlock; k++ {
		if q.Kinds.Has(k) {
			kinds += "," + strconv.Itoa(int(k))
		}
	}
	if kinds == "" {
		f.empty = true
		return f, nil
	}
	add("r.kind IN (" + kinds[1:] + ")")
	if q.Reason != "" {
		add("r.reason = ?", numberOf(q.Reason))
	}
	switch {
	case q.Lock != "":
		id, err := nameID(ctx, from, lockNames, q.NS, q.Lock)
		if err != nil || id == 0 {
			f.empty = true
			return f, err
		}
		add("r.place = ?", id)
	case q.NS != "":
		add("p.a = ?", q.NS)
	}
	if err := f.onlyReadable(ctx, from, add); err != nil || f.empty {
		return f, err
	}
	switch {
	case q.Owner != "":
		id, err := nameID(ctx, from, owners, q.Owner, locks.HostOf(q.Owner))
		if err != nil || id == 0 {
			f.empty = true
			return f, err
		}
		add(plus(q.Lock != "")+"r.owner = ?", id)
		if q.Host != "" && q.Host != locks.HostOf(q.Owner) {
			f.empty = true
		}
	case q.Host != "":
		add(plus(q.Lock != "")+"r.owner IN (SELECT id FROM names WHERE kind = 2 AND b = ? AND b <> '')", q.Host)
	}
	return f, nil
}

// maxReadable is how many locks a search names. With more it looks at all rows, and leaves out those that may not be read.
const maxReadable = 200

// onlyReadable has a caller whose rules let few locks be read look at the rows of these alone.
func (f *filter) onlyReadable(ctx context.Context, from querier, add func(string, ...any)) error {
	if f.q.Lock != "" || f.q.Rules.MayAll(access.Read) {
		return nil
	}
	all, err := lockNamesIn(ctx, from, f.q.NS)
	if err != nil {
		return err
	}
	in := ""
	var few []any
	for id, at := range all {
		if f.q.Rules.May(access.Read, at.ns, at.lock) {
			if in += ",?"; len(few) == maxReadable {
				return nil
			}
			few = append(few, id)
		}
	}
	if f.empty = len(few) == 0; !f.empty {
		add(plus(f.q.Owner != "" || f.q.Host != "")+"r.place IN ("+in[1:]+")", few...)
	}
	return nil
}

// plus keeps SQLite from the index of a column when another index fits better.
func plus(is bool) string {
	if is {
		return "+"
	}
	return ""
}

func nameID(ctx context.Context, q querier, kind int, a, b string) (id int64, err error) {
	err = q.QueryRowContext(ctx, "SELECT id FROM names WHERE kind = ? AND a = ? AND b = ?", kind, a, b).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return id, err
}

// lets reports whether the rules let a row be read, and whether its time is right.
func (f *filter) lets(i *stored) bool { return f.q.Rules.May(access.Read, i.NS, i.Lock) }

// parts are the searches that together find what overlaps the time asked for. The first is for begins that are not known
// exactly, and may be earlier than the row says. The last one looks at most rows: with it a search ends that takes too long.
func (f *filter) parts() [4]part {
	from, to := int64(0), int64(1<<62-1)
	if !f.q.From.IsZero() {
		from = f.q.From.UnixMicro()
	}
	if !f.q.To.IsZero() {
		to = f.q.To.UnixMicro()
	}
	short, long := from-longSpan.Microseconds(), "INDEXED BY long_all"
	switch { // SQLite has no figures of which index finds less
	case f.q.Lock != "":
		long = "INDEXED BY long_place"
	case f.q.Owner != "" || f.q.Host != "":
		long = "INDEXED BY long_owner"
	}
	return [4]part{
		{"INDEXED BY rows_early", "r.early IS NOT NULL AND r.id > ? AND r.id - r.early * 1000 <= ? AND r.id < ?", []any{to, to, f.before}, f.before},
		{"", "r.id >= ? AND r.id <= ? AND r.id < ?", []any{from, to, f.before}, to + 1},
		{"", "r.long = 0 AND r.id >= ? AND r.id < ? AND r.id < ? AND r.id + r.span * 1000 >= ?", []any{short, from, f.before, from}, from},
		{long, "r.long = 1 AND r.id < ? AND r.id < ? AND (r.span IS NULL OR r.id + r.span * 1000 >= ?)", []any{from, f.before, from}, from},
	}
}

// unmark takes the mark apart.
func (i *Item) unmark(mark string, foreign bool, program string) {
	switch {
	case i.Kind == Hazard:
		i.Code = trimmed(mark, "hazard:")
	case i.Kind == Deadlock:
		i.Code = trimmed(mark, "cycle:")
		for n := range i.Code {
			if i.Code[n] == ':' {
				i.Code, i.LeaseID = i.Code[:n], i.Code[n+1:]
				break
			}
		}
	case foreign:
		i.Foreign, i.Program, i.Name = true, program, mark
	case i.Kind != Many:
		i.LeaseID = mark
	}
}

func trimmed(s, prefix string) string {
	if len(s) >= len(prefix) && s[:len(prefix)] == prefix {
		return s[len(prefix):]
	}
	return s
}

// Query looks for rows.
func (h *History) Query(ctx context.Context, q Query) (Answer, error) {
	if q.Limit <= 0 {
		q.Limit = DefaultLimit
	}
	q.Limit = min(q.Limit, MaxLimit)
	if q.Kinds == 0 {
		q.Kinds = Holds
	}
	var a Answer
	err := h.with(ctx, func(ctx context.Context, s *store) error {
		list, more, err := s.query(ctx, &q)
		if err != nil {
			return err
		}
		for n := range list {
			a.Items = append(a.Items, list[n].Item)
		}
		if more {
			a.Next = paging.History.Cursor(strconv.FormatInt(list[len(list)-1].id, 36))
		}
		return nil
	})
	if err != nil {
		return a, err
	}
	a.Coverage = h.Coverage(q.From, q.To)
	return a, nil
}

// with calls do with the open store, for at most queryWithin.
func (h *History) with(ctx context.Context, do func(context.Context, *store) error) error {
	return h.within(ctx, queryWithin, do)
}

func (h *History) within(ctx context.Context, most time.Duration, do func(context.Context, *store) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	h.using.RLock()
	defer h.using.RUnlock()
	s := h.store.Load()
	if s == nil {
		return ErrOff
	}
	return do(ctx, s)
}

// Coverage says what the store can know of a time; zero times are no bounds.
func (h *History) Coverage(from, to time.Time) Coverage {
	st := h.Status()
	c := Coverage{Since: st.Since, Complete: st.On && !from.IsZero() && !from.Before(st.Since)}
	for _, g := range st.Gaps {
		if (to.IsZero() || !g.From.After(to)) && !g.To.Before(from) {
			c.Gaps = append(c.Gaps, g)
			c.Complete = false
		}
	}
	return c
}
