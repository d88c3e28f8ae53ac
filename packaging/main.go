package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// platform is an operating system and a processor, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "-" + p.arch }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// usageError is a mistake in how the command was called; the exit code is 64.
type usageError struct {
	text, hint string
}

func (e *usageError) Error() string { return e.text }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		if wrong := (*usageError)(nil); errors.As(err, &wrong) {
			fmt.Fprintln(os.Stderr, "hint:", wrong.hint)
			os.Exit(64)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("packaging", flag.ContinueOnError)
	source := flags.String("source", "..", "the checkout")
	out := flags.String("out", "../dist", "the directory to make; one that is there is replaced")
	only := flags.String("platforms", "", "OS-ARCH with commas between them; all unless given")
	if err := flags.Parse(args); err != nil {
		return &usageError{err.Error(), "go run . -help lists the flags"}
	}
	top, err := filepath.Abs(*source)
	if err != nil {
		return err
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	rel, err := releaseOf(ctx, top, os.Getenv)
	if err != nil {
		return err
	}
	into, err := filepath.Abs(*out)
	if err != nil {
		return err
	}
	return replace(into, func(dir string) error {
		return (&distribution{release: rel, top: top, dir: dir, products: products}).make(ctx, chosen)
	})
}

func choose(names string) ([]platform, error) {
	if names == "" {
		return platforms, nil
	}
	var chosen []platform
	for _, name := range strings.Split(names, ",") {
		at := slices.IndexFunc(platforms, func(p platform) bool { return p.String() == name })
		if at < 0 {
			return nil, &usageError{fmt.Sprintf("no release is made for the platform %q", name), fmt.Sprintf("choose among %v", platforms)}
		}
		chosen = append(chosen, platforms[at])
	}
	return chosen, nil
}

// replace has a directory made beside where it belongs, and puts it there when it is whole.
func replace(into string, fill func(dir string) error) error {
	dir, err := os.MkdirTemp(filepath.Dir(into), ".dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := fill(dir); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(into); err != nil {
		return err
	}
	return os.Rename(dir, into)
}
