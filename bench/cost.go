package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// cost is what was spent: first since the processes began, then, as a difference, in one turn.
type cost struct {
	transactions float64 // that ZooKeeper committed: its zxid moved by this much
	fsyncs       float64 // of all its servers
	requests     float64 // that they received
	cpu          cpuTime
	machine      time.Duration // processor time of everything that ran on the machine
	at           time.Time
}

// cpuTime is by kind of process, user and system time together.
type cpuTime struct{ server, store, clients time.Duration }

func (c cpuTime) sum() time.Duration { return c.server + c.store + c.clients }

func (c cost) minus(b cost) cost {
	return cost{
		transactions: c.transactions - b.transactions, fsyncs: c.fsyncs - b.fsyncs, requests: c.requests - b.requests,
		cpu:     cpuTime{c.cpu.server - b.cpu.server, c.cpu.store - b.cpu.store, c.cpu.clients - b.cpu.clients},
		machine: c.machine - b.machine, at: c.at,
	}
}

// others is how many processors were kept busy by what is no part of the side: the noise.
func (c cost) others(since time.Time) float64 {
	return max((c.machine-c.cpu.sum()).Seconds()/c.at.Sub(since).Seconds(), 0)
}

// spent reads all counters of a side's processes.
func (s *side) spent() (c cost, err error) {
	if s.store != nil {
		if err := s.store.count(&c); err != nil {
			return cost{}, err
		}
		if c.cpu.store, err = cpuTimeOf(s.store.pids()...); err != nil {
			return cost{}, err
		}
	}
	if c.cpu.server, err = cpuTimeOf(s.servers...); err != nil {
		return cost{}, err
	}
	if c.cpu.clients, err = cpuTimeOf(s.clients); err != nil {
		return cost{}, err
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

// cpuTimeOf is the user and system time of processes together (proc(5), stat, fields 14 and 15).
func cpuTimeOf(pids ...int) (all time.Duration, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("processor time: %w", err)
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the name before it may hold anything; field 3 comes next
		if len(fields) < 13 {
			return 0, fmt.Errorf("processor time: %q is not understood", stat)
		}
		for _, f := range fields[11:13] {
			n, err := strconv.ParseInt(string(f), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("processor time: %w", err)
			}
			all += time.Duration(n) * tick
		}
	}
	return all, nil
}

// tick is the kernel's unit of processor time in /proc, on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// residentOf is the memory of a process that is in RAM (proc(5), status, VmRSS), in bytes.
func residentOf(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of a program: %w", err)
	}
	kib, err := strconv.ParseFloat(strings.TrimSuffix(field(string(status), "VmRSS:"), " kB"), 64)
	if err != nil {
		return 0, fmt.Errorf("memory of a program: %w", err)
	}
	return kib * 1024, nil
}
