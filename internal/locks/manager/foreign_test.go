package manager

import (
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
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
			withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
				g.mustRelease(g.mustHold(deploy()))
				s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Ephemeral: true, Path: "/lockkeeper/locks/deploy/" + test.prefix, Data: []byte(test.data)})
				time.Sleep(90 * time.Second)
				v, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
				assert.Must(t, err == nil && len(v.Holders) == 1, "%+v, %v", v, err)
				c := v.Holders[0]
				if f := c.Foreign; f.Program != test.program || f.Kind != test.kind || f.Decoded.String() != test.says || f.Session != 1 || string(f.Data) != test.data {
					t.Errorf("%+v, says %q", f, f.Decoded)
				}
				assert.That(t, c.AgeKnown && c.Age >= 89*time.Second && c.Age <= 91*time.Second, "age %v", c.Age)
			})
		})
	}
}
