package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/offlinetest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// server starts a ZooKeeper and says how to reach a root on it.
func server(t testing.TB) zk.Config {
	s := embeddedtest.RunT(t)
	return zk.Config{Servers: []string{s.Addr()}, CreateRoot: true}
}

// site is a root under test, and another program at its ZooKeeper.
type site struct {
	offlinetest.Site
	cfg   zk.Config
	fleet recipe.FleetID
}

// newSite creates a Lockkeeper root.
func newSite(t testing.TB, cfg zk.Config) *site {
	t.Helper()
	layout := assert.Value(layout.Open(offlinetest.Context(t), cfg))(t)
	return &site{Site: offlinetest.Site{Offline: offlinetest.Open(t, cfg), T: t}, cfg: cfg, fleet: recipe.FleetID(layout.FleetID)}
}

// enqueue puts a contender into each of the directories, in one transaction.
func (s *site) enqueue(c recipe.Contender, dirs ...string) recipe.LeaseID {
	s.T.Helper()
	if c.LeaseID == "" {
		c.LeaseID = offlinetest.NewLease(s.T, s.fleet)
	}
	var ops []zk.Op
	for k, dir := range dirs {
		if len(dirs) > 1 {
			c.Group, c.Groups = uint8(k+1), uint8(len(dirs))
		}
		s.Ensure(dir)
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: dir + "/" + c.Prefix(), Sequential: true, Ephemeral: c.Ephemeral,
			Data: fmt.Appendf(nil, `{"v":1,"ttl_ms":30000,"owner":"of %.45s <&>"}`, c.LeaseID)})
	}
	s.Apply(ops...)
	return c.LeaseID
}

func (s *site) lock(name string) string { return s.cfg.Root + zk.NodeLocks + "/" + name }

// tree is what is at and below a path: data by paths.
func tree(t testing.TB, o *layout.Offline, path string) map[string]string {
	t.Helper()
	data, _, err := o.Get(offlinetest.Context(t), path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	assert.NoError(t, err)
	names, _, err := o.Children(offlinetest.Context(t), path)
	assert.NoError(t, err)
	all := map[string]string{path: string(data)}
	for _, name := range names {
		for child, data := range tree(t, o, path+"/"+name) {
			all[child] = data
		}
	}
	return all
}

// queue is the lease ids of a lock's contenders with their data, in order.
func queue(t testing.TB, o *layout.Offline, fleet recipe.FleetID, dir string) []string {
	t.Helper()
	var contenders []recipe.Contender
	nodes := tree(t, o, dir)
	for path := range nodes {
		if c, ok := recipe.Parse(fleet, path[lastSlash(path)+1:]); ok && path != dir {
			contenders = append(contenders, c)
		}
	}
	slices.SortFunc(contenders, func(a, b recipe.Contender) int { return recipe.Compare(a.Number, a.Name, b.Number, b.Name) })
	var ids []string
	for _, c := range contenders {
		ids = append(ids, fmt.Sprintf("%s %v %s", c.LeaseID, c.Mode, nodes[dir+"/"+c.Name]))
	}
	return ids
}

func export(t testing.TB, cfg zk.Config) *Archive {
	t.Helper()
	a, _, err := Export(offlinetest.Context(t), cfg, ExportOptions{})
	assert.NoError(t, err)
	return a
}

// throughFile writes and reads an archive.
func throughFile(t testing.TB, a *Archive) *Archive {
	t.Helper()
	var file bytes.Buffer
	assert.NoError(t, Write(&file, a))
	read, err := Read(&file)
	assert.Must(t, err == nil, "%v in\n%s", err, file.String())
	return read
}

func importInto(t testing.TB, cfg zk.Config, a *Archive) {
	t.Helper()
	assert.Value(Import(offlinetest.Context(t), cfg, a, ImportOptions{}))(t)
}
