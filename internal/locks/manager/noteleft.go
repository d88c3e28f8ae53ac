package manager

import (
	"time"

	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// A successor counts what is left of a place that stays from when it reads the record, by its own clock alone. So the owner writes
// from time to time what is left by then. Otherwise each takeover would begin the whole span anew, and gateways that are restarted
// once a day would keep a place of seven days for good.

const (
	// noteLeftEvery is by how much a takeover lengthens the stay of a place at most, beside its own time.
	noteLeftEvery = 10 * time.Minute
	// maxNotes bounds the notes of one turn of the clock loop. The others follow in the next turn, at once.
	maxNotes = 256
)

// putNext makes a place due when its stay is over, or when what is left of it is noted.
func (d *delays) putNext(one *delay, now time.Duration) {
	d.put(one, min(one.until, now+noteLeftEvery))
}

// noteLeft writes into the record of a lease that has ended for how long its place stays from now on. It names the version that
// it has read: what another gateway or program has written meanwhile stays, and the next note sees it.
func (d *delays) noteLeft(m *Manager, one *delay, now time.Duration) {
	d.putNext(one, now)
	m.port.Read(one.path, 0, func(data []byte, stat wire.Stat, err error) {
		left := one.until - m.clock.Now().Boot()
		if err != nil || d.byID[one.id] != one || one.deleting || left <= 0 || m.port.Session() == nil || !m.members.Owns(one.id.Gateway()) {
			return
		}
		next, err := record.Edit(data, func(r record.Record, members record.Members) bool {
			if r.Closed == nil {
				return false // another program wrote it; restore sees to that
			}
			closed := *r.Closed
			closed.Stays = roundUp(left).Milliseconds()
			members.Set("closed", closed)
			return true
		})
		if err != nil || next == nil {
			return
		}
		m.port.Submit(&zk.Write{Ops: []zk.Op{{Kind: zk.OpSetData, Path: one.path, Data: next, Version: stat.Version}}}, func(zk.Result) {})
	})
}
