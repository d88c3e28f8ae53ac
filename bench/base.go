package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	baseSide  = "base"
	hereSide  = "here"
	tolerance = 0.15
	tries     = 3 // what a busy machine has disturbed does not show twice
)

// againstBase compares the gateway of this tree with the one of another commit, in turns on one ZooKeeper, and fails when it is worse by more
// than the tolerance: in processor time of the gateway for one cycle, or in cycles.
func (b *bench) againstBase(ctx context.Context, base string) (err error) {
	if base, err = resolveBase(ctx, base); err != nil {
		return err
	}
	if b.rig, err = newRig(ctx, b.dir); err != nil {
		return err
	}
	defer b.rig.close()
	binary, err := b.rig.buildBase(ctx, base)
	if err != nil {
		return err
	}
	store, err := b.rig.startStore(1)
	if err != nil {
		return err
	}
	var sides []side
	for _, of := range []struct{ name, binary string }{{hereSide, b.rig.binary}, {baseSide, binary}} {
		g, err := b.rig.startGatewayOf(ctx, of.binary, "--zk", store.addrs(), "--root", "/"+of.name)
		if err != nil {
			return err
		}
		s := g.side(of.name)
		s.store = store
		sides = append(sides, s)
	}
	lines := []line{{name: "64 clients, own locks", work: work{clients: 64}, sides: sides}, {name: "16 clients, one lock", work: work{clients: 16, hot: true}, sides: sides}}
	b.part = "beside " + base[:12]
	var worse error
	for range tries {
		t, err := b.compare(ctx, lines, b.d)
		if err != nil {
			return err
		}
		if worse = t.judgeBase(base); worse == nil {
			return nil
		}
	}
	return worse
}

// judgeBase prints the ratios and returns an error for what is worse than the tolerance allows.
func (t *table) judgeBase(base string) (worse error) {
	for i, l := range t.lines {
		cycles := t.against(i, hereSide, baseSide)
		micros := ratios(t.rounds(i, hereSide, serverMicros), t.rounds(i, baseSide, serverMicros))
		fmt.Printf("%s, here ÷ %s: cycles %s, the gateway's processor time for one cycle %s\n", l.name, base[:12], times(cycles), times(micros))
		if over(cycles).median < 1-tolerance {
			worse = errors.Join(worse, fmt.Errorf("%s: the cycles must be at least %.2f of those of %s, and are %.2f", l.name, 1-tolerance, base[:12], over(cycles).median))
		}
		if over(micros).median > 1+tolerance {
			worse = errors.Join(worse, fmt.Errorf("%s: the gateway's processor time for one cycle must be at most %.2f of that of %s, and is %.2f",
				l.name, 1+tolerance, base[:12], over(micros).median))
		}
	}
	return worse
}

// resolveBase is the commit to compare with. Without a name it is where this branch has left origin/main; on that branch, the last
// commit when there are changes that are not committed, else the one before.
func resolveBase(ctx context.Context, name string) (string, error) {
	if name != "" {
		return git(ctx, "rev-parse", "--verify", name+"^{commit}")
	}
	head, err := git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	if left, err := git(ctx, "merge-base", "HEAD", "origin/main"); err == nil && left != head {
		return left, nil
	}
	changed, err := git(ctx, "status", "--porcelain", "--untracked-files=no")
	if err != nil || changed != "" {
		return head, err
	}
	return git(ctx, "rev-parse", "HEAD~1")
}

func git(ctx context.Context, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", arguments...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(arguments, " "), err)
	}
	return strings.TrimSpace(string(output)), nil
}

// buildBase builds the gateway of another commit, in a work tree that is removed again.
func (r *rig) buildBase(ctx context.Context, commit string) (binary string, err error) {
	tree := filepath.Join(r.dir, "base")
	if _, err := git(ctx, "worktree", "add", "--quiet", "--detach", tree, commit); err != nil {
		return "", err
	}
	defer func() {
		_, failed := git(context.WithoutCancel(ctx), "worktree", "remove", "--force", tree)
		err = errors.Join(err, failed)
	}()
	binary = filepath.Join(r.dir, "gateway-of-base")
	return binary, buildGateway(ctx, tree, binary)
}
