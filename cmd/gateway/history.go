package main

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/dashboard"
	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/manager"
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
	now := holders{g.manager}
	g.history = history.New(history.Options{Dir: dir, Keep: g.c.History.Keep, Size: size, Hub: g.hub, Present: now.present, Holders: now.ofLock,
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

// holders are those who hold locks now, as the history asks for them.
type holders struct{ *manager.Manager }

// present lists the holders of all locks, and the hazards.
func (m holders) present(ctx context.Context) (list []*history.Item, err error) {
	if err := m.Ready(); err != nil {
		return nil, err
	}
	for _, ns := range m.Info(ctx).Namespaces {
		for _, hazardous := range []bool{false, true} {
			f := locks.LockFilter{Principal: locks.Anonymous, NS: ns, Hazardous: hazardous, Limit: locks.MaxPage}
			for more := true; more; more = f.Cursor != "" {
				page, err := m.Locks(ctx, f)
				if err != nil {
					return nil, err
				}
				f.Cursor = page.NextCursor
				for i := range page.Items {
					if list, err = m.add(ctx, list, &page.Items[i], hazardous); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return list, nil
}

// add adds the holders of a lock, or its hazards.
func (m holders) add(ctx context.Context, list []*history.Item, l *locks.Lock, hazards bool) ([]*history.Item, error) {
	if hazards {
		for _, h := range l.Hazards {
			list = append(list, &history.Item{Kind: history.Hazard, NS: l.NS, Lock: l.Name, Begin: time.Now(), Early: history.DefaultKeep, Code: string(h.Code), Programs: h.Programs, Detail: h.Detail})
		}
		return list, nil
	}
	if l.HolderCount == len(l.Holders) {
		return append(list, heldBy(l)...), nil
	}
	more, err := m.ofLock(ctx, l.NS, l.Name) // a list has the first ones alone
	return append(list, more...), err
}

// ofLock lists the holders of a lock, with what their records say.
func (m holders) ofLock(ctx context.Context, ns, lock string) (list []*history.Item, err error) {
	q := locks.LockRequest{Principal: locks.Anonymous, NS: ns, Lock: lock, Limit: locks.MaxPage}
	for more := true; more; more = q.Cursor != "" {
		page, err := m.Lock(ctx, q)
		if err != nil {
			return nil, err
		}
		list = append(list, heldBy(&page)...)
		if q.Cursor = page.NextCursor; len(page.Holders) == 0 {
			break // the rest waits
		}
	}
	return list, nil
}

// heldBy are the holders that a page shows.
func heldBy(l *locks.Lock) (list []*history.Item) {
	for i := range l.Holders {
		c := &l.Holders[i]
		if c.Delayed || c.Position > 0 {
			continue // it has ended, and its place stays for a while
		}
		item := &history.Item{Kind: history.Hold, NS: l.NS, Lock: l.Name, LeaseID: c.LeaseID, Owner: c.Owner, Principal: c.Principal, Purpose: c.Purpose, Mode: c.Mode, Permits: c.Permits,
			FencingToken: c.FencingToken, Begin: c.At.Add(-c.HeldFor)}
		if c.Foreign != nil {
			item.Foreign, item.Program, item.Name = true, c.Foreign.Program, c.Znode[strings.LastIndexByte(c.Znode, '/')+1:]
		}
		if c.AgeKnown {
			item.Queued = c.At.Add(-c.Age)
		}
		switch {
		case !c.HeldLonger && !item.Queued.IsZero():
			item.Waited, item.WaitedKnown = max(item.Begin.Sub(item.Queued), 0), true
		case c.HeldLonger && !item.Queued.IsZero():
			item.Early = max(item.Begin.Sub(item.Queued), time.Millisecond)
		case c.HeldLonger:
			item.Early = history.DefaultKeep
		}
		list = append(list, item)
	}
	return list
}
