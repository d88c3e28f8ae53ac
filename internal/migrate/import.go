package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// ImportOptions change what an import does.
type ImportOptions struct {
	// ReplacePartial clears what an import that has died half way has left.
	ReplacePartial bool
	// Progress may be nil. It gets the step and how far it is.
	Progress func(what string, done, total int)
}

// Import makes the root of cfg of the archive: all of it, or nothing that a gateway
// would start on. Its errors are as Export's. cfg.CreateRoot allows creating root and
// chroot.
func Import(ctx context.Context, cfg zk.Config, a *Archive, opt ImportOptions) (Summary, error) {
	o, err := layout.OpenOffline(ctx, cfg)
	if err != nil {
		return Summary{}, err
	}
	defer o.Close()
	i := importer{Offline: o, opt: opt, mark: o.Root() + zk.NodeImport, create: cfg.CreateRoot}
	if i.c, err = a.understand(o.Root()); err == nil {
		if !cfg.Identified() {
			i.c.dropTokens()
		}
		// Also that everything fits is known before anything is written.
		_, err = i.c.plan(o.Root(), nil, o.Size, i.limit())
	}
	if err == nil {
		err = i.run(ctx)
	}
	if err != nil {
		return Summary{}, fmt.Errorf("importing into %s: %w", o.FullRoot(), i.interrupted(ctx, err))
	}
	return i.c.summary(), nil
}

type importer struct {
	*layout.Offline
	c      *content
	opt    ImportOptions
	create bool
	// mark is the import's own node, at its version. Every transaction checks it.
	mark    string
	version int32
	begun   bool // it has been written, perhaps
}

// claim is the data of an import's node: what a later one has to know to clear up
// behind it.
type claim struct {
	Started time.Time `json:"started"`
	Outside []outside `json:"outside,omitempty"`
}

// outside is a lock root that is not below the root, and whose contenders there are
// the import's.
type outside struct {
	LockRoot string         `json:"lock_root"`
	FleetID  recipe.FleetID `json:"fleet_id"`
}

func (i *importer) run(ctx context.Context) error {
	if err := i.begin(ctx); err != nil {
		return err
	}
	existing, err := i.lookOutside(ctx)
	if err != nil {
		return errors.Join(err, i.giveBack(ctx))
	}
	steps, err := i.c.plan(i.Root(), existing, i.Size, i.limit())
	if err != nil {
		return errors.Join(err, i.giveBack(ctx))
	}
	return i.write(ctx, steps)
}

// giveBack leaves a root in which nothing has been written empty again.
func (i *importer) giveBack(ctx context.Context) error {
	_, err := i.Commit(ctx, []zk.Op{{Kind: zk.OpDelete, Path: i.mark, Version: i.version}})
	i.begun = err != nil
	return err
}

// limit is what a step takes beside the check of the import's node.
func (i *importer) limit() int {
	return layout.MaxTransaction - i.Size(&zk.Op{Kind: zk.OpCheck, Path: i.mark})
}

// begin makes the root this import's own: it has its node, and nothing else.
func (i *importer) begin(ctx context.Context) error {
	names, err := i.look(ctx)
	if err != nil {
		return err
	}
	i.begun = true
	if slices.Contains(names, zk.NodeImport[1:]) {
		left, err := i.takeOver(ctx)
		if err != nil {
			return err
		}
		return i.clear(ctx, left)
	}
	data, err := json.Marshal(i.claim())
	if err != nil {
		return fmt.Errorf("encoding %s: %w", zk.NodeImport, err)
	}
	if _, err := i.Commit(ctx, []zk.Op{{Kind: zk.OpCreate, Path: i.mark, Data: data}}); err != nil {
		if errors.Is(err, zk.ErrNodeExists) {
			err = i.partial()
		}
		return err
	}
	// A gateway that found the empty root a moment before may have completed it; one that
	// has not will not any more.
	if names, _, err = i.Children(ctx, i.Root()); err == nil && len(names) != 1 {
		err = errors.Join(i.notEmpty(names), i.giveBack(ctx))
	}
	return err
}

// look lists the root, which it creates when it may. It refuses one that has
// anything in it but an import to replace.
func (i *importer) look(ctx context.Context) ([]string, error) {
	names, _, err := i.Children(ctx, i.Root())
	switch {
	case errors.Is(err, zk.ErrNoNode) && !i.create:
		return nil, &zk.FatalError{Kind: zk.KindMissingRoot, Hint: "leave --no-create-root out, or correct --root and the chroot", Err: errors.New("the root does not exist")}
	case errors.Is(err, zk.ErrNoNode):
		if err := i.CreateAncestors(ctx, i.Root()); err != nil {
			return nil, err
		}
		if _, err := i.Commit(ctx, []zk.Op{{Kind: zk.OpCreate, Path: i.Root()}}); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return nil, err // nothing is lost with an empty root
		}
		return nil, nil
	case err != nil:
		return nil, err
	}
	marked := slices.Contains(names, zk.NodeImport[1:])
	switch {
	case slices.Contains(names, zk.NodeVersion[1:]), len(names) > 0 && !marked:
		return nil, i.notEmpty(names)
	case marked && !i.opt.ReplacePartial:
		return nil, i.partial()
	}
	return names, nil
}

func (i *importer) notEmpty(names []string) error {
	names = slices.DeleteFunc(names, func(name string) bool { return name == zk.NodeImport[1:] })
	slices.Sort(names)
	what := "something in it already: "
	if slices.Contains(names, zk.NodeVersion[1:]) {
		what = "a Lockkeeper in it already: "
	}
	return offline.Refuse(KindNotEmpty, "choose another --root or --data-dir, or, if its content is not needed, clear it: zkCli.sh deleteall "+i.FullRoot(), "the root has %s%s", what, offline.Few(names))
}

func (i *importer) partial() error {
	return offline.Refuse(KindPartial, "if no other import runs, add --replace-partial: it clears what was written and begins again",
		"another import runs there, or has died half way")
}

func (i *importer) claim() claim {
	c := claim{Started: time.Now().UTC().Truncate(time.Second)}
	for _, name := range slices.Sorted(maps.Keys(i.c.namespaces)) {
		if root := i.c.namespaces[name].Root; !i.inside(root) {
			c.Outside = append(c.Outside, outside{root, i.c.fleet})
		}
	}
	return c
}

func (i *importer) inside(path string) bool { return strings.HasPrefix(path, i.Root()+"/") }

// takeOver raises the version of another import's node: from here on that one cannot
// write, nor can what it has under way.
func (i *importer) takeOver(ctx context.Context) (left claim, err error) {
	data, stat, err := i.Get(ctx, i.mark)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return left, i.overtaken() // since we looked
	case err != nil:
		return left, err
	}
	if err := json.Unmarshal(data, &left); err != nil {
		return left, offline.Refuse(KindPartial, "clear the root by hand: zkCli.sh deleteall "+i.FullRoot(), "the node %s is not understood: %w", i.mark, err)
	}
	own := i.claim()
	for _, o := range left.Outside { // until it has been cleared it has to be known
		if !slices.Contains(own.Outside, o) {
			own.Outside = append(own.Outside, o)
		}
	}
	if data, err = json.Marshal(own); err != nil {
		return left, fmt.Errorf("encoding %s: %w", zk.NodeImport, err)
	}
	if _, err := i.Commit(ctx, []zk.Op{{Kind: zk.OpSetData, Path: i.mark, Data: data, Version: stat.Version}}); err != nil {
		if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
			err = i.overtaken()
		}
		return left, err
	}
	i.version = stat.Version + 1
	return left, nil
}

func (i *importer) overtaken() error {
	i.begun = false // it is the other one's
	return offline.Refuse(KindPartial, "let that one come to its end", "another import has taken over, or has completed the root")
}

// commit carries out a step, unless another import has taken over.
func (i *importer) commit(ctx context.Context, ops []zk.Op) error {
	guarded := append([]zk.Op{{Kind: zk.OpCheck, Path: i.mark, Version: i.version}}, ops...)
	culprit, err := i.Commit(ctx, guarded)
	switch {
	case culprit == 0:
		return i.overtaken()
	case errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNotEmpty):
		return offline.Refuse(KindPartial, "stop the program that writes there, and repeat the import with --replace-partial", "another program writes there: %w", err)
	}
	return err
}

// interrupted says what a lost connection, or a signal, leaves.
func (i *importer) interrupted(ctx context.Context, err error) error {
	if i.begun && (errors.Is(err, zk.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil) {
		return offline.Refuse(KindUnknown, "repeat the import with --replace-partial, before a gateway is started there", "it was interrupted: %w", err)
	}
	return err
}

// lookOutside makes sure that no contender is in the locks outside the root, and returns
// the directories that are there. The nodes above them are created.
func (i *importer) lookOutside(ctx context.Context) (map[string]bool, error) {
	existing := map[string]bool{}
	for _, ns := range i.c.namespaces {
		if !i.inside(ns.Root) {
			if err := i.CreateAncestors(ctx, ns.Root); err != nil {
				return nil, err
			}
		}
	}
	for _, dir := range i.c.lockDirs(i.Root()) {
		if i.inside(dir) {
			continue
		}
		stat, err := i.Exists(ctx, dir)
		if err != nil {
			return nil, err
		}
		existing[dir] = stat != nil
		if stat == nil || stat.NumChildren == 0 || i.lockRoot(dir) {
			continue
		}
		return nil, offline.Refuse(KindNotEmpty, "let the programs that use it release it first", "the lock %s is in use there", dir)
	}
	return existing, nil
}

func (i *importer) lockRoot(dir string) bool {
	for _, ns := range i.c.namespaces {
		if ns.Root == dir {
			return true
		}
	}
	return false
}

// write carries out the steps, and then completes the root.
func (i *importer) write(ctx context.Context, steps []step) error {
	written, leases := 0, i.c.leases()
	for _, s := range steps {
		if err := i.commit(ctx, s.ops); err != nil {
			return err
		}
		written += s.leases
		i.progress("writing leases", written, leases)
	}
	return i.finish(ctx)
}

// finishWithin bounds the last transaction, which a signal does not interrupt: it is
// better known what became of it.
const finishWithin = 10 * time.Second

// finish makes the root usable.
func (i *importer) finish(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishWithin)
	defer cancel()
	version := i.Root() + zk.NodeVersion
	culprit, err := i.Commit(ctx, []zk.Op{
		{Kind: zk.OpDelete, Path: i.mark, Version: i.version},
		{Kind: zk.OpCreate, Path: version, Data: i.c.version},
	})
	switch {
	case err == nil:
		return nil
	case culprit == 0:
		return i.overtaken()
	case culprit < 0:
		// It may have been done. No other program can have created it while the import's node was
		// there.
		if stat, look := i.Exists(ctx, version); look == nil && stat != nil {
			return nil
		}
	}
	return err
}

func (i *importer) progress(what string, done, total int) {
	if i.opt.Progress != nil {
		i.opt.Progress(what, done, total)
	}
}
