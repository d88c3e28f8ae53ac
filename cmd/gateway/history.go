package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/dashboard"
	"lockkeeper/internal/history"
)

// historyFlags are the flags about what the gateway remembers.
type historyFlags struct {
	History string        `name:"history" placeholder:"DIR|memory|off" help:"Where to remember who held which lock, for GET /v1/history and the pages. A directory is made with mode 0700. Default: history in --data-dir; with --zk memory (32 MB at most, gone with the process; after a start another gateway is asked for what it remembers). off: nothing is remembered."`
	Keep    time.Duration `name:"history-keep" default:"168h" help:"How long it is remembered, or until --history-size is reached."`
	Size    string        `name:"history-size" default:"200MB" placeholder:"BYTES" help:"How large the history may grow, such as 500MB or 2GB. What is oldest goes first."`
}

// Words of --history.
const (
	historyOff      = "off"
	historyInMemory = "memory"
	historyDir      = "history" // in --data-dir
)

func (f *historyFlags) check() error {
	if f.Keep != 0 && f.Keep < history.MinKeep || f.Keep > history.MaxKeep {
		return usage("for example --history-keep 168h", "--history-keep %v must be between %v and %v", f.Keep, history.MinKeep, history.MaxKeep)
	}
	if _, err := f.size(); err != nil {
		return err
	}
	return nil
}

// size is --history-size in bytes. As for --history-keep, nothing stands for the default.
func (f *historyFlags) size() (int64, error) {
	if f.Size == "" {
		return history.DefaultSize, nil
	}
	text, unit := strings.TrimSuffix(strings.ToUpper(f.Size), "B"), int64(1)
	for letter, of := range map[string]int64{"K": 1e3, "M": 1e6, "G": 1e9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30} {
		if number, ok := strings.CutSuffix(text, letter); ok && (len(letter) == 2 || !strings.HasSuffix(text, "I")) {
			text, unit = number, of
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > history.MaxSize/unit || n*unit < history.MinSize {
		return 0, usage("for example --history-size 500MB", "--history-size %q must be a size from 1MiB to 1TiB, such as 500MB or 2GB", f.Size)
	}
	return n * unit, nil
}

// historyDirectory is where the history is; "" is memory.
func (c *config) historyDirectory() (dir string, err error) {
	switch {
	case c.History.History == historyInMemory, c.History.History == "" && c.ZK != "":
		return "", nil
	case c.History.History != "":
		if dir, err = filepath.Abs(c.History.History); err != nil {
			return "", usage("give an absolute path with --history", "--history: %w", err)
		}
		return dir, nil
	}
	if dir, err = c.dataDir(); err != nil {
		return "", err
	}
	return filepath.Join(dir, historyDir), nil
}

// makeHistory makes the gateway's memory; nil with --history=off.
func (g *gateway) makeHistory() error {
	if g.c.History.History == historyOff {
		return nil
	}
	dir, err := g.c.historyDirectory()
	if err != nil {
		return err
	}
	size, err := g.c.History.size()
	if err != nil {
		return err
	}
	g.history = history.New(history.Options{Dir: dir, Keep: g.c.History.Keep, Size: size, Hub: g.hub, Now: history.LocksNow{Locks: g.manager},
		Others: func() []history.Source { return g.api.OtherHistories() }, Metrics: g.metrics, Log: g.log.With("part", "history")})
	return nil
}

// memory is what the pages show of the past; nil with --history=off.
func (g *gateway) memory() dashboard.History {
	if g.history == nil {
		return nil // an interface that holds a nil pointer would not be nil
	}
	return g.history
}
