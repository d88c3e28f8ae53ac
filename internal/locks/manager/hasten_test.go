package manager

import (
	"fmt"
	"log/slog"
	"testing"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// heldReader is a Watcher that notes what is to be read.
type heldReader struct {
	term.Watcher
	asked []string
	reply func([]byte, wire.Stat, int64, error)
}

func (r *heldReader) Get(path string, reply func([]byte, wire.Stat, int64, error)) {
	r.asked, r.reply = append(r.asked, path), reply
}

// TestARecordThatAClientWaitsForIsReadBeforeOthers: a gateway that starts on very many leases has all of their records read, and a
// heartbeat waits for one of them.
func TestARecordThatAClientWaitsForIsReadBeforeOthers(t *testing.T) {
	m := New(Options{Logger: slog.New(slog.DiscardHandler)})
	reader := &heldReader{}
	m.port.Watcher = reader
	leases := make([]*lease, 1000)
	m.do(func() {
		for i := range leases {
			l := &lease{heapIndex: -1, taker: m.leases.takers.one("", nil), ttl: locks.MaxTTL, State: lifecycle.New(lifecycle.Waiting, lifecycle.RecordUnread)}
			l.q, l.contender = &queues.Queue{Path: fmt.Sprintf("/locks/%d", i)}, &recipe.Contender{Name: "c", LeaseID: recipe.LeaseID(fmt.Sprint(i))}
			l.load(m)
			leases[i] = l
		}
	})
	sent := len(reader.asked)
	assert.Must(t, sent < len(leases)-1, "%d reads are under way", sent)
	m.do(func() { leases[len(leases)-1].load(m) })
	reader.reply(nil, wire.Stat{}, 1, zk.ErrNoNode)
	assert.Slices(t, reader.asked[sent:], []string{"/locks/999/c"}, "read next")
}
