package main

import (
	"bytes"
	"log/slog"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/test/assert"
)

func TestLimitsThatContradictEachOtherAreRefused(t *testing.T) {
	for _, test := range []struct{ flags, says string }{
		{"--max-leases=-1", "leases"},
		{"--max-leases=5 --max-tickets=6", "tickets"},
		{"--max-connections=-1", "--max-connections"},
		{"--max-connections=5 --max-connections-per-address=6", "--max-connections-per-address 6"},
		{"--max-settings=-3", "settings"},
		{"--max-leases=many", "--max-leases"},
	} {
		code, _, stderr := command(t, append([]string{"--zk", "127.0.0.1:1", "--listen", "127.0.0.1:0"}, strings.Fields(test.flags)...)...)
		assert.That(t, code == exitUsage && strings.Contains(stderr, test.says) && strings.Contains(stderr, "hint: "),
			"%s: %d\n%s", test.flags, code, stderr)
	}
}

func TestLimitsFollowTheMemoryAndTheFiles(t *testing.T) {
	before := debug.SetMemoryLimit(512 << 20) // as GOMEMLIMIT does
	defer debug.SetMemoryLimit(before)
	var log bytes.Buffer
	f := (&limits{}).resolve(slog.New(slog.NewTextHandler(&log, nil)))
	if f.quota[quota.Leases] != 20_000 || f.quota[quota.Tickets] != 10_000 || f.quota[quota.MetadataBytes] != 32<<20 || f.quota[quota.Keys] != 80_000 || f.quota[quota.Settings] != 5000 {
		t.Errorf("with 512 MiB: %v", f.quota)
	}
	if c := f.connections; c.Connections < 1 || c.Connections > 6000 || c.PerAddress > c.Connections || f.waiting >= c.Connections {
		t.Errorf("with 512 MiB: %+v, %d of them may wait", c, f.waiting)
	}
	for _, says := range []string{"memory=536870912", "memory_from=GOMEMLIMIT", "max_leases=20000"} {
		assert.That(t, strings.Contains(log.String(), says), "%s is not in the log:\n%s", says, &log)
	}
	given := limits{Connections: 1 << 40, PerAddress: 7, Leases: 3, LockSettings: 9}
	f = given.resolve(slog.New(slog.NewTextHandler(&log, nil)))
	if f.quota[quota.Leases] != 3 || f.quota[quota.Tickets] != 1 || f.quota[quota.Settings] != 9 || f.connections.Connections != 1<<40 || f.connections.PerAddress != 7 {
		t.Errorf("what is given is %v, %+v", f.quota, f.connections)
	}
	assert.That(t, strings.Contains(log.String(), "raise that (ulimit -n, LimitNOFILE)"),
		"more connections than files are not warned of:\n%s", &log)
}

// One address cannot take all places beside the clients', and two gateways behind one address have enough of them.
func TestTheListenersBesidesTheClientsLeaveRoom(t *testing.T) {
	for connections, want := range map[int]connlimit.Limits{
		40: {Connections: 16, PerAddress: 8}, 192: {Connections: 24, PerAddress: 12}, 12_000: {Connections: 1500, PerAddress: 750},
	} {
		f := inForce{connections: connlimit.Limits{Connections: connections}}
		assert.Equal(t, f.besides(), want, "%d", connections)
	}
}

// Where nothing is set, what the control group allows counts, or the machine's memory.
func TestTheMemoryIsKnown(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	bytes, source := memoryLimit()
	assert.That(t, bytes >= 64<<20 && source != "", "%d bytes, from %s", bytes, source)
}

// Go raises the soft limit of files to the hard one before main begins: --max-connections follows from what it has become.
func TestFilesAreThoseOfTheHardLimit(t *testing.T) {
	var limit syscall.Rlimit
	assert.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	got := fileLimit()
	assert.That(t, got == limit.Max, "%d files, the hard limit is %d", got, limit.Max)
}
