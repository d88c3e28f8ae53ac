package manager

import (
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// around is the place of the page on which a contender stands, of pages with at most limit holders and waiters. Without it
// that is the first page.
func (a *answers) around(q *queues.Queue, contender string, limit int) (at paging.QueuePlace) {
	text, holders := paging.MaxText, map[*recipe.Contender]bool{}
	a.holders(q, 0, 1, &text, holders)
	held, waits := 0, 0
	for _, c := range q.Contenders.All() {
		is := c.Name == contender || c.Ours && c.LeaseID != "" && string(c.LeaseID) == contender
		switch {
		case holders[c] && is:
			return paging.QueuePlace{Holders: held / limit * limit}
		case is:
			return paging.QueuePlace{Waiters: waits / limit * limit}
		case c.Member > 1:
		case holders[c]:
			held++
		default:
			waits++
		}
	}
	return paging.QueuePlace{}
}
