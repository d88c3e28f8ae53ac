package main

import (
	"context"
	"fmt"
)

// ownLocks: each client has a lock of its own, none waits.
func (b *bench) ownLocks(ctx context.Context) error {
	if err := b.onOne(ctx); err != nil {
		return err
	}
	var lines []line
	for _, n := range []int{1, 16, 64, 256} {
		sides := b.sides
		if n == 1 { // one client alone has its own connection anyway
			sides = only(sides, gatewaySide, embeddedSide, zkLockSharedSide, curatorSharedSide, etcdSide, bareSide)
		}
		lines = append(lines, line{name: fmt.Sprintf("%d clients, own locks", n), work: work{clients: n}, sides: sides})
	}
	t, err := b.compare(ctx, lines, b.d)
	if err != nil {
		return err
	}
	b.ownTable = t
	b.section("Each client has a lock of its own", t.markdown())
	if i := t.find(64, false); i >= 0 {
		b.target("64 clients, own locks ÷ zk.Lock with own connections", atLeast, 1.0, t.against(i, gatewaySide, zkLockOwnSide))
		b.target("64 clients, own locks ÷ Curator (the better)", atLeast, 1.1, t.against(i, gatewaySide, t.best(i, curatorSharedSide, curatorOwnSide)))
		b.target("64 clients, own locks ÷ etcd over JSON", atLeast, 3, t.against(i, gatewaySide, etcdSide))
		b.target("64 clients, own locks ÷ the bare handler", atLeast, 0.5, t.against(i, gatewaySide, bareSide))
		b.target("64 clients: processor time of the gateway ÷ the bare handler's", atMost, 1.9, ratios(t.rounds(i, gatewaySide, serverMicros), t.rounds(i, bareSide, serverMicros)))
		b.target("64 clients: ZooKeeper's processor time ÷ with zk.Lock, own connections", atMost, 0.4, ratios(t.rounds(i, gatewaySide, storeMicros), t.rounds(i, zkLockOwnSide, storeMicros)))
	}
	if i := t.find(16, false); i >= 0 {
		b.target("16 clients, own locks ÷ the better direct client", atLeast, 0.9, t.against(i, gatewaySide, t.best(i, directSides...)))
	}
	if i := t.find(1, false); i >= 0 {
		b.target("1 client ÷ the better direct client", atLeast, 0.85, t.against(i, gatewaySide, t.best(i, directSides...)))
	}
	for _, n := range []int{1, 16, 64} {
		if i := t.find(n, false); i >= 0 {
			b.target(fmt.Sprintf("embedded, %d clients ÷ the gateway on Debian's ZooKeeper", n), atLeast, 1.3, t.against(i, embeddedSide, gatewaySide))
		}
	}
	return nil
}

// hotLock: all clients want one lock.
func (b *bench) hotLock(ctx context.Context) error {
	if err := b.onOne(ctx); err != nil {
		return err
	}
	var lines []line
	for _, n := range []int{16, 64, 256} {
		names := append([]string{gatewaySide, embeddedSide}, directSides...)
		if n <= 64 { // 256 of etcd's clients would wait longer than the rest of the line takes
			names = append(names, etcdSide)
		}
		lines = append(lines, line{name: fmt.Sprintf("%d clients, one lock", n), work: work{clients: n, hot: true}, sides: only(b.sides, names...)})
	}
	t, err := b.compare(ctx, lines, b.d)
	if err != nil {
		return err
	}
	b.hotTable = t
	b.section("All clients want one lock", t.markdown())
	if i := t.find(16, true); i >= 0 {
		b.target("one hot lock, 16 clients ÷ the better direct client", atLeast, 1.1, t.against(i, gatewaySide, t.best(i, directSides...)))
		b.target("one hot lock, 16 clients ÷ etcd over JSON", atLeast, 5, t.against(i, gatewaySide, etcdSide))
	}
	return nil
}
