package difftest

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk/wire"
)

// liar stands before a server and changes what it says. lie gets the frames of one connection in order and returns what is
// passed on instead.
func liar(t *testing.T, addr string, newLie func() func(frame []byte) [][]byte) string {
	t.Helper()
	l := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", addr)
			if err != nil {
				down.Close()
				return
			}
			go func() {
				_, _ = io.Copy(up, down) // ends with either connection
				up.Close()
			}()
			go func() {
				defer down.Close()
				lie := newLie()
				for frames := wire.NewFrameReader(up, 64<<20); ; {
					frame, err := frames.Next()
					if err != nil {
						return
					}
					for _, f := range lie(frame) {
						if _, err := down.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...)); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// Offsets in a reply that is a header and a stat.
const (
	headerSize = 16
	statReply  = headerSize + wire.StatSize
)

func add(frame []byte, at int, n byte) [][]byte {
	frame[at] += n
	return [][]byte{frame}
}

func isEvent(frame []byte) bool {
	return len(frame) > headerSize && int32(binary.BigEndian.Uint32(frame)) == wire.XidWatcherEvent
}

// lies are the ways in which a server could be wrong that clients would see.
var lies = map[string]func() func(frame []byte) [][]byte{
	"a version is one too high": onlyStats(func(f []byte) [][]byte { return add(f, headerSize+35, 1) }),
	"the times of one transaction differ": onlyStats(func(f []byte) [][]byte {
		ms := binary.BigEndian.Uint64(f[headerSize+16:])
		binary.BigEndian.PutUint64(f[headerSize+16:], ms-1)
		return [][]byte{f}
	}),
	"a number of children is wrong": onlyStats(func(f []byte) [][]byte { return add(f, headerSize+59, 1) }),
	"pzxid lags":                    onlyStats(func(f []byte) [][]byte { return add(f, headerSize+67, 0xff) }),
	"a wrong owner": onlyStats(func(f []byte) [][]byte {
		if binary.BigEndian.Uint64(f[headerSize+44:]) == 0 {
			return [][]byte{f}
		}
		return add(f, headerSize+51, 1)
	}),
	"no such node is called a wrong version": always(func(f []byte) [][]byte {
		if len(f) == headerSize && int32(binary.BigEndian.Uint32(f[12:])) == int32(wire.ErrNoNode) {
			binary.BigEndian.PutUint32(f[12:], 0xffffff99) // -103
		}
		return [][]byte{f}
	}),
	"events are dropped": always(func(f []byte) [][]byte {
		if isEvent(f) {
			return nil
		}
		return [][]byte{f}
	}),
	"events come twice": always(func(f []byte) [][]byte {
		if isEvent(f) {
			return [][]byte{f, f}
		}
		return [][]byte{f}
	}),
	"an event comes after the reply that shows its change": func() func([]byte) [][]byte {
		var held [][]byte
		return func(f []byte) [][]byte {
			if isEvent(f) {
				held = append(held, append([]byte(nil), f...))
				return nil
			}
			out := append([][]byte{f}, held...)
			held = nil
			return out
		}
	},
	"two events are in the other order": func() func([]byte) [][]byte {
		var held [][]byte
		return func(f []byte) [][]byte {
			if isEvent(f) && held == nil {
				held = [][]byte{append([]byte(nil), f...)}
				return nil
			}
			out := append([][]byte{f}, held...)
			if !isEvent(f) {
				slices.Reverse(out)
			}
			held = nil
			return out
		}
	},
	"a list lacks its last child": always(func(f []byte) [][]byte {
		var list wire.ChildrenReply
		if d := wire.NewDecoder(f[headerSize:]); len(f) > headerSize && !isEvent(f) {
			if list.Decode(d); d.Finish() == nil && len(list.Children) > 0 {
				list.Children = list.Children[:len(list.Children)-1]
				f = list.AppendTo(f[:headerSize:headerSize])
			}
		}
		return [][]byte{f}
	}),
	"the zxid of a reply is the next one": always(func(f []byte) [][]byte {
		if len(f) == headerSize && f[15] == 0 && int32(binary.BigEndian.Uint32(f)) > 0 {
			return add(f, 11, 1)
		}
		return [][]byte{f}
	}),
	"a timeout is not the negotiated one": func() func([]byte) [][]byte {
		first := true
		return func(f []byte) [][]byte {
			if !first {
				return [][]byte{f}
			}
			first = false
			return add(f, 7, 1)
		}
	},
	"an empty path of a reply is null": always(func(f []byte) [][]byte {
		if len(f) == headerSize+4 && f[19] == 0 { // an empty list: null instead
			binary.BigEndian.PutUint32(f[headerSize:], 0xffffffff)
		}
		return [][]byte{f}
	}),
}

func always(lie func([]byte) [][]byte) func() func([]byte) [][]byte {
	return func() func([]byte) [][]byte { return lie }
}

func onlyStats(lie func([]byte) [][]byte) func() func([]byte) [][]byte {
	return always(func(f []byte) [][]byte {
		if len(f) == statReply {
			return lie(f)
		}
		return [][]byte{f}
	})
}

// TestALieIsCaught keeps the comparison honest: it must see each kind of wrong reply within a few seeds, and say it shortly.
func TestALieIsCaught(t *testing.T) {
	a, b := embeddedT(t).Addr, embeddedT(t).Addr
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			pair := &Pair{A: Target{"honest", a}, B: Target{"liar", liar(t, b, lie)}}
			const seeds = 40
			for seed := range uint64(seeds) {
				d := assert.Value(pair.Compare(Generate(seed)))(t)
				if d == nil {
					continue
				}
				d = pair.Shrink(d, 100)
				assert.That(t, len(d.Scenario.Steps) <= 6, "seed %d: not as short as it could be:\n%v", seed, d)
				t.Logf("seed %d:\n%v", seed, d)
				return
			}
			t.Errorf("not caught by %d seeds", seeds)
		})
	}
}

// TestHonestServersDoNotDiffer is its counterpart.
func TestHonestServersDoNotDiffer(t *testing.T) {
	testkit.NoLeaks(t)
	pair := &Pair{A: embeddedT(t), B: embeddedT(t)}
	for seed := range uint64(30) {
		pair.CheckT(t, Generate(seed))
	}
}
