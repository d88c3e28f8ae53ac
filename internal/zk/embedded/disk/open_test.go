package disk

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	bolt "go.etcd.io/bbolt"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/zk/embedded"
)

func TestASecondOpenerIsToldWhatToDo(t *testing.T) {
	r := newRig(t)
	_, err := Open(r.config)
	assert.That(t, errors.Is(err, ErrLocked) && strings.Contains(err.Error(), r.config.Dir) && strings.Contains(err.Error(), "--data-dir"),
		"opened twice: %v", err)
	r.add(1, 1)
	_, err = Verify(r.path)
	assert.That(t, errors.Is(err, ErrLocked), "verified while it is open: %v", err)
	r.reopen()
}

func TestStoresThatAreMadeAtOnceAreOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	type result struct {
		s   *Store
		err error
	}
	results := make(chan result)
	const openers = 8
	for range openers {
		go func() {
			s, err := Open(Config{Dir: dir})
			results <- result{s, err}
		}()
	}
	opened := 0
	for range openers {
		r := <-results
		switch {
		case r.err == nil:
			opened++
			defer r.s.Close()
		case !errors.Is(r.err, ErrLocked):
			t.Error(r.err)
		}
	}
	assert.That(t, opened == 1, "opened %d times", opened)
}

func TestTheSecondMakerOfAStoreLeavesTheFirstOneAlone(t *testing.T) {
	r := newRig(t)
	r.add(3, 10)
	assert.NoError(t, create(r.dir, r.path))
	r.add(1, 10)
	r.reopen()
}

func TestAStoreBelongsToItsOwner(t *testing.T) {
	r := newRig(t)
	r.add(1, 10)
	for path, want := range map[string]os.FileMode{r.dir: 0o700 | os.ModeDir, r.path: 0o600, JournalPath(r.path): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	names := func() (names []string) {
		for _, e := range assert.Value(os.ReadDir(r.dir))(t) {
			names = append(names, e.Name())
		}
		return names
	}
	assert.Slices(t, names(), []string{FileName, FileName + journalSuffix}, "while it is open")
	assert.NoError(t, r.Store.Close())
	assert.Slices(t, names(), []string{FileName}, "when it is closed")
}

func TestWhatAnUnfinishedStartLeftIsSweptAway(t *testing.T) {
	r := newRig(t)
	left := filepath.Join(r.dir, FileName+".new-123")
	assert.NoError(t, os.WriteFile(left, []byte("half"), 0o600))
	r.reopen()
	_, err := os.Stat(left)
	assert.That(t, errors.Is(err, os.ErrNotExist), "still there: %v", err)
}

func TestWhatIsNoStoreIsRefused(t *testing.T) {
	whole := func(t *testing.T) []byte {
		r := newRig(t)
		r.add(10, 100)
		r.Store.Close()
		b := assert.Value(os.ReadFile(r.path))(t)
		return b
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string) error
		want    error // nil: any
		says    string
	}{
		"empty":           {func(_ *testing.T, path string) error { return os.WriteFile(path, nil, 0o600) }, ErrDamaged, "empty"},
		"text":            {func(_ *testing.T, path string) error { return os.WriteFile(path, []byte("hello"), 0o600) }, ErrDamaged, "5 bytes"},
		"zeros":           {func(_ *testing.T, path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) }, ErrDamaged, "no bbolt file"},
		"a directory":     {func(_ *testing.T, path string) error { return os.Mkdir(path, 0o700) }, nil, "directory"},
		"a dangling link": {func(_ *testing.T, path string) error { return os.Symlink("nowhere", path) }, nil, "no such file"},
		"another bbolt file": {func(_ *testing.T, path string) error {
			db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, PageSize: pageSize})
			if err != nil {
				return err
			}
			return errors.Join(db.Update(func(tx *bolt.Tx) error {
				_, err := tx.CreateBucket([]byte("other"))
				return err
			}), db.Close())
		}, ErrDamaged, "no store"},
		"a store": {func(t *testing.T, path string) error { return os.WriteFile(path, whole(t), 0o600) }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shm(t)
			path := filepath.Join(dir, FileName)
			assert.NoError(t, c.prepare(t, path))
			before, _ := os.ReadFile(path)
			s, err := Open(Config{Dir: dir})
			if err == nil {
				s.Close()
			}
			if c.says == "" {
				assert.Nil(t, err)
				return
			}
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Fatalf("opened with %v", err)
			}
			assert.That(t, !errors.Is(err, ErrDamaged) || strings.Contains(err.Error(), "gateway restore"),
				"it does not say what to do: %v", err)
			after, _ := os.ReadFile(path)
			assert.That(t, bytes.Equal(before, after), "the file was changed")
		})
	}
}

func TestADirectoryThatIsAFileIsRefused(t *testing.T) {
	path := filepath.Join(shm(t), "data")
	assert.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err := Open(Config{Dir: path})
	assert.That(t, err != nil && strings.Contains(err.Error(), "not a directory"), "%v", err)
}

func TestWithoutPermissionNothingIsOpened(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may do everything")
	}
	r := newRig(t)
	r.Store.Close()
	for path, mode := range map[string]os.FileMode{r.path: 0o400, r.dir: 0} {
		assert.NoError(t, os.Chmod(path, mode))
		_, err := Open(r.config)
		assert.That(t, errors.Is(err, os.ErrPermission), "%s with mode %o: %v", path, mode, err)
		os.Chmod(path, 0o700)
	}
	r.open()
}

func TestAStoreOfANewerReleaseIsRefusedUnlessItAllowsUs(t *testing.T) {
	for name, c := range map[string]struct {
		format format
		want   error
	}{
		"newer":                        {format{7, 5}, ErrNewer},
		"newer, which we can read too": {format{7, formatVersion}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.add(1, 1)
			p := r.progress
			err := r.commit(&p, func(tx *bolt.Tx) error {
				return tx.Bucket(bucketRecords).Put(keyFormat, seal(nil, keyFormat, c.format))
			})
			assert.NoError(t, err)
			if c.want == nil {
				r.reopen()
				return
			}
			// What else a newer release does is not known: its other records do not matter.
			assert.NoError(t, r.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketRecords).Delete(keyProgress) }))
			r.Store.Close()
			_, err = Open(r.config)
			assert.That(t, errors.Is(err, c.want) && strings.Contains(err.Error(), "reads format 5"), "opened with %v", err)
			_, err = Verify(r.path)
			assert.That(t, errors.Is(err, c.want), "verified with %v", err)
		})
	}
}

func TestRightsThatGiveTheStoreAwayAreWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string) error
		says   string // "" for nothing
	}{
		"as it is made":                     {func(string) error { return nil }, ""},
		"others may write to the directory": {func(dir string) error { return os.Chmod(dir, 0o770) }, "others may write"},
		"the directory is another user's":   {func(dir string) error { return os.Chown(dir, 65534, -1) }, "belongs to another user"},
		"others can read the file":          {func(dir string) error { return os.Chmod(filepath.Join(dir, FileName), 0o640) }, "others can read the store"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			reopen := func() string {
				t.Helper()
				var log bytes.Buffer
				s, err := Open(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
				assert.NoError(t, err)
				assert.NoError(t, s.Close())
				return log.String()
			}
			assert.MustEqual(t, reopen(), "", "a new store is warned of")
			if err := c.change(dir); os.IsPermission(err) {
				t.Skip("only root can give a directory away")
			} else if err != nil {
				t.Fatal(err)
			}
			said := reopen()
			assert.That(t, strings.Contains(said, c.says) && (c.says != "" || said == ""), "said %q", said)
		})
	}
}

// TestAServerGoesOnWhereItsStoreEnds runs real servers over one store, with snapshots all the time and without.
func TestAServerGoesOnWhereItsStoreEnds(t *testing.T) {
	for name, options := range map[string][]embeddedtest.Option{
		"log":       nil,
		"snapshots": {embeddedtest.SnapshotsAlways()},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			const lives, each = 4, 25
			snapshot := int64(0)
			for life := range lives {
				store := assert.Value(Open(Config{Dir: dir}))(t)
				storage := func(c *embedded.Config) { c.Storage = store }
				server := assert.Value(embeddedtest.Start(append([]embeddedtest.Option{embeddedtest.With(storage)}, options...)...))(t)
				live(t, server.Addr(), life*each, each)
				server.Close()
				snapshot = store.progress.Whole.Zxid
				assert.That(t, name != "log" || snapshot == 0, "a snapshot was not due")
				assert.NoError(t, store.Close())
			}
			assert.That(t, name != "snapshots" || snapshot != 0, "no snapshot became whole")
			_, err := Verify(filepath.Join(dir, FileName))
			assert.Nil(t, err)
		})
	}
}

// live is a client that finds the nodes of the lives before, and makes some more.
func live(t *testing.T, addr string, before, more int) {
	t.Helper()
	conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogInfo(false))
	assert.NoError(t, err)
	defer conn.Close()
	if before == 0 {
		assert.Value(conn.Create("/n", nil, 0, zk.WorldACL(zk.PermAll)))(t)
	}
	names, _, err := conn.Children("/n")
	assert.Must(t, err == nil && len(names) == before, "%d nodes are there, of %d: %v", len(names), before, err)
	var last int64
	for i := range before + more {
		path := fmt.Sprintf("/n/c-%010d", i)
		if i >= before {
			made, err := conn.Create("/n/c-", []byte(path), zk.FlagSequence, zk.WorldACL(zk.PermAll))
			assert.Must(t, err == nil && made == path, "%v %v", made, err)
		}
		data, stat, err := conn.Get(path)
		assert.Must(t, err == nil && string(data) == path && stat.Czxid > last,
			"%s is %q, made by %#x after %#x: %v", path, data, stat.Czxid, last, err)
		last = stat.Czxid
	}
}
