package manager

import (
	"errors"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// readWindow is how many contenders are read at the same time, after a
// takeover for example; the others wait in line, one entry each.
const readWindow = 256

// reads is the line of contenders that are to be read on the observer's
// connection. What could not be read because the connection was lost goes
// back to the end of the line. Guarded by Manager.mu.
type reads struct {
	line  []read
	out   int
	again []*lease // to be read again when there is nothing else to read; see recheck
}

type read struct {
	path  string
	least int64                                        // zxid that the answer's server must have come to
	reply func(data []byte, stat wire.Stat, err error) // mu is held; err is nil, ErrNoNode or ErrNoAuth
}

// read puts a contender into the line. reply is called once, with mu held.
func (m *Manager) read(path string, reply func(data []byte, stat wire.Stat, err error)) {
	m.readFrom(path, 0, reply)
}

// readFrom reads from a server that has come to a zxid: it asks until it has.
func (m *Manager) readFrom(path string, least int64, reply func(data []byte, stat wire.Stat, err error)) {
	m.reads.line = append(m.reads.line, read{path, least, reply})
	m.pumpReads()
}

// pumpReads keeps the window full.
func (m *Manager) pumpReads() {
	for m.reads.out < readWindow {
		if len(m.reads.line) == 0 && m.reads.out < recheckWindow {
			m.recheckNext()
		}
		if len(m.reads.line) == 0 {
			break
		}
		next := m.reads.line[0]
		m.reads.line[0] = read{}
		m.reads.line = m.reads.line[1:]
		m.reads.out++
		m.effect(func() {
			m.watcher.Get(next.path, func(data []byte, stat wire.Stat, zxid int64, err error) {
				m.do(func() {
					m.reads.out--
					if errors.Is(err, zk.ErrUnavailable) || errors.Is(err, zk.ErrQueueFull) || zxid < next.least {
						m.reads.line = append(m.reads.line, next) // the clock pumps again
						return
					}
					next.reply(data, stat, err)
					m.pumpReads()
				})
			})
		})
	}
	if len(m.reads.line) == 0 {
		m.reads.line = nil
	}
}
