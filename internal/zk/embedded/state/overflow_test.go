package state

import (
	"hash/adler32"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/wire"
)

// TestTheSequenceCounterOverflowsAsInZooKeeper starts a real server from a log in which a node's counter is two below the
// greatest int, because two thousand million creations take too long.
func TestTheSequenceCounterOverflowsAsInZooKeeper(t *testing.T) {
	dir := t.TempDir()
	writeLog(t, filepath.Join(dir, "data", "version-2"), 1<<31-3)
	server := zkreal.StartT(t, zkreal.WithDir(dir), zkreal.WithoutFsync(), zkreal.WithJVMFlag("-Dzookeeper.snapshot.trust.empty=true"))
	theirs, ours := dialReal(t, server.Addr()), newRig(t).client(1)
	ours.create("/d", 0)
	ours.create("/d/first", 0)
	ours.s.tree.find("/d").cversion = 1<<31 - 3
	one := creation("/d/s", wire.FlagSequential)
	two := multi(wire.MultiOp{Op: wire.OpCreate, Record: creation("/d/m", wire.FlagSequential)}, wire.MultiOp{Op: wire.OpCreate, Record: creation("/d/n", wire.FlagSequential)})
	for i, request := range []struct {
		op   wire.Op
		body wire.Record
	}{{wire.OpCreate, one}, {wire.OpCreate, one}, {wire.OpCreate, one}, {wire.OpCreate, one}, {wire.OpCreate, creation("/d/plain", 0)}, {wire.OpMulti, two}, {wire.OpMulti, two}} {
		theirBody, theirErr := theirs.try(request.op, request.body)
		reply := ours.do(request.op, request.body)
		var body []byte
		if reply.Body != nil {
			body = reply.Body.AppendTo(nil)
		}
		if theirErr != reply.Header.Err || string(theirBody) != string(body) {
			t.Errorf("request %d: %v %q, want %v %q", i, reply.Header.Err, body, theirErr, theirBody)
		}
		var stat wire.StatReply
		stat.Decode(theirs.do(wire.OpExists, &wire.ReadRequest{Path: "/d"}))
		if got := ours.stat("/d"); got.Cversion != stat.Stat.Cversion || got.NumChildren != stat.Stat.NumChildren {
			t.Errorf("after request %d: %+v, want %+v", i, got, stat.Stat)
		}
	}
}

// writeLog writes a transaction log of ZooKeeper's own that creates /d and a first child, which makes the counter what is
// asked for.
func writeLog(t *testing.T, dir string, counter int32) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(filepath.Join(dir, "log.1"), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// real is a connection to a real ZooKeeper.
type real struct {
	t      *testing.T
	nc     net.Conn
	frames *wire.FrameReader
}

func dialReal(t *testing.T, addr string) *real {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	c := &real{t: t, nc: nc, frames: wire.NewFrameReader(nc, 1<<20)}
	c.send(&wire.ConnectRequest{TimeoutMs: 30_000, Passwd: make([]byte, 16)})
	if _, err := c.frames.Next(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *real) send(records ...wire.Record) {
	if _, err := c.nc.Write(wire.AppendFrame(nil, records...)); err != nil {
		c.t.Fatal(err)
	}
}

// do returns the body of the reply to a request that has to succeed.
func (c *real) do(op wire.Op, body wire.Record) *wire.Decoder {
	c.t.Helper()
	reply, err := c.try(op, body)
	if err != wire.OK {
		c.t.Fatalf("operation %d %+v: %v", op, body, err)
	}
	return wire.NewDecoder(reply)
}

func (c *real) try(op wire.Op, body wire.Record) ([]byte, wire.ErrCode) {
	c.t.Helper()
	c.send(&wire.RequestHeader{Xid: 7, Op: op}, body)
	frame, err := c.frames.Next()
	if err != nil {
		c.t.Fatal(err)
	}
	d := wire.NewDecoder(frame)
	var h wire.ReplyHeader
	h.Decode(d)
	return slices.Clone(frame[len(frame)-d.Len():]), h.Err
}
