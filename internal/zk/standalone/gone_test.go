package standalone

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/disk"
)

// failing is a store whose disk fails when it is told to.
type failing struct {
	store
	fails *atomic.Bool
}

func (f failing) Append(b embedded.Batch) error {
	if f.fails.Load() {
		return errors.New("input/output error")
	}
	return f.store.Append(b)
}

// A disk that fails may take its mount with it: what is found in the store's place then is nothing, or another store.
func TestAStoreThatIsGoneIsWaitedForAndNoOtherIsServedInItsPlace(t *testing.T) {
	testkit.NoLeaks(t)
	parent := t.TempDir()
	dir, away := filepath.Join(parent, "data"), filepath.Join(parent, "away")
	var fails atomic.Bool
	opened := new(atomic.Int64)
	p := &process{log: new(journal), ended: make(chan error, 1)}
	logger := slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	p.Node, err = Open(Config{Dir: dir, Logger: logger, open: func(dir string, create bool) (store, error) {
		opened.Add(1)
		s, err := onDisk(logger)(dir, create)
		if err != nil {
			return nil, err
		}
		return failing{s, &fails}, nil
	}})
	assert.NoError(t, err)
	p.end = p.run()
	c := p.client(t)
	create(t, c, "/a", 0)
	anotherTry := func() {
		t.Helper()
		n := opened.Load()
		testkit.Eventually(t, patience, func() bool { return opened.Load() > n+1 }, "it is tried again")
		assert.Must(t, p.Err() != nil, "something else is served")
	}

	fails.Store(true)
	assert.NoError(t, os.Rename(dir, away))
	_, err = c.Create("/b", nil, 0, world)
	assert.Must(t, err != nil, "acknowledged what was not stored")
	fails.Store(false)
	anotherTry()
	_, err = os.Lstat(dir)
	assert.That(t, errors.Is(err, fs.ErrNotExist), "the directory was made: %v", err)
	other := assert.Value(disk.Open(disk.Config{Dir: dir}))(t)
	assert.NoError(t, other.Close())
	anotherTry()
	n := p.log.count("the store is gone: requests are refused")
	assert.That(t, n == 1, "logged %d times, want once", n)

	assert.NoError(t, errors.Join(os.Rename(dir, dir+"-other"), os.Rename(away, dir)))
	testkit.Eventually(t, patience, func() bool { return p.Err() == nil }, "the store is served again")
	again := p.client(t)
	assert.That(t, exists(t, again, "/a"), "/a is lost")
	again.Close()
	c.Close()
	p.stop(t)
}
