package main

import (
	"context"
	"path/filepath"
)

// What remembering costs: the same gateway with its history on disk, and without one.
const (
	historyClients = 64
	rememberSide   = "with the history"
	forgetSide     = "--history=off"
	leastCycles    = 0.95
)

func (b *bench) history(ctx context.Context) error {
	b.endOne()
	defer b.rig.endAll()
	off, err := b.rig.startGateway(ctx, "--data-dir", filepath.Join(b.rig.dir, "forgets"), "--history=off")
	if err != nil {
		return err
	}
	on, err := b.rig.startGateway(ctx, "--data-dir", filepath.Join(b.rig.dir, "remembers"))
	if err != nil {
		return err
	}
	// A round may be a tenth off. The turns are twice as long as others: the history writes once a second.
	t, err := b.compareClosely(ctx, []line{{name: "64 clients, own locks", work: work{clients: historyClients}, sides: []side{off.side(forgetSide), on.side(rememberSide)}}}, 2*b.d)
	if err != nil {
		return err
	}
	b.target("64 clients, embedded: cycles with the history ÷ without", atLeast, leastCycles, ratios(t.rounds(0, rememberSide, rate), t.rounds(0, forgetSide, rate)))
	b.section("History", "The embedded gateway with its history on disk, as it is by default, beside one with `--history=off`, for three times as many rounds as elsewhere.\n\n"+t.markdown())
	return nil
}
