package wire

import (
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/test/assert"
)

// samples holds one record of every kind with every field set.
func samples() []Record {
	acl := []ACL{{PermAll, "world", "anyone"}, {PermRead, "digest", "u:h"}}
	stat := Stat{Czxid: 1, Mzxid: 2, Ctime: 3, Mtime: 4, Version: 5, Cversion: 6, Aversion: 7, EphemeralOwner: 8, DataLength: 9, NumChildren: 10, Pzxid: 11}
	create := CreateRequest{Path: "/a/b", Data: []byte{1, 2}, ACL: acl, Flags: FlagSequential}
	watches := SetWatchesRequest{RelativeZxid: 9, Data: []string{"/d"}, Exist: []string{"/e", "/f"}, Child: []string{"/c"}}
	return []Record{
		&RequestHeader{Xid: 7, Op: OpMulti},
		&ReplyHeader{Xid: 7, Zxid: 1 << 40, Err: ErrNoNode},
		&ConnectRequest{LastZxidSeen: 5, TimeoutMs: 10_000, SessionID: 6, Passwd: []byte("0123456789abcdef")},
		&ConnectRequest{LastZxidSeen: 5, TimeoutMs: 10_000, SessionID: 6, Passwd: []byte("0123456789abcdef"), HasReadOnly: true, ReadOnly: true},
		&ConnectReply{TimeoutMs: 10_000, SessionID: 6, Passwd: []byte("0123456789abcdef")},
		&ConnectReply{TimeoutMs: 10_000, SessionID: 6, Passwd: []byte("0123456789abcdef"), HasReadOnly: true},
		&stat,
		&acl[1],
		&WatcherEvent{Type: EventDeleted, State: StateSyncConnected, Path: "/a"},
		&create,
		&CreateTTLRequest{CreateRequest: create, TTL: 1234},
		&VersionRequest{Path: "/a", Version: -1},
		&SetDataRequest{Path: "/a", Data: []byte{}, Version: 3},
		&SetDataRequest{Path: "/a", Version: 3},
		&ReadRequest{Path: "/a", Watch: true},
		&PathRecord{Path: "/a"},
		&SetACLRequest{Path: "/a", ACL: acl, Version: 1},
		&WatchTypeRequest{Path: "/a", Type: 3},
		&AddWatchRequest{Path: "/a", Mode: WatchRecursive},
		&AuthRequest{Scheme: "digest", Auth: []byte("u:p")},
		&watches,
		&SetWatches2Request{SetWatchesRequest: watches, Persistent: []string{"/p"}, Recursive: []string{"/r", "/s"}},
		&Create2Reply{Path: "/a", Stat: stat},
		&StatReply{Stat: stat},
		&DataReply{Data: []byte("data"), Stat: stat},
		&DataReply{Stat: stat},
		&ACLReply{ACL: acl, Stat: stat},
		&ChildrenReply{Children: []string{"a", "", "c"}},
		&ChildrenReply{},
		&Children2Reply{Children: []string{"a", "b"}, Stat: stat},
		&IntReply{Value: -6},
		&WhoAmIReply{Clients: []ClientInfo{{"ip", "127.0.0.1"}, {"digest", ""}}},
		&WhoAmIReply{},
		&SASLRecord{Token: []byte{1}},
		&SASLRecord{},
		&MultiRequest{Ops: []MultiOp{
			{OpCheck, &VersionRequest{"/g", 3}},
			{OpSetData, &SetDataRequest{"/g", []byte("d"), 3}},
			{OpCreate, &create},
			{OpCreate2, &create},
			{OpCreateContainer, &create},
			{OpCreateTTL, &CreateTTLRequest{create, 5}},
			{OpDelete, &VersionRequest{"/x", -1}},
			{OpGetData, &ReadRequest{"/x", false}},
			{OpGetChildren, &ReadRequest{"/x", false}},
		}},
		&MultiRequest{},
		&MultiReply{Results: []MultiResult{
			{Op: OpCheck},
			{Op: OpSetData, Stat: stat},
			{Op: OpCreate, Path: "/a"},
			{Op: OpCreate2, Path: "/a", Stat: stat},
			{Op: OpDelete},
			{Op: OpGetData, Data: []byte("x"), Stat: stat},
			{Op: OpGetChildren, Children: []string{"a"}},
		}},
		&MultiReply{Results: []MultiResult{{Op: OpError}, {Op: OpError, Err: ErrNodeExists}, {Op: OpError, Err: ErrRuntimeInconsistency}}},
	}
}

func fresh(r Record) Record { return reflect.New(reflect.TypeOf(r).Elem()).Interface().(Record) }

func TestEveryRecordRoundTrips(t *testing.T) {
	for _, r := range samples() {
		b := r.AppendTo([]byte{0xee})[1:]
		got := fresh(r)
		d := NewDecoder(b)
		got.Decode(d)
		if err := d.Finish(); err != nil {
			t.Errorf("%T: %v", r, err)
			continue
		}
		diff := cmp.Diff(r, got)
		assert.That(t, diff == "", "%T: -want +got\n%s", r, diff)
	}
}

func TestARecordCutShortIsAnError(t *testing.T) {
	for _, r := range samples() {
		b := r.AppendTo(nil)
		for n := range b {
			switch r.(type) {
			case *ConnectRequest, *ConnectReply:
				if n == len(b)-1 {
					continue // the read-only byte may be missing
				}
			}
			d := NewDecoder(b[:n])
			fresh(r).Decode(d)
			assert.That(t, d.Finish() != nil, "%T: %d of %d bytes were a record", r, n, len(b))
		}
	}
}

func TestTrailingBytesAreAnError(t *testing.T) {
	d := NewDecoder((&VersionRequest{"/a", 1}).AppendTo(nil))
	d.b = append(d.b, 0)
	new(VersionRequest).Decode(d)
	assert.ErrorIs(t, d.Finish(), ErrTrailing, "Finish")
}

// TestAbsurdLengthsAllocateNothing puts a huge, a negative and a plausible but
// wrong number at every place of every record.
func TestAbsurdLengthsAllocateNothing(t *testing.T) {
	for _, r := range samples() {
		whole := r.AppendTo(nil)
		for at := 0; at+4 <= len(whole); at++ {
			for _, n := range []int32{1<<31 - 1, -2, -1 << 31, 1 << 24} {
				b := append([]byte(nil), whole...)
				copy(b[at:], AppendInt(nil, n))
				got := fresh(r)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				got.Decode(NewDecoder(b))
				runtime.ReadMemStats(&after)
				grown := after.TotalAlloc - before.TotalAlloc
				assert.Must(t, grown <= 64<<10, "%T with %d at %d: %d bytes allocated for %d bytes of input", r, n, at, grown, len(b))
			}
		}
	}
}

func TestKnownBytes(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Record
		hex  string
	}{
		{"connect request of old clients is 44 bytes", &ConnectRequest{TimeoutMs: 4000, Passwd: make([]byte, 16)},
			"00000000 0000000000000000 00000fa0 0000000000000000 00000010 00000000000000000000000000000000"},
		{"create", &CreateRequest{Path: "/a", Data: []byte("x"), ACL: []ACL{{PermAll, "world", "anyone"}}, Flags: FlagEphemeral},
			"00000002 2f61 00000001 78 00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000001"},
		{"multi", &MultiRequest{Ops: []MultiOp{{OpDelete, &VersionRequest{"/a", -1}}}},
			"00000002 00 ffffffff 00000002 2f61 ffffffff ffffffff 01 ffffffff"},
		{"failed multi", &MultiReply{Results: []MultiResult{{Op: OpError}, {Op: OpError, Err: ErrNoNode}}},
			"ffffffff 00 00000000 00000000 ffffffff 00 ffffff9b ffffff9b ffffffff 01 ffffffff"},
		{"event", &WatcherEvent{EventCreated, StateSyncConnected, "/a"}, "00000001 00000003 00000002 2f61"},
		{"add watch", &AddWatchRequest{"/a", WatchRecursive}, "00000002 2f61 00000001"},
	} {
		got, want := hex.EncodeToString(c.r.AppendTo(nil)), strings.ReplaceAll(c.hex, " ", "")
		assert.That(t, got == want, "%s:\n got %s\nwant %s", c.name, got, want)
	}
}

func TestNullsAreReadAsEmpty(t *testing.T) {
	null := AppendInt(nil, -1)
	d := NewDecoder(append(append(append([]byte(nil), null...), null...), null...))
	if s, v, b := d.String(), d.Strings(), d.View(); s != "" || v != nil || b != nil || d.Finish() != nil {
		t.Errorf("%q %q %v %v", s, v, b, d.Err())
	}
}

func TestAMultiWithAForeignOperationIsRefused(t *testing.T) {
	b := multiHeader{Op: OpPing, Err: -1}.AppendTo(nil)
	d := NewDecoder(b)
	new(MultiRequest).Decode(d)
	assert.That(t, errors.Is(d.Err(), ErrUnknown), "request: %v", d.Err())
	d = NewDecoder(b)
	new(MultiReply).Decode(d)
	assert.That(t, errors.Is(d.Err(), ErrUnknown), "reply: %v", d.Err())
}

func TestCreatedCountsChildrenAsZooKeeperDoes(t *testing.T) {
	for _, c := range []struct{ creates, children, want int32 }{
		{0, 0, 0}, {1, 1, 1}, {7, 0, 7}, {7, 3, 7},
		{1 << 30, 5, 1 << 30}, {1<<31 - 1, 5, 1<<31 - 1},
		{-1 << 31, 5, 0}, {-1<<31 + 9, 5, 9}, // the counter has overflowed: 2^31 off, as documented
	} {
		s := Stat{Cversion: 2*c.creates - c.children, NumChildren: c.children}
		assert.Equal(t, s.Created(), c.want, "%d creates, %d children", c.creates, c.children)
	}
}

func TestSessionsOwnEphemeralNodesAlone(t *testing.T) {
	for owner, want := range map[int64]bool{0: false, 1 << 56: true, math.MinInt64: false, -1<<56 | 1000: false} { // plain, a session's, a container, a TTL
		assert.Equal(t, (&Stat{EphemeralOwner: owner}).Ephemeral(), want, "owner %#x", owner)
	}
}

func TestEventIsReadWithoutAllocation(t *testing.T) {
	b := (&WatcherEvent{EventCreated, StateSyncConnected, "/lockkeeper/locks/a/n-0000000001"}).AppendTo(nil)
	var d Decoder
	var path []byte
	if n := testing.AllocsPerRun(100, func() {
		d.Reset(b)
		_, path = d.Event()
	}); n != 0 || len(path) != 32 || d.Finish() != nil {
		t.Errorf("%v allocations, path %q, %v", n, path, d.Err())
	}
}

func TestEveryCodeHasAName(t *testing.T) {
	for _, c := range []ErrCode{ErrSystem, ErrUnimplemented, ErrNoNode, ErrAuthFailed, ErrThrottled} {
		assert.That(t, !strings.HasPrefix(c.Error(), "error code") && c.Err() != nil, "%d: %v", c, c)
	}
	assert.That(t, OK.Err() == nil && ErrCode(-9999).Error() == "error code -9999", "OK is an error, or an unknown code has no number")
}
