package manager

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/zk"
)

func TestWhatIsKnownOfAnotherProgramsContender(t *testing.T) {
	const curator, hex32 = "_c_12345678-1234-1234-1234-123456789abc-", "0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		prefix, data  string
		program, kind string
		says          string
	}{
		{curator + "lock-", "10.0.0.7", "curator", "mutex", "10.0.0.7"},
		{curator + "lock-", "fe80::1", "curator", "mutex", "fe80::1"},
		{curator + "lock-", "node-3", "curator", "mutex", "participant node-3"},
		{curator + "lock-", "", "curator", "mutex", ""},
		{curator + "__WRIT__", "10.0.0.7", "curator", "write lock", "10.0.0.7"},
		{curator + "__READ__", "__REVOKE__", "curator", "read lock", ""},
		{curator + "latch-", "10.0.0.7", "curator", "leader latch", "participant 10.0.0.7"},
		{curator + "lease-", "10.0.0.7", "curator", "semaphore", "10.0.0.7"},
		{curator + "else-", "10.0.0.7", "curator", "", "10.0.0.7"},
		{"_c_" + hex32 + "-lock-", "", "go-zookeeper", "lock", ""},
		{hex32 + "__lock__", "my-worker", "kazoo", "lock", "my-worker"},
		{hex32 + "__rlock__", "", "kazoo", "read lock", ""},
		{"x-72057594037927936-", "\x12\x34", "zookeeper-writelock", "lock", ""},
		{"x--72057594037927936-", "\x12\x34", "zookeeper-writelock", "lock", ""},
		{"read-", "PBUF\x28\x01\x20\x01", "hbase", "read lock", ""},
		{"write-", "PBUF\x2a\x06create\x30\x80\x80\x80\x80\x10", "hbase", "write lock", "for create"},
		{"write-", "gibberish", "hbase", "write lock", ""},
		{"write-else-", "PBUF\x2a\x06create", "", "", ""},
		{"host-", "10.0.0.7", "", "", ""},
		{curator + "lock-", "\xff\xfe", "curator", "mutex", ""},
	} {
		t.Run(test.prefix+" "+test.data, func(t *testing.T) {
			scene(t, func(t *testing.T, s *fakeStore) {
				g := s.gateway(t)
				g.mustRelease(g.mustHold(deploy()))
				s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Ephemeral: true, Path: "/lockkeeper/locks/deploy/" + test.prefix, Data: []byte(test.data)})
				synctest.Wait()
				time.Sleep(90 * time.Second)
				v, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
				if err != nil || len(v.Holders) != 1 {
					t.Fatalf("%+v, %v", v, err)
				}
				c := v.Holders[0]
				if f := c.Foreign; f.Program != test.program || f.Kind != test.kind || f.Decoded.String() != test.says || f.Session != 1 || string(f.Data) != test.data {
					t.Errorf("%+v, says %q", f, f.Decoded)
				}
				if !c.AgeKnown || c.Age < 89*time.Second || c.Age > 91*time.Second {
					t.Errorf("age %v", c.Age)
				}
			})
		})
	}
}

func TestHBasesTableLockIsRead(t *testing.T) {
	message := []byte("PBUF" +
		"\x0a\x0f" + "\x0a\x07default" + "\x12\x04user" +
		"\x12\x0e" + "\x0a\x05node1" + "\x10\x80\x7d" + "\x18\xe8\xd8\x01" +
		"\x18\x2a" + "\x20\x01" + "\x2a\x06create" + "\x30\x80\xa0\xd6\xbd\xe7\x2d" + "\x7a\x01?")
	want := &locks.Decoded{TableLock: &locks.TableLock{Table: "default:user", Owner: "node1,16000,27752", Purpose: "create", Thread: 42, Shared: true,
		Created: time.Date(2019, 11, 17, 4, 53, 37, 920e6, time.UTC)}}
	if got := decodeHBase(message); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got.TableLock)
	}
	// As HBase's own ZooKeeper client writes it: who it is comes first.
	if got := decodeHBase(append([]byte("\xff\x00\x00\x00\x0amaster:160"), message...)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for _, wrong := range []string{"", "PBU", "\xff\xff\xff\xff\xff", "\xff\x00\x00\x00\x01", "PBUF\x0a\x0f", "PBUF\xff", "PBUF\x0a\x02\x0a\x05"} {
		if got := decodeHBase([]byte(wrong)); got != nil {
			t.Errorf("%q is %+v", wrong, got.TableLock)
		}
	}
}

// Anybody may write anything into a contender.
func FuzzDecodeForeign(f *testing.F) {
	f.Add("hbase", "", []byte("PBUF\x0a\x0f\x0a\x07default\x12\x04user\x30\x80\x80\x80\x80\x10"))
	f.Add("hbase", "", []byte("\xff\x00\x00\x00\x01aPBUF\x2a\x02\xff\xfe"))
	f.Add("curator", "mutex", []byte("::1"))
	f.Fuzz(func(t *testing.T, program, kind string, data []byte) {
		d := decodeForeign(program, kind, data)
		if says := d.String(); !utf8.ValidString(says) {
			t.Errorf("%q", says)
		}
		if d != nil && d.TableLock != nil {
			if _, err := d.TableLock.Created.MarshalJSON(); err != nil {
				t.Error(err)
			}
			if !strings.Contains(string(data), "PBUF") {
				t.Errorf("read from %s", hex.EncodeToString(data))
			}
		}
	})
}
