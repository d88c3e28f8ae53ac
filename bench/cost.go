package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// cost is what was spent: first since the processes began, then, as a difference, in one slice. A slice's clients finish
// what they began a little after its end; at these rates that is nothing.
type cost struct {
	transactions float64 // that ZooKeeper committed: its zxid moved by this much
	fsyncs       float64
	requests     float64 // that ZooKeeper received
	cpu          cpuTime
	machine      time.Duration // processor time of everything that ran on the machine
	at           time.Time
}

// cpuTime is by process, user and system time together.
type cpuTime struct{ zooKeeper, gateway, load time.Duration }

func (c cost) minus(b cost) cost {
	return cost{
		transactions: c.transactions - b.transactions, fsyncs: c.fsyncs - b.fsyncs, requests: c.requests - b.requests,
		cpu:     cpuTime{c.cpu.zooKeeper - b.cpu.zooKeeper, c.cpu.gateway - b.cpu.gateway, c.cpu.load - b.cpu.load},
		machine: c.machine - b.machine, at: c.at,
	}
}

// others is how many processors other programs kept busy, on average: the noise.
func (c cost) others(since time.Time) float64 {
	theirs := c.machine - c.cpu.zooKeeper - c.cpu.gateway - c.cpu.load
	return max(theirs.Seconds()/c.at.Sub(since).Seconds(), 0)
}

// spent reads all counters.
func (r *rig) spent() (c cost, err error) {
	counters, err := r.zk.FourLetter("mntr")
	if err != nil {
		return cost{}, err
	}
	if c.fsyncs, err = counter(counters, "zk_cnt_fsynctime"); err != nil {
		return cost{}, err
	}
	if c.requests, err = counter(counters, "zk_packets_received"); err != nil {
		return cost{}, err
	}
	state, err := r.zk.FourLetter("srvr")
	if err != nil {
		return cost{}, err
	}
	zxid, err := strconv.ParseInt(field(state, "Zxid: "), 0, 64)
	if err != nil {
		return cost{}, fmt.Errorf("zxid of ZooKeeper: %w", err)
	}
	c.transactions = float64(zxid)
	for _, p := range []struct {
		pid int
		of  *time.Duration
	}{{r.zk.PID(), &c.cpu.zooKeeper}, {r.gateway.PID(), &c.cpu.gateway}, {os.Getpid(), &c.cpu.load}} {
		if *p.of, err = cpuTimeOf(p.pid); err != nil {
			return cost{}, err
		}
	}
	c.at = time.Now()
	c.machine, err = busy()
	return c, err
}

// busy is the processor time of the whole machine since it started, with what other machines on the same hardware took
// from it (proc(5), stat: all of the first line but idle and iowait).
func busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("processor time of the machine: %w", err)
	}
	const idle, iowait, guest = 3, 4, 8 // guest time is in user time already
	var ticks int64
	for i, f := range strings.Fields(field(string(text), "cpu ")) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of the machine: %w", err)
		}
		if i != idle && i != iowait && i < guest {
			ticks += n
		}
	}
	return time.Duration(ticks) * tick, nil
}

// counter finds "name<tab>number" in the answer to mntr.
func counter(mntr, name string) (float64, error) {
	v, err := strconv.ParseFloat(field(mntr, name+"\t"), 64)
	if err != nil {
		return 0, fmt.Errorf("counter %s of ZooKeeper: %w", name, err)
	}
	return v, nil
}

// field is the rest of the line that begins with prefix, "" without one.
func field(text, prefix string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// cpuTimeOf is the user and system time of a process (proc(5), stat, fields 14 and 15).
func cpuTimeOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the name before it may hold anything; field 3 comes next
	if len(fields) < 13 {
		return 0, fmt.Errorf("processor time: %q is not understood", stat)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// tick is the kernel's unit of processor time in /proc, on every architecture that Go runs on.
const tick = 10 * time.Millisecond
