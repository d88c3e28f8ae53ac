package zkreal

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// Mkdir creates one persistent, empty, world-open node at path, whose parent must exist. It speaks just enough of the
// protocol for that, so that test support depends on none of the code it helps to test.
func Mkdir(addr, path string) error {
	const within = 10 * time.Second
	conn, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	connect := appendInt(nil, 0)                               // protocol version
	connect = binary.BigEndian.AppendUint64(connect, 0)        // last zxid seen
	connect = appendInt(connect, int32(within.Milliseconds())) // session timeout
	connect = binary.BigEndian.AppendUint64(connect, 0)        // session id: a new one
	connect = appendString(connect, string(make([]byte, 16)))  // password
	if _, err := exchange(conn, connect); err != nil {
		return fmt.Errorf("create %s: open session: %w", path, err)
	}
	create := appendInt(appendInt(nil, 1), 1) // xid 1, operation create
	create = appendString(create, path)
	create = appendString(create, "") // data
	create = appendInt(create, 1)     // one ACL entry
	create = appendInt(create, 31)    // all permissions
	create = appendString(create, "world")
	create = appendString(create, "anyone")
	create = appendInt(create, 0) // flags: persistent
	reply, err := exchange(conn, create)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	if len(reply) < 16 {
		return fmt.Errorf("create %s: reply of %d bytes", path, len(reply))
	}
	if code := int32(binary.BigEndian.Uint32(reply[12:])); code != 0 {
		return fmt.Errorf("create %s: ZooKeeper error %d", path, code)
	}
	if _, err := exchange(conn, appendInt(appendInt(nil, 2), -11)); err != nil {
		return fmt.Errorf("create %s: close session: %w", path, err)
	}
	return nil
}

func appendInt(b []byte, n int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }

func appendString(b []byte, s string) []byte { return append(appendInt(b, int32(len(s))), s...) }

// exchange sends one frame and reads one.
func exchange(conn net.Conn, request []byte) ([]byte, error) {
	if _, err := conn.Write(append(appendInt(nil, int32(len(request))), request...)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > 1<<20 {
		return nil, fmt.Errorf("frame of %d bytes", size)
	}
	reply := make([]byte, size)
	_, err := io.ReadFull(conn, reply)
	return reply, err
}
