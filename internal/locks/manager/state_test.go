package manager

import (
	"log/slog"
	"strings"
	"testing"

	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

// A transition that the tables of package lifecycle do not have, and a state that its phases do not allow, are found by CheckAll,
// with the lease's id.
func TestCheckAllReturnsForbiddenStates(t *testing.T) {
	for name, spoil := range map[string]func(*leaseTable, *lease){
		"a grant that was acknowledged and is unclaimed": func(leases *leaseTable, l *lease) {
			l.SetGrant(leases, lifecycle.GrantAcknowledged)
			l.SetGrant(leases, lifecycle.GrantUnclaimed)
		},
		"a deletion of a lease that does not end": func(leases *leaseTable, l *lease) { l.SetChange(leases, lifecycle.ChangeDeleting) },
	} {
		m := New(Options{Logger: slog.New(slog.DiscardHandler)})
		l := &lease{heapIndex: -1, State: lifecycle.New(lifecycle.Creating, lifecycle.RecordCurrent)}
		l.q, l.contender = &queues.Queue{}, &recipe.Contender{LeaseID: "7"}
		m.leases.byID[l.id()] = l
		m.leases.counts.enter(l)
		assert.That(t, m.CheckAll() == nil, "%s: before: %v", name, m.CheckAll())
		spoil(m.leases, l)
		err := m.CheckAll()
		assert.That(t, err != nil && strings.Contains(err.Error(), "lease 7"), "%s: %v", name, err)
	}
}
