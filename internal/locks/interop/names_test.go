package interop

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

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
	got := decodeHBase(append([]byte("\xff\x00\x00\x00\x0amaster:160"), message...))
	assert.That(t, reflect.DeepEqual(got, want), "%+v", got)
	for _, wrong := range []string{"", "PBU", "\xff\xff\xff\xff\xff", "\xff\x00\x00\x00\x01", "PBUF\x0a\x0f", "PBUF\xff", "PBUF\x0a\x02\x0a\x05"} {
		got := decodeHBase([]byte(wrong))
		assert.That(t, got == nil, "%q is %+v", wrong, got)
	}
}

// Any program can write any data into a contender.
func FuzzDecode(f *testing.F) {
	f.Add("hbase", "", []byte("PBUF\x0a\x0f\x0a\x07default\x12\x04user\x30\x80\x80\x80\x80\x10"))
	f.Add("hbase", "", []byte("\xff\x00\x00\x00\x01aPBUF\x2a\x02\xff\xfe"))
	f.Add("curator", "mutex", []byte("::1"))
	f.Fuzz(func(t *testing.T, program, kind string, data []byte) {
		d := Decode(program, kind, data)
		says := d.String()
		assert.That(t, utf8.ValidString(says), "%q", says)
		if d != nil && d.TableLock != nil {
			_, err := d.TableLock.Created.MarshalJSON()
			assert.Nil(t, err)
			if !strings.Contains(string(data), "PBUF") {
				t.Errorf("read from %s", hex.EncodeToString(data))
			}
		}
	})
}
