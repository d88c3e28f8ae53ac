package standalone

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/embedded/disk"
	"lockkeeper/internal/zk/layout"
)

// stored is a node over a real store in dir.
func stored(t *testing.T, dir string) *process {
	t.Helper()
	p := &process{log: new(journal), ended: make(chan error, 1)}
	p.Node = assert.Value(Open(Config{Dir: dir}))(t)
	ctx, end := context.WithCancel(context.Background())
	p.end = end
	go func() { p.ended <- p.Run(ctx) }()
	return p
}

func TestARestoreEndsTheSessionsAndRaisesTheFenceBase(t *testing.T) {
	testkit.NoLeaks(t)
	p := stored(t, filepath.Join(t.TempDir(), "data"))
	cfg := zk.Config{Servers: []string{"embedded:2181"}, Dial: p.Dial, CreateRoot: true}
	before := assert.Value(layout.Open(t.Context(), cfg))(t)
	c := p.client(t)
	create(t, c, "/gone", gozk.FlagEphemeral)
	create(t, c, "/kept", 0)
	backup := filepath.Join(t.TempDir(), "backup")
	f := assert.Value(os.OpenFile(backup, os.O_CREATE|os.O_WRONLY, 0o600))(t)
	assert.Value(p.Backup(t.Context(), f))(t)
	f.Close()
	create(t, c, "/later", 0)
	c.Close()
	p.stop(t)

	dir := filepath.Join(t.TempDir(), "new", "data")
	const age = time.Hour
	done := assert.Value(Restore(backup, dir, zk.DefaultRoot, time.Now().Add(age)))(t)
	assert.That(t, done.SessionsEnd == 1, "ended %d sessions", done.SessionsEnd)
	again := assert.Value(Restore(backup, dir+"-again", zk.DefaultRoot, time.Now().Add(age+time.Millisecond)))(t)
	assert.That(t, again.FenceBase > done.FenceBase+1000,
		"the same backup again, a millisecond later: %d, after %d", again.FenceBase, done.FenceBase)
	p = stored(t, dir)
	cfg.Dial = p.Dial
	after := assert.Value(layout.Open(t.Context(), cfg))(t)
	if least := before.FenceBase + 1<<40 + int64(age/time.Second)<<20; after.FenceBase < least || after.FenceBase != done.FenceBase {
		t.Errorf("the fence base is %d, was told as %d, and has to be %d", after.FenceBase, done.FenceBase, least)
	}
	assert.That(t, after.FleetID == before.FleetID, "it is another fleet")
	c = p.client(t)
	assert.That(t, !exists(t, c, "/gone") && exists(t, c, "/kept") && !exists(t, c, "/later"),
		"not what was there when the backup was made")
	c.Close()
	p.stop(t)
}

func TestARestoreTouchesNothingThatIsThereAndTakesNothingDamaged(t *testing.T) {
	p := stored(t, filepath.Join(t.TempDir(), "data"))
	if _, err := layout.Open(t.Context(), zk.Config{Servers: []string{"embedded:2181"}, Dial: p.Dial, CreateRoot: true}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := p.Backup(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	p.stop(t)
	whole, cut := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "cut")
	for path, data := range map[string][]byte{whole: b.Bytes(), cut: b.Bytes()[:b.Len()-4096]} {
		assert.NoError(t, os.WriteFile(path, data, 0o600))
	}

	full := t.TempDir()
	assert.NoError(t, os.WriteFile(filepath.Join(full, "x"), nil, 0o600))
	if _, err := Restore(whole, full, zk.DefaultRoot, time.Now()); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("into a directory with a file: %v", err)
	}
	empty := t.TempDir()
	if _, err := Restore(cut, empty, zk.DefaultRoot, time.Now()); !errors.Is(err, disk.ErrDamaged) {
		t.Errorf("from a damaged backup: %v", err)
	}
	if _, err := Restore(whole, empty, "/elsewhere", time.Now()); err == nil {
		t.Error("a root that the backup does not have")
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	// What a killed restore left does not stop the next one. No server begins there with nothing.
	assert.NoError(t, os.MkdirAll(filepath.Join(empty, unfinished, "x"), 0o700))
	if _, err := Open(Config{Dir: empty}); err == nil || !strings.Contains(err.Error(), "gateway restore") {
		t.Errorf("opening what was not restored to the end: %v", err)
	}
	// Two at a time would mix what they write.
	other, err := lockDir(empty)
	assert.NoError(t, err)
	_, err = Restore(whole, empty, zk.DefaultRoot, time.Now())
	assert.That(t, errors.Is(err, ErrUnderWay), "while another restore works there: %v", err)
	other.Close()
	_, err = Restore(whole, empty, zk.DefaultRoot, time.Now())
	assert.Nil(t, err)
	left, err := os.ReadDir(empty)
	assert.That(t, err == nil && len(left) == 1 && left[0].Name() == disk.FileName, "there are %v %v", left, err)
	// What one left that died at the very end is cleared by the gateway.
	assert.NoError(t, os.Mkdir(filepath.Join(empty, unfinished), 0o700))
	n := assert.Value(Open(Config{Dir: empty}))(t)
	assert.Nil(t, n.Close())
	_, err = os.Lstat(filepath.Join(empty, unfinished))
	assert.That(t, err != nil, "what a restore left stays")
}
