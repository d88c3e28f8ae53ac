package embedded_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/wire"
)

// BenchmarkTransactions is a gateway's write without the gateway: a multi that checks one node, sets another, creates a
// sequential contender and deletes the one before it, from clients that each wait for their answer. Only ratios mean
// anything: the clients are on the same machine.
func BenchmarkTransactions(b *testing.B) {
	ours := embeddedtest.RunT(b)
	real := zkreal.StartT(b, zkreal.WithoutFsync())
	for name, addr := range map[string]string{"embedded": ours.Addr(), "zookeeper": real.Addr()} {
		for _, clients := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/clients=%d", name, clients), func(b *testing.B) { benchmarkTransactions(b, addr, clients) })
		}
	}
}

// benchDirs numbers the directories that were made, on all servers.
var benchDirs atomic.Int64

func benchmarkTransactions(b *testing.B, addr string, clients int) {
	var all []*benchClient
	for range clients {
		c := assert.Value(newBenchClient(addr, fmt.Sprintf("/bench-%d", benchDirs.Add(1))))(b)
		defer c.nc.Close()
		all = append(all, c)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var running sync.WaitGroup
	for i, c := range all {
		n := b.N / clients
		if i < b.N%clients {
			n++
		}
		running.Go(func() {
			for range n {
				if err := c.cycle(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txn/s")
}

type benchClient struct {
	nc     net.Conn
	frames *wire.FrameReader
	dir    string
	buf    []byte
	xid    int32
	last   string // the contender of the cycle before
}

func newBenchClient(addr, dir string) (*benchClient, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &benchClient{nc: nc, frames: wire.NewFrameReader(nc, 1<<20), dir: dir}
	if _, err := nc.Write(wire.AppendFrame(nil, &wire.ConnectRequest{TimeoutMs: 30_000, Passwd: make([]byte, 16)})); err != nil {
		return nil, err
	}
	if _, err := c.frames.Next(); err != nil {
		return nil, err
	}
	for _, path := range []string{dir, dir + "/guard"} {
		if _, err := c.call(wire.OpCreate, &wire.CreateRequest{Path: path, Data: []byte("guard"), ACL: everyone}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *benchClient) call(op wire.Op, body wire.Record) ([]byte, error) {
	c.xid++
	c.buf = wire.AppendFrame(c.buf[:0], &wire.RequestHeader{Xid: c.xid, Op: op}, body)
	if _, err := c.nc.Write(c.buf); err != nil {
		return nil, err
	}
	frame, err := c.frames.Next()
	if err != nil {
		return nil, err
	}
	d := wire.NewDecoder(frame)
	var h wire.ReplyHeader
	if h.Decode(d); h.Err != wire.OK || h.Xid != c.xid {
		return nil, fmt.Errorf("answered %+v: %w", h, io.ErrUnexpectedEOF)
	}
	return frame[16:], nil
}

func (c *benchClient) cycle() error {
	ops := []wire.MultiOp{
		{Op: wire.OpCheck, Record: &wire.VersionRequest{Path: c.dir, Version: 0}},
		{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: c.dir + "/guard", Data: []byte("guard"), Version: -1}},
		{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: c.dir + "/lease-", Data: make([]byte, 100), ACL: everyone, Flags: wire.FlagSequential}},
	}
	if c.last != "" {
		ops = append(ops, wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: c.last, Version: -1}})
	}
	body, err := c.call(wire.OpMulti, &wire.MultiRequest{Ops: ops})
	if err != nil {
		return err
	}
	var reply wire.MultiReply
	d := wire.NewDecoder(body)
	if reply.Decode(d); d.Err() != nil || len(reply.Results) != len(ops) || reply.Results[2].Op != wire.OpCreate {
		return fmt.Errorf("multi answered %+v", reply)
	}
	c.last = reply.Results[2].Path
	return nil
}
