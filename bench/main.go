package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// runDir is where everything is that programs of this repository write while they run. Git ignores it.
const runDir = ".run"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends us at once, and the kernel ends the children
	os.Exit(command(ctx, os.Args[1:]))
}

// command returns the exit code: 0, 1 when something failed, 64 for wrong usage.
func command(ctx context.Context, args []string) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	duration := flags.Duration("duration", 225*time.Second, "how long the comparison may take, at least 30s; a look at webhooks, events, dashboard and the gateway's own ZooKeeper follows, some five minutes")
	rounds := flags.Int("rounds", 5, "how many rounds the time is divided into")
	out := flags.String("out", "", "also write the result into this `file`, between its lines "+beginMark+" and "+endMark)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 64
	}
	if *duration < 30*time.Second || *rounds < 1 || flags.NArg() != 0 {
		fmt.Fprintln(os.Stderr, "error: -duration is at least 30s, -rounds at least 1, and there are no arguments")
		return 64
	}
	if err := run(ctx, *duration, *rounds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, duration time.Duration, rounds int, out string) error {
	begun := time.Now()
	if out != "" {
		if err := replaceable(out); err != nil { // now, not after six minutes
			return err
		}
	}
	rig, err := newRig(ctx, runDir)
	if err != nil {
		return err
	}
	defer rig.close()
	results, err := rig.measure(ctx, plan(), begun.Add(duration), rounds)
	if err != nil {
		return err
	}
	hooks, err := rig.webhooks(ctx, hookTurn, hookRounds)
	if err != nil {
		return err
	}
	watching, err := rig.watch(ctx, crowds(watchers), watchTurn, watchRounds)
	if err != nil {
		return err
	}
	overview, err := rig.crowdedOverview(ctx, overviewLocks, overviewAsks)
	if err != nil {
		return err
	}
	own, err := rig.ownStore(ctx, ownTurn, rounds, ownLeases)
	if err != nil {
		return err
	}
	report := render(rig.describe(rounds, results), results, own, hooks, watching, overview)
	fmt.Print(report)
	if out != "" {
		return replaceIn(out, report)
	}
	return nil
}
