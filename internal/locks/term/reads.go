package term

import (
	"errors"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

const (
	// readWindow is how many nodes are read at the same time, after a takeover for example; the others wait in line, one entry each.
	readWindow = 256
	// idleWindow is how many reads are under way when Options.Idle is called: what is read for later waits for the rest.
	idleWindow = readWindow / 8
)

// reads is the queue of nodes to read on the observer's connection. A read that a lost connection interrupts goes back
// to the end of the queue.
type reads struct {
	line []read
	out  int
	idle bool // Options.Idle is being called
}

type read struct {
	path  string
	least int64 // zxid that the answer's server must have come to
	reply func(data []byte, stat wire.Stat, err error)
}

// Read reads a node from a server that has come to the zxid least: it asks until it has. reply is called once, with the
// lock held; err is nil, ErrNoNode or ErrNoAuth. The lock is held.
func (p *Port) Read(path string, least int64, reply func(data []byte, stat wire.Stat, err error)) {
	p.reads.line = append(p.reads.line, read{path, least, reply})
	p.PumpReads()
}

// Reads is how many reads are waiting or under way. The lock is held.
func (p *Port) Reads() int { return len(p.reads.line) + p.reads.out }

// PumpReads keeps the window full. It must be called now and then: a lost connection leaves reads in the line. The lock is
// held.
func (p *Port) PumpReads() {
	r := &p.reads
	for !r.idle && r.out < readWindow {
		if len(r.line) == 0 && r.out < idleWindow {
			r.idle = true
			p.opt.Idle()
			r.idle = false
		}
		if len(r.line) == 0 {
			break
		}
		next := r.line[0]
		r.line[0] = read{}
		r.line = r.line[1:]
		r.out++
		p.opt.Monitor.Effect(func() { p.send(next) })
	}
	if len(r.line) == 0 {
		r.line = nil
	}
}

// send asks for one node; the lock is free.
func (p *Port) send(next read) {
	p.Watcher.Get(next.path, func(data []byte, stat wire.Stat, zxid int64, err error) {
		p.opt.Monitor.Do(func() {
			p.reads.out--
			if errors.Is(err, zk.ErrUnavailable) || errors.Is(err, zk.ErrQueueFull) || zxid < next.least {
				p.reads.line = append(p.reads.line, next) // the next PumpReads sends it
				return
			}
			next.reply(data, stat, err)
			p.PumpReads()
		})
	})
}
