package templates

import (
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// What a lease is for stands wherever its owner does: in the list of locks, at the lock, and in the lock's history.
func TestTheReasonOfAnAcquireIsShownWhereItsOwnerIs(t *testing.T) {
	const why = "deploying orders 4.7.11 to production"
	l := lockSample(noon, 1)
	for what, got := range map[string]string{
		"the list": render(OverviewPage(overviewSample(noon))), "the queue": render(QueueFragment(l)), "the history": render(HistoryFragment(l)),
	} {
		assert.That(t, strings.Contains(got, ">"+why+"<"), "%s does not show it: %s", what, got)
	}
}
