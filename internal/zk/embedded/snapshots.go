package embedded

import (
	"fmt"
	"time"

	"lockkeeper/internal/zk/embedded/state"
)

// defaultSnapshotPiece is how much of a snapshot a batch carries: so little that it takes a few milliseconds to write down
// and to store, which is what a request waits that comes meanwhile, and so much that a sync for each is no great loss.
const defaultSnapshotPiece = 256 << 10

// snapshots is the snapshot under way, of which each batch carries a piece.
type snapshots struct {
	*state.Snapshot // nil while there is none
	begun           time.Time
	pieces          int
	bytes           int64
	buf             []byte
}

// always is a channel that is always ready.
var always = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// more is ready while a snapshot is under way: the core goes on with it between requests.
func (p *snapshots) more() <-chan struct{} {
	if p.Snapshot == nil {
		return nil
	}
	return always
}

func (p *snapshots) next(limit int) *Piece {
	data, last := p.Next(p.buf[:0], limit)
	p.buf = data
	if cap(p.buf) > 4*limit { // there was a large node
		p.buf = nil
	}
	p.pieces++
	p.bytes += int64(len(data))
	return &Piece{Zxid: p.Zxid(), Data: data, First: p.pieces == 1, Last: last}
}

// store keeps the batch. Afterwards, when the storage asks for it, a snapshot is begun of the state that this has led to.
func (k *core) store() error {
	b := Batch{Txns: k.txns}
	if k.snapshots.Snapshot != nil {
		b.Piece = k.snapshots.next(k.s.cfg.SnapshotPiece)
	} else if len(k.txns) == 0 {
		return nil
	}
	if err := k.s.cfg.Storage.Append(b); err != nil {
		return fmt.Errorf("embedded ZooKeeper: store %d transactions: %w", len(k.txns), err)
	}
	wrote := len(k.txns) > 0
	if wrote {
		k.stats.batches++
		k.stats.txns += int64(len(k.txns))
		clear(k.txns)
		k.txns = k.txns[:0]
	}
	if p := &k.snapshots; b.Piece != nil && b.Piece.Last {
		k.log.Info("snapshot stored", "zxid", p.Zxid(), "pieces", p.pieces, "bytes", p.bytes, "ms", time.Since(p.begun).Milliseconds())
		*p = snapshots{}
	}
	// A state of which nothing was written since the last snapshot needs none, also if the storage asks for one.
	if wrote && k.snapshots.Snapshot == nil && k.s.cfg.Storage.SnapshotDue() {
		k.snapshots = snapshots{Snapshot: k.state.BeginSnapshot(), begun: time.Now()}
	}
	return nil
}

// load is the state that the storage has.
func load(storage Storage, config state.Config) (*state.State, error) {
	var loaded *state.State
	restorer := state.NewRestorer(config)
	pieces := 0
	restore := func() (err error) {
		if loaded == nil && pieces == 0 {
			loaded = state.New(config)
		} else if loaded == nil {
			loaded, err = restorer.State()
		}
		return err
	}
	err := storage.Load(Recovery{
		Piece: func(data []byte) error {
			if loaded != nil {
				return fmt.Errorf("a piece of a snapshot behind transaction %#x", loaded.LastZxid())
			}
			pieces++
			return restorer.Add(data)
		},
		Txn: func(t *state.Txn) error {
			if err := restore(); err != nil {
				return err
			}
			return loaded.Apply(t)
		},
	})
	if err == nil {
		err = restore()
	}
	if err != nil {
		return nil, fmt.Errorf("embedded ZooKeeper: load: %w", err)
	}
	return loaded, nil
}
