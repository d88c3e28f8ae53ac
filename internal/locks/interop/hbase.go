package interop

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"lockkeeper/internal/locks"
)

// HBase's ZKInterProcessLock puts a protobuf message TableLock into its contender,
// behind the four bytes PBUF. HBase's ZooKeeper client puts who wrote it before that: 0xFF,
// a length of four bytes, and so many bytes.
//
//	TableLock   1 table_name TableName, 2 lock_owner ServerName, 3 thread_id, 4 is_shared, 5 purpose, 6 create_time
//	TableName   1 namespace, 2 qualifier
//	ServerName  1 host_name, 2 port, 3 start_code

var hbaseMagic = []byte("PBUF")

// decodeHBase reads a TableLock, nil when it is none.
func decodeHBase(data []byte) *locks.Decoded {
	if len(data) >= 5 && data[0] == 0xFF {
		n := binary.BigEndian.Uint32(data[1:])
		if uint64(n) > uint64(len(data)-5) {
			return nil
		}
		data = data[5+n:]
	}
	data, found := bytes.CutPrefix(data, hbaseMagic)
	if !found {
		return nil
	}
	var t locks.TableLock
	ok := fields(data, func(field protowire.Number, number uint64, value []byte) bool {
		switch field {
		case 1:
			name, ok := strs(value, 2)
			t.Table = strings.TrimPrefix(strings.Join(name, ":"), ":")
			return ok
		case 2:
			server, ok := strs(value, 3)
			t.Owner = strings.TrimRight(strings.Join(server, ","), ",")
			return ok
		case 3:
			t.Thread = int64(number)
		case 4:
			t.Shared = number != 0
		case 5:
			t.Purpose = wordOf(value)
		case 6:
			if int64(number) > 0 && int64(number) < int64(time.Hour/time.Millisecond)*24*366*1000 {
				t.Created = time.UnixMilli(int64(number)).UTC()
			}
		}
		return true
	})
	if !ok {
		return nil
	}
	return &locks.Decoded{TableLock: &t}
}

// fields tells each field of a message, a number's or a string's value. It reports
// whether all of it is a message.
func fields(data []byte, tell func(field protowire.Number, number uint64, value []byte) bool) bool {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		var number uint64
		var value []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(field, kind, data)
		}
		if n < 0 || !tell(field, number, value) {
			return false
		}
		data = data[n:]
	}
	return true
}

// strs are the first fields of a message as words.
func strs(data []byte, count int) (words []string, ok bool) {
	words = make([]string, count)
	ok = fields(data, func(field protowire.Number, number uint64, value []byte) bool {
		if int(field) > count {
			return true
		}
		if words[field-1] = wordOf(value); value == nil {
			words[field-1] = strconv.FormatUint(number, 10)
		}
		return true
	})
	return words, ok
}

func wordOf(value []byte) string { return strings.ToValidUTF8(string(value), "\uFFFD") }
