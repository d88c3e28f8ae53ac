package history

import (
	"context"
	"time"
)

// The steps of pruning. One takes some milliseconds.
const (
	pruneStep = 2000 // rows
	nameStep  = 2000 // names
	maxGaps   = 1000
)

// prune deletes a step of what is too old, or too much.
func (t *transaction) prune() {
	w := t.w
	if t.err != nil || t.now.Sub(w.pruned) < pruneEvery && len(w.names.ids) > 0 {
		return
	}
	w.pruned = t.now
	oldest := t.now.Add(-w.h.opt.Keep)
	t.pruneTo(oldest.UnixMicro())
	used, err := usedBy(t.ctx, t.tx)
	if err != nil {
		t.err = err
		return
	}
	for range 8 { // at most: locks do not wait for it, but the next batch does
		if used <= w.s.size || t.err != nil {
			break
		}
		var last int64
		if !t.find("SELECT id FROM rows WHERE span IS NOT NULL ORDER BY id LIMIT 1 OFFSET ?", []any{pruneStep}, &last) &&
			!t.find("SELECT id FROM rows WHERE span IS NOT NULL ORDER BY id DESC LIMIT 1", nil, &last) {
			break
		}
		t.pruneTo(last)
		if used, err = usedBy(t.ctx, t.tx); err != nil {
			t.err = err
		}
	}
	w.full = used > w.s.size
	t.exec("DELETE FROM gaps WHERE last < ?1 OR last < ?2 AND cause <> ?3 OR id <= (SELECT max(id) FROM gaps) - ?4", oldest.UnixMicro(), w.since.UnixMicro(), causeBefore, maxGaps)
	if t.now.Sub(w.named) > namesEvery {
		if n := t.exec(pruneNames, t.now.UnixMicro(), 2*seenEvery, nameStep); n < nameStep {
			w.named = t.now // until then the next step follows at once
		}
		w.names.forget()
	}
}

// pruneNames deletes a step of the names that were seen last before every row that has ended, and that no other row has.
const pruneNames = `DELETE FROM names WHERE id IN (SELECT id FROM names
 WHERE seen < coalesce((SELECT id FROM rows WHERE span IS NOT NULL ORDER BY id LIMIT 1), ?1) - ?2 AND id NOT IN (
 SELECT place FROM rows WHERE span IS NULL UNION SELECT ifnull(owner, 0) FROM rows WHERE span IS NULL UNION SELECT ifnull(principal, 0) FROM rows WHERE span IS NULL
 UNION SELECT ifnull(gateway, 0) FROM rows WHERE span IS NULL UNION SELECT ifnull(program, 0) FROM rows WHERE span IS NULL) LIMIT ?3)`

// pruneTo deletes a step of the rows that began before an id and have ended.
func (t *transaction) pruneTo(id int64) {
	n := t.exec("DELETE FROM rows WHERE id IN (SELECT id FROM rows WHERE id < ? AND span IS NOT NULL ORDER BY id LIMIT ?)", id, pruneStep)
	t.w.rows -= n
	if at := time.UnixMicro(id); at.After(t.w.since) && (n > 0 || t.now.Sub(at) >= t.w.h.opt.Keep) {
		t.w.since = at
		t.exec("INSERT INTO meta VALUES('since', ?1) ON CONFLICT(name) DO UPDATE SET value = ?1", id)
	}
}

// used is how many bytes of the file are in use.
func (s *store) used(ctx context.Context) (int64, error) { return usedBy(ctx, s.write) }

func usedBy(ctx context.Context, from querier) (int64, error) {
	var pages, free int64
	if err := from.QueryRowContext(ctx, "SELECT page_count FROM pragma_page_count").Scan(&pages); err != nil {
		return 0, err
	}
	err := from.QueryRowContext(ctx, "SELECT freelist_count FROM pragma_freelist_count").Scan(&free)
	return (pages - free) * pageSize, err
}
