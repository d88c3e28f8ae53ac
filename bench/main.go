package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

// runDir is where everything is that programs of this repository write while they run. Git ignores it.
const runDir = ".run"

func main() {
	if config := os.Getenv(bareVariable); config != "" {
		fmt.Fprintln(os.Stderr, "error:", serveBare(config))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends us at once, and the kernel ends the children
	os.Exit(command(ctx, os.Args[1:]))
}

// command returns the exit code: 0, 1 when something failed, 64 for wrong usage.
func command(ctx context.Context, args []string) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "run these `parts` alone (million runs only so): "+strings.Join(partNames(), ","))
	rounds := flags.Int("rounds", 5, "how many rounds each part has")
	turn := flags.Duration("turn", time.Second, "how long each side of a line works in a round")
	base := flags.String("base", "", "compare the gateway with the one of this `commit` instead, and fail when it is worse by more than 15 %; \"auto\" for the one that the branch came from")
	write := flags.Bool("write", false, "also write the result into BENCHMARKS.md, docs/operate/capacity.md and bench/charts; needs all parts")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 64
	}
	chosen, err := choose(*only)
	if err == nil && (*rounds < 1 || *turn < 100*time.Millisecond || flags.NArg() != 0 || *write && *only != "") {
		err = errors.New("-rounds must be at least 1, -turn at least 100ms, -write without -only, and there are no arguments")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 64
	}
	// The load generator's garbage is no part of what is measured: Curator's JVM has a large heap as well.
	debug.SetGCPercent(400)
	b := &bench{dir: runDir, rounds: *rounds, d: *turn, begun: time.Now(), parts: chosen}
	if *base != "" {
		if err := b.againstBase(ctx, strings.TrimSuffix(*base, "auto")); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			return 1
		}
		return 0
	}
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	report := b.report()
	fmt.Print(report)
	if *write {
		if err := b.write(report); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			return 1
		}
	}
	if len(b.failed) != 0 {
		fmt.Fprintln(os.Stderr, "error: these parts failed twice and have no figures:", strings.Join(b.failed, ", "))
		return 1
	}
	return 0
}

// part is what can be run by its name.
type part struct {
	name string
	run  func(b *bench, ctx context.Context) error
}

// parts are in the order in which they run: those on one ZooKeeper first, which share it.
var parts = []part{
	{"own", (*bench).ownLocks},
	{"hot", (*bench).hotLock},
	{"limited", (*bench).limited},
	{"open", (*bench).openLoop},
	{"fleet", (*bench).fleet},
	{"watch", (*bench).watch},
	{"webhooks", (*bench).webhooks},
	{"waiters", (*bench).waiters},
	{"three", (*bench).three},
	{"principals", (*bench).principals},
	{"history", (*bench).history},
	{"page", (*bench).page},
	{"size", (*bench).size},
}

// byName are parts that a run of all leaves out, for they take too long.
var byName = []part{
	{"million", (*bench).million},
}

func partNames() (all []string) {
	for _, p := range slices.Concat(parts, byName) {
		all = append(all, p.name)
	}
	return all
}

// choose is the parts with these names, all without one.
func choose(only string) ([]part, error) {
	if only == "" {
		return parts, nil
	}
	var chosen []part
	names := strings.Split(only, ",")
	for _, p := range slices.Concat(parts, byName) {
		if i := slices.Index(names, p.name); i >= 0 {
			chosen = append(chosen, p)
			names = slices.Delete(names, i, i+1)
		}
	}
	if len(names) != 0 {
		return nil, fmt.Errorf("-only names no part %q; there are %s", names[0], strings.Join(partNames(), ", "))
	}
	return chosen, nil
}

// bench is one run.
type bench struct {
	dir    string // where programs write
	rounds int
	d      time.Duration // of a turn
	begun  time.Time
	parts  []part

	rig                              *rig
	single                           *setting // on one ZooKeeper; nil until a part needs it
	sides                            []side   // all, on single
	part                             string   // that runs
	sections                         []string
	targets                          []target
	failed                           []string // parts that failed twice: they have no figures
	retried                          []string // parts that failed once
	noise                            []float64
	ownTable, hotTable, limitedTable *table // nil until measured
	opened                           []*openResult
	observed                         *observed
	held                             []held // embedded
	heldElsewhere                    held   // by a gateway on ZooKeeper
	version                          string // ZooKeeper's
	small                            bool   // a test: counts of leases, waiters and subscribers are small
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.rig, err = newRig(ctx, b.dir); err != nil {
		return err
	}
	defer b.rig.close()
	for _, p := range b.parts {
		b.part = p.name
		err := p.run(b, ctx)
		if err != nil && ctx.Err() == nil { // once more with new servers: twenty minutes are long
			fmt.Fprintf(os.Stderr, "%s: %v\n", p.name, err)
			b.endOne()
			b.retried = append(b.retried, p.name)
			err = p.run(b, ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // the others have their figures all the same
			fmt.Fprintf(os.Stderr, "%s: %v\n", p.name, err)
			b.endOne()
			b.failed = append(b.failed, p.name)
		}
	}
	fmt.Fprintf(os.Stderr, "%5s all parts are done\n", time.Since(b.begun).Round(time.Second))
	return nil
}

// progress says where the run is.
func (b *bench) progress(round int) {
	what := fmt.Sprintf("round %d of %d", round, b.rounds)
	if round == 0 {
		what = "warming up"
	}
	fmt.Fprintf(os.Stderr, "%5s %s: %s\n", time.Since(b.begun).Round(time.Second), b.part, what)
}

// onOne is the setting with one ZooKeeper, which several parts use.
func (b *bench) onOne(ctx context.Context) (err error) {
	if b.single != nil {
		return nil
	}
	if b.single, err = b.rig.startSetting(ctx, 1); err != nil {
		return err
	}
	b.version = b.single.store.version()
	b.sides, err = b.rig.allSides(ctx, b.single)
	return err
}

// endOne ends the setting with one ZooKeeper.
func (b *bench) endOne() {
	b.rig.endAll()
	b.single, b.sides = nil, nil
}

// only keeps the sides with these names.
func only(sides []side, names ...string) (some []side) {
	for _, s := range sides {
		if slices.Contains(names, s.name) {
			some = append(some, s)
		}
	}
	return some
}
