package queues

import (
	"time"

	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk/wire"
)

// maxForeignData is how much data of another program's contender is kept for display.
const maxForeignData = 4 << 10

// Node is the data read of a contender that is not a lease of this gateway.
type Node struct {
	Record   record.Record
	IsRecord bool   // the data is a record of this program
	Data     []byte // data that is no record, cut to maxForeignData
	Session  int64  // the session of an ephemeral node; else 0
	Czxid    int64
	Created  time.Duration // wall clock, since the Unix epoch
}

// Node is what SetNode has kept of a contender, nil for nothing.
func (q *Queue) Node(name string) *Node { return q.Extras().nodes[name] }

// Node is what SetNode has kept of the contender, nil for nothing.
func (at Location) Node() *Node { return at.Queue.Node(at.Contender.Name) }

// SetNode keeps what was read of a contender until the contender goes, its data changes, or a tree read follows a gap in
// the stream. Of a contender that is not there nothing is kept.
func (q *Queue) SetNode(name string, data []byte, stat wire.Stat) {
	if q.Contenders.Index(name) < 0 {
		return
	}
	n := &Node{Czxid: stat.Czxid, Session: stat.EphemeralOwner, Created: time.Duration(stat.Ctime) * time.Millisecond}
	n.Record, n.IsRecord = record.Parse(data)
	if !n.IsRecord {
		n.Data = append([]byte(nil), data[:min(len(data), maxForeignData)]...)
	}
	x := q.MakeExtras()
	if x.nodes == nil {
		x.nodes = map[string]*Node{}
	}
	x.nodes[name] = n
	q.Mark()
}

// DropNode forgets what SetNode has kept: the contender's data has changed.
func (q *Queue) DropNode(name string) {
	delete(q.Extras().nodes, name)
	q.Mark()
}

// DropNodes forgets what SetNode kept in all queues.
func (r *Replica) DropNodes() {
	for _, s := range r.Namespaces {
		s.Queues.Scan(func(q *Queue) bool {
			if q.extras != nil {
				clear(q.extras.nodes)
				q.Mark()
				q.Trim()
			}
			return true
		})
	}
}
