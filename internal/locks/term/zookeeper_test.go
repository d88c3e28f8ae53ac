package term

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/offline"
	"lockkeeper/internal/secret"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/offlinetest"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/wire"
)

const aGateway, another = "gateway000001", "gateway000002"

// An opening is one attempt: another one needs another id, which its caller has.
func TestAnOpeningIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		z := &ZooKeeper{Config: zk.Config{Servers: []string{"silent:2181"}, Dial: silent}, layout: &layout.Layout{PromiseWindow: time.Second}}
		began := time.Now()
		_, err := z.Open(t.Context(), aGateway, []byte("{}"), func(zk.Instant, int64) {})
		assert.ErrorIs(t, err, zk.ErrUnavailable)
		assert.Equal(t, time.Since(began), reachAttempt, "the attempt")
	})
}

// A session may be opened long after the layout was read. What was read of the secret is in force when it is registered.
func TestASessionIsRegisteredWithTheSecretOfThatMoment(t *testing.T) {
	cfg := zk.Config{Servers: []string{embeddedtest.RunT(t).Addr()}, CreateRoot: true}
	z := &ZooKeeper{Config: cfg, Keyring: new(layout.Keyring)}
	open := func(id string) error {
		session, err := z.Open(offlinetest.Context(t), id, []byte("{}"), func(zk.Instant, int64) {})
		if err == nil {
			defer func() { _ = session.Close(offlinetest.Context(t)) }()
		}
		return err
	}
	assert.Value(z.Layout(offlinetest.Context(t)))(t)
	o := offlinetest.Open(t, cfg)
	tree := secret.Tree{Nodes: offline.Nodes{Offline: o}, Root: o.Root(), Open: true}
	assert.Value(tree.Begin(offlinetest.Context(t), "uid:7", 0))(t)
	assert.Equal(t, len(z.Keyring.Keys()), 1, "keys before")
	assert.NoError(t, open(aGateway))
	assert.Equal(t, len(z.Keyring.Keys()), 2, "keys of a gateway that is registered")
	assert.Value(tree.Advance(offlinetest.Context(t)))(t) // two steps
	assert.NoError(t, open(another))
	now := assert.Value(tree.Read(offlinetest.Context(t)))(t)
	assert.That(t, z.Keyring.Load().Zxid == now.Zxid && now.Rotation.Phase == layout.Retiring, "%+v, and ZooKeeper has %+v", z.Keyring.Load(), now)

	// What else the layout has does not change under a gateway.
	site := offlinetest.Site{Offline: o, T: t}
	site.Apply(zk.Op{Kind: zk.OpSetData, Path: o.Root() + zk.NodeFenceBase, Data: []byte("12"), Version: -1})
	err := open("gateway000003")
	assert.That(t, errors.Is(err, zk.ErrBadVersion), "with another fence base: %v", err)
}

// A rotation's step writes the secret and the fence base in one transaction, and a layout is read node by node.
func TestAStepOfARotationBetweenTwoReadsOfTheLayoutIsNotMissed(t *testing.T) {
	for _, node := range []string{zk.NodeFenceBase, zk.NodeSecret, zk.NodePromiseWindow} {
		t.Run(node[1:], func(t *testing.T) {
			cfg := zk.Config{Servers: []string{embeddedtest.RunT(t).Addr()}, CreateRoot: true}
			assert.Value(layout.Open(offlinetest.Context(t), cfg))(t)
			o := offlinetest.Open(t, cfg)
			tree := secret.Tree{Nodes: offline.Nodes{Offline: o}, Root: o.Root(), Open: true}
			stepped := false
			z := &ZooKeeper{Config: cfg, Keyring: new(layout.Keyring)}
			z.Config.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				return beforeRead{c, node, func() {
					if !stepped {
						stepped = true
						assert.Value(tree.Begin(offlinetest.Context(t), "uid:7", 0))(t)
						assert.Value(tree.Advance(offlinetest.Context(t)))(t) // no gateway is registered: the old key signs nothing more
					}
				}}, err
			}
			assert.Value(z.Layout(offlinetest.Context(t)))(t)
			assert.That(t, stepped, "%s was not read", node)
			session, err := z.Open(offlinetest.Context(t), aGateway, []byte("{}"), func(zk.Instant, int64) {})
			assert.NoError(t, err)
			defer func() { _ = session.Close(offlinetest.Context(t)) }()
			now := assert.Value(tree.Read(offlinetest.Context(t)))(t)
			assert.Equal(t, z.Keyring.Load().Zxid, now.Zxid, "the secret of a gateway that is registered")
		})
	}
}

// beforeRead calls do before each read of the data of a node.
type beforeRead struct {
	net.Conn
	node string
	do   func()
}

func (b beforeRead) Write(p []byte) (int, error) {
	const op = 8 // behind the frame's length and the xid
	if len(p) > op+4 && wire.Op(binary.BigEndian.Uint32(p[op:])) == wire.OpGetData && bytes.Contains(p, []byte(b.node)) {
		b.do()
	}
	return b.Conn.Write(p)
}
