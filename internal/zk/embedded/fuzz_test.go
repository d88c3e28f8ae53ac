package embedded_test

import (
	"context"
	"io"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/zk/wire"
)

// FuzzConnection sends arbitrary bytes on a connection, some of them behind a good handshake, and looks whether another client
// is still served and the server still stands.
func FuzzConnection(f *testing.F) {
	hello := wire.AppendFrame(nil, &wire.ConnectRequest{TimeoutMs: 5000, Passwd: make([]byte, 16)})
	for _, b := range [][]byte{
		nil, []byte("ruok"), []byte("mntr"), {0xff, 0xff, 0xff, 0xff}, {0x7f, 0xff, 0xff, 0xff}, {0, 0, 0, 0}, hello[4:],
		rawzk.Request(1, wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone}),
		rawzk.Request(2, wire.OpCreateTTL, &wire.CreateTTLRequest{CreateRequest: wire.CreateRequest{Path: "/t", ACL: everyone, Flags: 5}, TTL: 1}),
		rawzk.Request(3, wire.OpMulti, &wire.MultiRequest{Ops: []wire.MultiOp{
			{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: "/m-", ACL: everyone, Flags: 2}},
			{Op: wire.OpCheck, Record: &wire.VersionRequest{Path: "/m", Version: 3}},
		}}),
		rawzk.Request(4, wire.OpMultiRead, &wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpGetData, Record: &wire.ReadRequest{Path: "/"}}}}),
		rawzk.Request(5, wire.OpAddWatch, &wire.AddWatchRequest{Path: "/", Mode: 1}),
		rawzk.Request(-8, wire.OpSetWatches2, &wire.SetWatches2Request{SetWatchesRequest: wire.SetWatchesRequest{Data: []string{"/a", "b"}}, Recursive: []string{"/"}}),
		rawzk.Request(-4, wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte("a:b")}),
		rawzk.Request(6, wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: everyone, Version: -1}),
		rawzk.Request(7, wire.OpRemoveWatches, &wire.WatchTypeRequest{Path: "/", Type: 3}),
		rawzk.Request(8, wire.OpWhoAmI, nil), rawzk.Request(9, wire.OpReconfig, nil), rawzk.Request(10, wire.OpSASL, nil),
		append(rawzk.Request(11, wire.OpCloseSession, nil), rawzk.Request(12, wire.OpPing, nil)...),
	} {
		f.Add(true, b)
		f.Add(false, b)
	}
	s := embeddedtest.RunT(f, embeddedtest.Pipes())
	f.Fuzz(func(t *testing.T, greeted bool, input []byte) {
		nc, err := s.Dial(context.Background(), "", "")
		if err != nil {
			t.Fatalf("the server is gone: %v", s.Err())
		}
		defer nc.Close()
		go func() { _, _ = io.Copy(io.Discard, nc) }() // ends with nc
		assert.NoError(t, nc.SetWriteDeadline(time.Now().Add(time.Second)))
		if greeted {
			input = append(append([]byte(nil), hello...), input...)
		}
		_, _ = nc.Write(input) // the server may close it meanwhile

		other := openRaw(t, s, time.Minute)
		other.ping()
		other.must(wire.OpExists, &wire.ReadRequest{Path: "/zookeeper"})
		other.close()
	})
}
