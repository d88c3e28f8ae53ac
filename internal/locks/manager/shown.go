package manager

import (
	"maps"
	"slices"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// An administrator decides by what a page or a list has shown. Before the request arrives, the lock may have another
// holder. So a request can name the contenders that were shown, and then affects no others. If a named contender no
// longer matches the request's state and filters, the request does nothing and returns CodeHolderChanged.

// shown is a Shown as sets: lease ids and znodes, and whether each was found. nil: every contender is meant.
type shown map[string]bool

func shownBy(s *locks.Shown) shown {
	if !s.Given() {
		return nil
	}
	keys := shown{}
	for _, key := range slices.Concat(s.LeaseIDs, s.Znodes) {
		keys[key] = false
	}
	return keys
}

// means reports whether a contender is meant.
func (s shown) means(q *queues.Queue, c *recipe.Contender) bool {
	if s == nil {
		return true
	}
	_, lease := s[string(c.LeaseID)]
	_, znode := s[q.NodeOf(c.Name)]
	return c.Ours && lease || znode
}

// found records that a meant contender is as it was shown.
func (s shown) found(q *queues.Queue, c *recipe.Contender) {
	if s == nil {
		return
	}
	for _, key := range []string{string(c.LeaseID), q.NodeOf(c.Name)} {
		if _, meant := s[key]; meant {
			s[key] = true
		}
	}
}

// missing is a contender that was shown and not found; "" for none.
func (s shown) missing() string {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if !s[key] {
			return key
		}
	}
	return ""
}

// none reports whether contenders were shown and none of them was found.
func (s shown) none() bool {
	for _, found := range s {
		if found {
			return false
		}
	}
	return s != nil
}

// holderChanged is the error for a named contender that has changed; the monitor is free.
func (m *Manager) holderChanged(q *queues.Queue, why string) *locks.Error {
	return locked(m, func() *locks.Error {
		return m.tellHolders(q, &locks.Error{Code: locks.CodeHolderChanged, Detail: why + "; nothing was done: look at the lock again, and name those you mean"})
	})
}

// tellHolders adds the lock's holders, at most maxHolders, and the number of waiters to an error; the monitor is held.
func (m *Manager) tellHolders(q *queues.Queue, e *locks.Error) *locks.Error {
	e.QueueLength = q.Contenders.Waiting()
	for c := range m.holdersOf(q) {
		if len(e.Holders) == maxHolders {
			break
		}
		e.Holders = append(e.Holders, m.answers.contender(q, c, 0))
	}
	return e
}
