package embedded

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

func TestATurnEndsByItsRequestsOrItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := newTurn(false)
		for i := range turnRequests {
			assert.Must(t, !long.over(), "over after %d requests", i)
		}
		assert.That(t, long.over(), "not over after all its requests")
		slow, last := newTurn(false), newTurn(true)
		time.Sleep(turnTime)
		assert.That(t, !slow.over(), "over before its first request")
		assert.That(t, slow.over(), "not over after its time")
		for range 2 * turnRequests {
			assert.Must(t, !last.over(), "what has to be carried out to its end was put off")
		}
	})
}
