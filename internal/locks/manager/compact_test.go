package manager

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/test/assert"
)

func TestEqualNamesAreInMemoryOnceAndTheCallersMemoryIsNotKept(t *testing.T) {
	var n names
	request := "owner=worker-17&ttl=30s"
	given := request[len("owner="):strings.IndexByte(request, '&')]
	first := n.one(given)
	assert.That(t, first == "worker-17" && unsafe.StringData(first) != unsafe.StringData(given),
		"%q, in the request's memory: %v", first, unsafe.StringData(first) == unsafe.StringData(given))
	assert.That(t, unsafe.StringData(n.one(strings.Clone("worker-17"))) == unsafe.StringData(first), "an equal name is in memory twice")
	for i := range 10 * len(n) { // more than there are places
		name := fmt.Sprint("worker-", i)
		assert.Must(t, n.one(name) == name, "%q has become %q", name, n.one(name))
	}
	assert.Equal(t, n.one(""), "", "no name has become")
}

func TestEveryReasonFitsIntoItsByte(t *testing.T) {
	for _, reason := range []locks.Reason{"", locks.ReasonReleased, locks.ReasonCancelled, locks.ReasonExpired, locks.ReasonUnclaimed, locks.ReasonRemoved, locks.ReasonWaitElapsed, locks.ReasonUnknown} {
		assert.Equal(t, (&lease{why: postmortem.CauseOf(reason)}).reason(), reason, "%q has become", reason)
	}
}
