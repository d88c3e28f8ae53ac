package state

import (
	"bytes"
	"hash/adler32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/wire"
)

// TestTheSequenceCounterOverflowsAsInZooKeeper starts a real server from a log in which a node's counter is two below the
// greatest int, because two thousand million creations take too long.
func TestTheSequenceCounterOverflowsAsInZooKeeper(t *testing.T) {
	dir := t.TempDir()
	writeLog(t, filepath.Join(dir, "data", "version-2"), 1<<31-3)
	server := zkreal.StartT(t, zkreal.WithDir(dir), zkreal.WithoutFsync(), zkreal.WithJVMFlag("-Dzookeeper.snapshot.trust.empty=true"))
	theirs := assert.Value(rawzk.Dial(server.Addr(), 30*time.Second, 30*time.Second))(t)
	defer theirs.Conn.Close()
	ours := newRig(t).client(1)
	ours.create("/d", 0)
	ours.create("/d/first", 0)
	ours.s.tree.find("/d").cversion = 1<<31 - 3
	one := creation("/d/s", wire.FlagSequential)
	two := multi(wire.MultiOp{Op: wire.OpCreate, Record: creation("/d/m", wire.FlagSequential)}, wire.MultiOp{Op: wire.OpCreate, Record: creation("/d/n", wire.FlagSequential)})
	for i, request := range []struct {
		op   wire.Op
		body wire.Record
	}{{wire.OpCreate, one}, {wire.OpCreate, one}, {wire.OpCreate, one}, {wire.OpCreate, one}, {wire.OpCreate, creation("/d/plain", 0)}, {wire.OpMulti, two}, {wire.OpMulti, two}} {
		their := assert.Value(theirs.Call(request.op, request.body, nil))(t)
		reply := ours.do(request.op, request.body)
		var body []byte
		if reply.Body != nil {
			body = reply.Body.AppendTo(nil)
		}
		assert.That(t, their.Err == reply.Header.Err && bytes.Equal(their.Body, body),
			"request %d: %v %q, want %v %q", i, reply.Header.Err, body, their.Err, their.Body)
		var stat wire.StatReply
		assert.NoError(t, theirs.Must(wire.OpExists, &wire.ReadRequest{Path: "/d"}, &stat))
		if got := ours.stat("/d"); got.Cversion != stat.Stat.Cversion || got.NumChildren != stat.Stat.NumChildren {
			t.Errorf("after request %d: %+v, want %+v", i, got, stat.Stat)
		}
	}
}

// writeLog writes a transaction log of ZooKeeper's own that creates /d and a first child, which makes the counter what is
// asked for.
func writeLog(t *testing.T, dir string, counter int32) {
	t.Helper()
	assert.NoError(t, os.MkdirAll(dir, 0o755))
	b := []byte("ZKLG")
	b = wire.AppendLong(wire.AppendInt(b, 2), 0) // version, database
	for i, node := range []struct {
		path    string
		counter int32
	}{{"/d", 1}, {"/d/first", counter}} {
		txn := wire.AppendLong(nil, 1)         // session
		txn = wire.AppendInt(txn, 0)           // cxid
		txn = wire.AppendLong(txn, int64(i)+1) // zxid
		txn = wire.AppendLong(txn, 1_000_000)  // time
		txn = wire.AppendInt(txn, int32(wire.OpCreate))
		txn = wire.AppendBuffer(wire.AppendString(txn, node.path), []byte{})
		txn = wire.AppendBool(wire.AppendACLs(txn, everyone), false)
		txn = wire.AppendInt(txn, node.counter)
		b = wire.AppendLong(b, int64(adler32.Checksum(txn)))
		b = append(wire.AppendBuffer(b, txn), 'B')
	}
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "log.1"), b, 0o644))
}
