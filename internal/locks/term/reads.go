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
	urgent []read // before the line
	line   []read // without a reply: it was hastened, and is in urgent
	taken  uint32 // reads that have left the line
	moved  int    // reads in the line without a reply
	out    int
	idle   bool // Options.Idle is being called
}

// waiting is how many reads wait.
func (r *reads) waiting() int { return len(r.urgent) + len(r.line) - r.moved }

// next takes the read that is to go next.
func (r *reads) next() read {
	if len(r.urgent) > 0 {
		next := r.urgent[0]
		r.urgent[0] = read{}
		r.urgent = r.urgent[1:]
		return next
	}
	for {
		next := r.line[0]
		r.line[0] = read{}
		r.line = r.line[1:]
		r.taken++
		if next.reply != nil {
			return next
		}
		r.moved--
	}
}

type read struct {
	path  string
	least int64 // zxid that the answer's server must have come to
	reply func(data []byte, stat wire.Stat, err error)
}

// Read reads a node from a server that has come to the zxid least: it asks until it has. reply is called once, with the
// lock held; err is nil, ErrNoNode or ErrNoAuth. place is for Hasten. The lock is held.
func (p *Port) Read(path string, least int64, reply func(data []byte, stat wire.Stat, err error)) (place uint32) {
	r := &p.reads
	place = r.taken + uint32(len(r.line))
	r.line = append(r.line, read{path, least, reply})
	p.PumpReads()
	return place
}

// Hasten has a read go before the others that wait: a client waits for it. It does nothing when the read does not wait at its
// place any more. The lock is held.
func (p *Port) Hasten(place uint32, path string) {
	r := &p.reads
	if at := place - r.taken; at < uint32(len(r.line)) && r.line[at].reply != nil && r.line[at].path == path {
		r.urgent = append(r.urgent, r.line[at])
		r.line[at] = read{}
		r.moved++
	}
}

// Reads is how many reads are waiting or under way. The lock is held.
func (p *Port) Reads() int { return p.reads.waiting() + p.reads.out }

// PumpReads keeps the window full. It must be called now and then: a lost connection leaves reads in the line. The lock is
// held.
func (p *Port) PumpReads() {
	r := &p.reads
	for !r.idle && r.out < readWindow {
		if r.waiting() == 0 && r.out < idleWindow {
			r.idle = true
			p.opt.Idle()
			r.idle = false
		}
		if r.waiting() == 0 {
			break
		}
		next := r.next()
		r.out++
		p.opt.Monitor.Effect(func() { p.send(next) })
	}
	if r.waiting() == 0 {
		r.taken += uint32(len(r.line))
		r.urgent, r.line, r.moved = nil, nil, 0
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
