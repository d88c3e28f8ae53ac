package history

import (
	"context"
	"database/sql"
	"time"
)

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// note remembers a gap. One that a part of it is known of already grows.
func (t *transaction) note(g Gap) {
	if !g.To.After(g.From) {
		return
	}
	first, last := g.From.UnixMicro(), g.To.UnixMicro()
	var id, one, other int64
	if t.find("SELECT id, first, last FROM gaps WHERE cause = ? AND first <= ? AND last >= ? ORDER BY id LIMIT 1", []any{g.Cause, last, first}, &id, &one, &other) {
		t.exec("UPDATE gaps SET first = ?, last = ? WHERE id = ?", min(first, one), max(last, other), id)
		return
	}
	t.exec("INSERT INTO gaps(first, last, cause) VALUES(?,?,?)", first, last, g.Cause)
}

// gaps are those between two times that are not filled, the newest first.
func (s *store) gaps(ctx context.Context, from, to time.Time) (list []Gap, err error) {
	found, err := gapsIn(ctx, s.read, from, to)
	for _, g := range found {
		if g.Cause != causeBefore {
			list = append(list, g.Gap)
		}
	}
	return list, err
}

type storedGap struct {
	id int64
	Gap
}

func gapsIn(ctx context.Context, q querier, from, to time.Time) (list []storedGap, err error) {
	rows, err := q.QueryContext(ctx, "SELECT id, first, last, cause FROM gaps WHERE last >= ? AND first <= ? ORDER BY first DESC LIMIT ?", from.UnixMicro(), to.UnixMicro(), maxGaps)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var g storedGap
		var first, last int64
		if err := rows.Scan(&g.id, &first, &last, &g.Cause); err != nil {
			return nil, err
		}
		g.From, g.To = time.UnixMicro(first), time.UnixMicro(last)
		list = append(list, g)
	}
	return list, rows.Err()
}
