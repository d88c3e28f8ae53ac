package ensemble

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

func TestARealServerSaysWhatItIs(t *testing.T) {
	t.Parallel()
	addr, _ := zkreal.SharedT(t)
	s := Ask(t.Context(), nil, addr)
	assert.That(t, s.Problem == "" && s.Mode == "standalone" && strings.HasPrefix(s.Version, "3.") && s.Zxid >= 0 && s.Connections >= 1,
		"it says %+v", s)
}

// listening answers each connection with the same words.
func listening(t *testing.T, words string) (address string, asked *atomic.Int32) {
	l := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	asked = &atomic.Int32{}
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			if words == "" {
				t.Cleanup(func() { nc.Close() })
				continue
			}
			_, _ = io.ReadFull(nc, make([]byte, 4))
			_, _ = io.WriteString(nc, words)
			nc.Close()
		}
	}()
	return l.Addr().String(), asked
}

func TestAServerThatSaysNothingIsShownWithWhatIsWrong(t *testing.T) {
	t.Parallel()
	closed := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed.Close()
	not, _ := listening(t, "srvr is not executed because it is not in the whitelist.\n")
	away, _ := listening(t, "This ZooKeeper instance is not currently serving requests\n")
	odd, _ := listening(t, "Zookeeper version: 3.8.0--1, built on\nZxid: many\n")
	silent, _ := listening(t, "")
	good, _ := listening(t, "Zookeeper version: 3.9.2-e454e8c7283100c7caec6dcae2bc82aaecb63023, built on 2024-02-12\nLatency min/avg/max: 0/0.5/12\nReceived: 45\n"+
		"Sent: 44\nConnections: 3\nOutstanding: 1\nZxid: 0x100000002a\nMode: follower\nNode count: 17\n")
	e := Status{Servers: []string{closed.Addr().String(), not, away, odd, silent, good}}
	begun := time.Now()
	list := e.Get(t.Context())
	took := time.Since(begun)
	assert.Must(t, took <= 10*time.Second && len(list) == 6, "after %v: %+v", took, list)
	for _, s := range list[:5] {
		assert.That(t, s.Problem != "" && s.Mode == "", "%+v", s)
	}
	want := Server{Address: good, Mode: "follower", Version: "3.9.2", Zxid: 0x100000002a, Connections: 3, Outstanding: 1}
	assert.That(t, list[5] == want, "it says %+v", list[5])
}

func TestServersAreAskedNowAndThenHoweverManyLook(t *testing.T) {
	t.Parallel()
	address, asked := listening(t, "Zookeeper version: 3.8.0\nMode: leader\n")
	e := Status{Servers: []string{address}}
	for range 20 {
		list := e.Get(t.Context())
		assert.Must(t, len(list) == 1 && list[0].Mode == "leader", "%+v", list)
	}
	n := asked.Load()
	assert.That(t, n == 1, "asked %d times", n)
	assert.That(t, (&Status{}).Get(t.Context()) == nil, "servers that were never asked for are listed")
}
