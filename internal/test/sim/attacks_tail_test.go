package sim

import (
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/embedded/state"
)

// A holder and the waiter behind it are released in one transaction: watchers are told of its deletes one after the other.
func TestAttack55AWaiterThatGoesWithItsHolderIsNotSeenToHold(t *testing.T) {
	play(t, sessionOutlivesWindow, 1, 1, func(s *scene) {
		g := s.start(0)
		var clients []*client
		var leases []*lease
		for _, want := range []struct{ lock, state string }{
			{"b", "held"}, {"b", "waiting"}, {"b", "waiting"}, // their ends keep the writer busy
			{"a", "held"}, {"a", "waiting"},
		} {
			c := s.client(g)
			clients, leases = append(clients, c), append(leases, s.take(c, want.lock, want.state, "ttl", "30s", "async", "true"))
		}
		together := 0
		s.zk.OnCommit(func(txn *state.Txn) {
			var numbers []string
			for _, op := range txn.Ops {
				if op.Kind == state.TxnDelete && strings.HasPrefix(op.Path, lockRoot+"/a/") {
					numbers = append(numbers, op.Path[len(op.Path)-10:])
				}
			}
			if len(numbers) != 2 {
				return
			}
			together++
			assert.That(s, numbers[0] >= numbers[1],
				"one transaction deletes the holder before the waiter behind it: it seems to hold in between")
		})
		link := s.writer(g)
		link.StallReplies()
		done := make(chan struct{})
		for i, c := range clients {
			go func() {
				c.release(leases[i])
				done <- struct{}{}
			}()
			time.Sleep(10 * time.Millisecond)
		}
		link.Resume()
		for range clients {
			<-done
		}
		assert.That(s, together != 0, "the two were not released in one transaction")
	})
}
