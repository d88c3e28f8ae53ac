package embedded

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestATurnEndsByItsRequestsOrItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := newTurn(false)
		for i := range turnRequests {
			if long.over() {
				t.Fatalf("over after %d requests", i)
			}
		}
		if !long.over() {
			t.Error("not over after all its requests")
		}
		slow, last := newTurn(false), newTurn(true)
		time.Sleep(turnTime)
		if slow.over() {
			t.Error("over before its first request")
		}
		if !slow.over() {
			t.Error("not over after its time")
		}
		for range 2 * turnRequests {
			if last.over() {
				t.Fatal("what has to be carried out to its end was put off")
			}
		}
	})
}
