package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

// bodies are good requests of every operation; the fuzzer makes bad ones of them.
func bodies() map[wire.Op]wire.Record {
	create := creation("/a/b", wire.FlagSequential)
	watches := wire.SetWatchesRequest{RelativeZxid: 1, Data: []string{"/a"}, Exist: []string{"/c"}, Child: []string{"/b"}}
	return map[wire.Op]wire.Record{
		wire.OpCreate:          create,
		wire.OpCreate2:         create,
		wire.OpCreateContainer: creation("/c", wire.FlagContainer),
		wire.OpCreateTTL:       &wire.CreateTTLRequest{CreateRequest: *creation("/t", wire.FlagPersistentTTL), TTL: 5},
		wire.OpDelete:          &wire.VersionRequest{Path: "/b", Version: -1},
		wire.OpCheck:           &wire.VersionRequest{Path: "/a", Version: 0},
		wire.OpSetData:         &wire.SetDataRequest{Path: "/a", Data: []byte("x"), Version: -1},
		wire.OpSetACL:          &wire.SetACLRequest{Path: "/a", ACL: []wire.ACL{{Perms: 31, Scheme: "ip", ID: "10.0.0.0/8"}, {Perms: 1, Scheme: "auth"}}, Version: -1},
		wire.OpGetACL:          &wire.PathRecord{Path: "/a"},
		wire.OpSync:            &wire.PathRecord{Path: "/"},
		wire.OpGetEphemerals:   &wire.PathRecord{Path: "/e"},
		wire.OpCountChildren:   &wire.PathRecord{Path: "/"},
		wire.OpDeleteContainer: &wire.PathRecord{Path: "/a"},
		wire.OpExists:          &wire.ReadRequest{Path: "/none", Watch: true},
		wire.OpGetData:         &wire.ReadRequest{Path: "/a", Watch: true},
		wire.OpGetChildren:     &wire.ReadRequest{Path: "/", Watch: true},
		wire.OpGetChildren2:    &wire.ReadRequest{Path: "/", Watch: true},
		wire.OpMulti: multi(wire.MultiOp{Op: wire.OpCreate, Record: create}, wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: "/b", Version: -1}},
			wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: "/a", Version: 4}}),
		wire.OpMultiRead:     multi(wire.MultiOp{Op: wire.OpGetData, Record: &wire.ReadRequest{Path: "/a"}}, wire.MultiOp{Op: wire.OpGetChildren, Record: &wire.ReadRequest{Path: "/a"}}),
		wire.OpSetWatches:    &watches,
		wire.OpSetWatches2:   &wire.SetWatches2Request{SetWatchesRequest: watches, Persistent: []string{"/a"}, Recursive: []string{"/"}},
		wire.OpAddWatch:      &wire.AddWatchRequest{Path: "/", Mode: wire.WatchRecursive},
		wire.OpCheckWatches:  &wire.WatchTypeRequest{Path: "/a", Type: 3},
		wire.OpRemoveWatches: &wire.WatchTypeRequest{Path: "/a", Type: 1},
		wire.OpAuth:          &wire.AuthRequest{Scheme: "digest", Auth: []byte("u:p")},
		wire.OpSASL:          &wire.SASLRecord{Token: []byte("t")},
		wire.OpReconfig:      raw(wire.AppendLong(wire.AppendString(wire.AppendString(wire.AppendString(nil, ""), ""), ""), 1)),
		wire.OpWhoAmI:        raw{},
		wire.OpPing:          raw{},
		wire.OpCloseSession:  raw{},
		wire.OpCreateSession: raw(wire.AppendInt(nil, 5)),
	}
}

// FuzzRequest sends any body to any operation. There is no panic, a counted and sound tree, a reply that can be
// encoded, zxids without a gap, a log that gives the same tree, and another client that is served as before.
func FuzzRequest(f *testing.F) {
	for op, body := range bodies() {
		b := body.AppendTo(nil)
		f.Add(int32(op), b)
		f.Add(int32(op), b[:len(b)/2])
		f.Add(int32(op), append(bytes.Clone(b), 0xff, 0xff, 0xff, 0xff))
	}
	f.Add(int32(99), []byte{})
	for _, path := range []string{"//b", "//e", "//", "/b/", "//zookeeper"} { // paths that a lookup and a parent's child could disagree on
		f.Add(int32(wire.OpDelete), (&wire.VersionRequest{Path: path, Version: -1}).AppendTo(nil))
		f.Add(int32(wire.OpCreate), creation(path, 0).AppendTo(nil))
		f.Add(int32(wire.OpSetData), (&wire.SetDataRequest{Path: path, Version: -1}).AppendTo(nil))
		f.Add(int32(wire.OpSetACL), (&wire.SetACLRequest{Path: path, ACL: everyone, Version: -1}).AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, op int32, body []byte) {
		r := newRig(t)
		other, c := r.client(1), r.client(2)
		other.create("/a", 0)
		other.create("/b", 0)
		c.create("/e", wire.FlagEphemeral)
		other.must(wire.OpAddWatch, &wire.AddWatchRequest{Path: "/", Mode: wire.WatchRecursive})
		before := r.s.LastZxid()
		reply := c.do(wire.Op(op), raw(body))
		if wrote := r.s.LastZxid() != before; wrote != (reply.Txn != nil) || wrote && r.s.LastZxid() != before+1 {
			t.Fatalf("zxid %d after %d with %+v", r.s.LastZxid(), before, reply.Txn)
		}
		check(t, r.s)
		replica := New(Config{})
		for _, txn := range r.txns {
			again := assert.Value(DecodeTxn(txn.AppendTo(nil)))(t)
			assert.NoError(t, replica.Apply(again))
		}
		assert.Must(t, dump(replica) == dump(r.s), "replayed:\n%s\nlived:\n%s", dump(replica), dump(r.s))
		other.stat("/") // which needs no permission and cannot go
	})
}

// FuzzDecodeTxn reads any bytes as a transaction. What is accepted must come back from its own encoding, and applying it
// must not panic.
func FuzzDecodeTxn(f *testing.F) {
	r := wander(f, 1, 200)
	for _, txn := range r.txns {
		f.Add(txn.AppendTo(nil))
	}
	f.Add([]byte{txnVersion, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		txn, err := DecodeTxn(b)
		if err != nil {
			return
		}
		encoded := txn.AppendTo(nil)
		again := assert.Value(DecodeTxn(encoded))(t, "its own encoding is refused")
		assert.Must(t, bytes.Equal(again.AppendTo(nil), encoded), "%+v came back as %+v", txn, again)
		txn.Zxid = 1
		_ = New(Config{}).Apply(txn) // may be refused
	})
}

func TestATransactionThatWasCutShortIsRefused(t *testing.T) {
	for _, txn := range wander(t, 2, 300).txns {
		whole := txn.AppendTo(nil)
		for n := range whole {
			_, err := DecodeTxn(whole[:n])
			assert.Must(t, err != nil, "%d of %d bytes of %+v were accepted", n, len(whole), txn)
		}
		_, err := DecodeTxn(append(whole, 0))
		assert.Must(t, err != nil, "a byte behind %+v was accepted", txn)
	}
	_, err := DecodeTxn([]byte{txnVersion + 1})
	assert.Must(t, err != nil, "a version of the future was accepted")
}

// joined is pieces behind their lengths, and split takes them apart again, with any lengths.
func joined(pieces [][]byte) (b []byte) {
	for _, piece := range pieces {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(piece))), piece...)
	}
	return b
}

func separated(b []byte) (pieces [][]byte) {
	for len(b) >= 2 {
		n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
		pieces = append(pieces, b[2:2+n])
		b = b[2+n:]
	}
	return pieces
}

// FuzzRestore reads any pieces as a snapshot. What is accepted must be sound, serve, and come back from a snapshot of its own.
func FuzzRestore(f *testing.F) {
	_, large := largeT(f)
	f.Add(joined(large.pieces))
	for seed := range uint64(5) {
		r := wander(f, seed, 200)
		f.Add(joined(take(r.s, 1<<10).pieces))
		f.Add(joined(take(r.s, 1).pieces))
	}
	f.Add(joined(take(New(Config{}), 1<<10).pieces))
	f.Fuzz(func(t *testing.T, b []byte) { serveRestored(t, separated(b)) })
}

// serveRestored restores pieces that may be damaged, and lets the State work if they are accepted.
func serveRestored(t *testing.T, pieces [][]byte) (accepted bool) {
	s, err := restore(pieces)
	if err != nil {
		return false
	}
	check(t, s)
	p := begin(s)
	for !p.next(100) {
	}
	p.restoredT(t)
	const now = 1 << 40
	conn := NewConn("127.0.0.1")
	conn.Session = s.NewestSession(0) + 1
	s.OpenSession(now, conn.Session, 1000)
	s.Attach(conn)
	for op, body := range bodies() {
		s.Request(conn, now, wire.RequestHeader{Op: op}, body.AppendTo(nil))
	}
	s.Reap(now)
	for id := range s.Sessions() {
		s.CloseSession(now, id)
	}
	check(t, s)
	return true
}

func TestDamagedPiecesDoNoHarm(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 5))
	accepted := 0
	for seed := range uint64(4) {
		pieces := take(wander(t, seed, 300).s, 300).pieces
		for range 500 {
			damaged := slices.Clone(pieces)
			i := random.IntN(len(pieces))
			damaged[i] = slices.Clone(pieces[i])
			for range 1 + random.IntN(3) {
				damaged[i][random.IntN(len(damaged[i]))] = byte(random.IntN(256))
			}
			if serveRestored(t, damaged) {
				accepted++ // other data, or another number
			}
		}
	}
	assert.That(t, accepted >= 40, "only %d were accepted: nothing was tried", accepted)
}

func TestDeletingThroughTwoSlashesFindsNoNode(t *testing.T) {
	r := newRig(t)
	c := r.client(1)
	c.create("/a", 0)
	c.create("/a/b", 0)
	c.create("/leaf", 0)
	for _, path := range []string{"//leaf", "//a", "//", "/a//b", "/a/", "//zookeeper", "/a/b/", "///a", "//a/b"} {
		for _, op := range []wire.Op{wire.OpDelete, wire.OpMulti} {
			body := wire.Record(&wire.VersionRequest{Path: path, Version: -1})
			if op == wire.OpMulti {
				body = multi(wire.MultiOp{Op: wire.OpDelete, Record: body})
			}
			reply := c.do(op, body)
			assert.That(t, op != wire.OpDelete || reply.Header.Err == wire.ErrNoNode, "%q: %v, want no node", path, reply.Header.Err)
		}
	}
	c.stat("/a/b")
	check(t, r.s)
}

func TestAMultiReadMakesNoReplyAboveTheBound(t *testing.T) {
	r := newRig(t)
	r.s = New(Config{MaxReply: 1 << 20})
	c := r.client(1)
	c.set("/", string(make([]byte, 100<<10)))
	var reads []wire.MultiOp
	for range 20 {
		reads = append(reads, wire.MultiOp{Op: wire.OpGetData, Record: &wire.ReadRequest{Path: "/"}})
	}
	c.must(wire.OpMultiRead, multi(reads[:5]...))
	reply := c.do(wire.OpMultiRead, multi(reads...))
	assert.That(t, reply.Close && reply.None && reply.Body == nil, "2 MB of a bound of 1 MB were answered: close %v", reply.Close)
	r.s.tree.root.set("", nil)
	for i := range 1000 {
		c.create(fmt.Sprintf("/a-rather-long-name-of-a-child-%d", i), 0)
	}
	for i := range reads {
		reads[i].Op = wire.OpGetChildren
	}
	c.must(wire.OpMultiRead, multi(reads[:5]...))
	for range 3 {
		reads = append(reads, reads...)
	}
	assert.That(t, c.do(wire.OpMultiRead, multi(reads...)).Close, "children have no bound")
}

func TestIdentitiesOfAConnectionAreBounded(t *testing.T) {
	r := newRig(t)
	c := r.client(1)
	for i := range maxIdentities - 1 { // the address is one
		c.login(fmt.Sprint("user", i))
	}
	c.login("user0") // is one already
	more := &wire.AuthRequest{Scheme: "digest", Auth: []byte("one:more")}
	reply := c.do(wire.OpAuth, more)
	assert.That(t, reply.Header.Err == wire.ErrAuthFailed && reply.Close, "one more: %v, close %v", reply.Header.Err, reply.Close)
}

// An ACL is looked through for each operation on its node, and "auth" in it stands for all identities of a client: without a
// bound a few requests would hold up the server for minutes or take all of its memory.
func TestEntriesOfAnACLAreBounded(t *testing.T) {
	r := newRig(t)
	c := r.client(1)
	var long []wire.ACL
	for i := range maxACL {
		long = append(long, wire.ACL{Perms: int32(i), Scheme: "world", ID: "anyone"})
	}
	create := func(path string, acl []wire.ACL) wire.ErrCode {
		return c.do(wire.OpCreate, &wire.CreateRequest{Path: path, ACL: acl}).Header.Err
	}
	assert.Equal(t, create("/long", long), wire.OK, "the longest")
	assert.Equal(t, create("/repeats", append(long, long...)), wire.OK, "what is repeated counts")
	assert.Equal(t, create("/longer", append(long, wire.ACL{Perms: maxACL, Scheme: "world", ID: "anyone"})), wire.ErrInvalidACL, "one more")
	for i := range 8 {
		c.login(fmt.Sprint("user", i))
	}
	for i := range long {
		long[i].Scheme, long[i].ID = "auth", ""
	}
	assert.Equal(t, create("/own", long[:maxACL/8]), wire.OK, "the longest of identities")
	assert.Equal(t, create("/more", long[:maxACL/8+1]), wire.ErrInvalidACL, "one more for each identity")
	assert.Equal(t, c.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/own", ACL: long, Version: -1}).Header.Err, wire.ErrInvalidACL, "setACL")
	check(t, r.s)
}
