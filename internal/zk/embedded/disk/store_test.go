package disk

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/state"
)

func TestWhatWasAppendedIsThereAfterReopening(t *testing.T) {
	r := newRig(t)
	r.check()
	r.add(1, 10)
	r.reopen()
	r.add(3, 0)
	r.add(256, 150)
	r.add(1, 1<<20)
	r.add(2, chunkData)
	r.reopen()
	r.add(1, 0)
	r.check()
}

func TestBatchesOfEverySizeAroundAChunkComeBack(t *testing.T) {
	r := newRig(t)
	for size := chunkData - 80; size < chunkData+10; size++ {
		r.add(1, size)
		r.add(1, size+chunkData)
	}
	r.snapshot(1, 0, 0)
	for size := chunkData - 2; size < chunkData+3; size++ {
		r.snapshot(2, size, 1)
		r.reopen()
	}
}

func TestASnapshotTakesThePlaceOfTheLogBeforeIt(t *testing.T) {
	r := newRig(t)
	r.add(100, 100)
	r.snapshot(3, 10_000, 2)
	if len(r.model.txns) != 6 || len(r.model.pieces) != 3 {
		t.Fatalf("the model has %d transactions and %d pieces", len(r.model.txns), len(r.model.pieces))
	}
	r.reopen()
	r.add(10, 100)
	r.snapshot(1, 5_000, 0)
	r.reopen()
}

func TestOfASnapshotThatWasNotFinishedNothingCounts(t *testing.T) {
	r := newRig(t)
	r.add(10, 100)
	r.snapshot(2, 5_000, 1)
	for range 3 {
		r.add(5, 100)
		r.piece(r.last(), 0, 300_000, 4, false)
		r.add(5, 100)
		r.check()
		r.reopen()
		if r.progress.Under.Generation != 0 {
			t.Fatal("the snapshot is still under way")
		}
	}
	r.snapshot(2, 5_000, 1)
	r.reopen()
	if c := r.contents(); len(c.buckets) != 3 {
		t.Errorf("buckets: %v", c.buckets)
	}
}

func TestASnapshotMayBeBegunAgain(t *testing.T) {
	r := newRig(t)
	r.add(10, 100)
	r.piece(r.last(), 0, 5_000, 3, false)
	r.snapshot(2, 5_000, 1)
	r.reopen()
}

func (r *rig) contents() *contents {
	r.Helper()
	info, err := r.file.Stat()
	if err != nil {
		r.Fatal(err)
	}
	c, err := readContents(r.file, info.Size())
	if err != nil {
		r.Fatal(err)
	}
	return c
}

func TestRandomHistoriesComeBack(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		r := newRig(t)
		under, zxid := 0, int64(0)
		for range 100 {
			switch rng.IntN(8) {
			case 0:
				r.reopen()
				under = 0
			case 1, 2:
				if under == 0 {
					zxid = r.last()
				}
				last := rng.IntN(4) == 0
				r.piece(zxid, under, rng.IntN(20_000), rng.IntN(3), last)
				under++
				if last {
					under = 0
				}
			default:
				r.add(1+rng.IntN(20), rng.IntN(3_000))
			}
		}
		r.reopen()
		r.Store.Close()
	}
}

func TestPagesAreNeverLongerThanOne(t *testing.T) {
	// What holds free space together: nothing needs two pages in a row.
	r := newRig(t)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		r.add(1+rng.IntN(10), rng.IntN(2_500))
		if i%50 == 49 {
			r.snapshot(3, rng.IntN(40_000), 1)
		}
	}
	b, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	for id := uint64(2); id < r.contents().image.meta.pages; id++ {
		if p := b[id*pageSize:]; native.Uint32(p[12:]) != 0 {
			t.Fatalf("page %d of kind %#x overflows into %d more", id, native.Uint16(p[8:]), native.Uint32(p[12:]))
		}
	}
}

func TestOnlyWhatGoesOnFromTheLastTransactionIsTaken(t *testing.T) {
	for name, b := range map[string]embedded.Batch{
		"a gap":                       {Txns: txns(6, 1, 0)},
		"again":                       {Txns: txns(4, 1, 0)},
		"a gap within":                {Txns: []*state.Txn{txn(6, 0), txn(8, 0)}},
		"a piece of no snapshot":      {Piece: &embedded.Piece{Zxid: 5}},
		"a snapshot of the past":      {Piece: &embedded.Piece{Zxid: 4, First: true}},
		"a snapshot of its own batch": {Txns: txns(5, 1, 0), Piece: &embedded.Piece{Zxid: 6, First: true}},
	} {
		r := newRig(t)
		r.add(5, 10)
		if err := r.Append(b); err == nil {
			t.Errorf("%s was taken", name)
		}
		r.reopen()
		r.Store.Close()
	}
}

func TestAnAppendThatFailedIsTheLastOne(t *testing.T) {
	full := errors.New("no space left")
	for name, persisted := range map[string]bool{"failed": false, "failed but persisted": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.add(3, 10)
			update := r.update
			r.update = func(change func(*bolt.Tx) error) error {
				if persisted {
					if err := update(change); err != nil {
						return err
					}
				}
				return full
			}
			b := embedded.Batch{Txns: txns(r.last(), 2, 10)}
			if err := r.Append(b); !errors.Is(err, full) {
				t.Fatal(err)
			}
			r.update = update
			if err := r.Append(b); !errors.Is(err, full) {
				t.Fatalf("appended after a failure: %v", err)
			}
			if persisted {
				r.model.append(b)
			}
			r.reopen()
			r.add(2, 10)
			r.reopen()
		})
	}
}

func TestTheSecretStaysAndIsOnesOwn(t *testing.T) {
	r, other := newRig(t), newRig(t)
	secret := bytes.Clone(r.Secret())
	if len(secret) < 16 || bytes.Equal(secret, make([]byte, len(secret))) || bytes.Equal(secret, other.Secret()) {
		t.Errorf("secrets %x and %x", secret, other.Secret())
	}
	r.reopen()
	if !bytes.Equal(secret, r.Secret()) {
		t.Error("it has changed")
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	r := newRig(t)
	if err := r.Store.Close(); err != nil {
		t.Fatal(err)
	}
	_, loading := load(r.Store)
	_, backup := r.Backup(t.Context(), &bytes.Buffer{})
	for what, err := range map[string]error{"append": r.Append(embedded.Batch{Txns: txns(0, 1, 0)}), "load": loading, "backup": backup} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := r.Store.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestASecondOpenerIsToldWhatToDo(t *testing.T) {
	r := newRig(t)
	_, err := Open(r.config)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), r.config.Dir) || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("opened twice: %v", err)
	}
	r.add(1, 1)
	if _, err := Verify(r.path); !errors.Is(err, ErrLocked) {
		t.Errorf("verified while it is open: %v", err)
	}
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
	if opened != 1 {
		t.Errorf("opened %d times", opened)
	}
}

func TestWhoIsLateInMakingAStoreLeavesTheOtherOneAlone(t *testing.T) {
	r := newRig(t)
	r.add(3, 10)
	if err := create(r.dir, r.path); err != nil {
		t.Fatal(err)
	}
	r.add(1, 10)
	r.reopen()
}

func TestAStoreBelongsToItsOwner(t *testing.T) {
	r := newRig(t)
	for path, want := range map[string]os.FileMode{r.dir: 0o700 | os.ModeDir, r.path: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	left, err := os.ReadDir(r.dir)
	if err != nil || len(left) != 1 {
		t.Errorf("in the directory: %v, %v", left, err)
	}
}

func TestWhatAnUnfinishedStartLeftIsSweptAway(t *testing.T) {
	r := newRig(t)
	left := filepath.Join(r.dir, FileName+".new-123")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestWhatIsNoStoreIsRefused(t *testing.T) {
	whole := func(t *testing.T) []byte {
		r := newRig(t)
		r.add(10, 100)
		r.Store.Close()
		b, err := os.ReadFile(r.path)
		if err != nil {
			t.Fatal(err)
		}
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
			if err := c.prepare(t, path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(path)
			s, err := Open(Config{Dir: dir})
			if err == nil {
				s.Close()
			}
			if c.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Fatalf("opened with %v", err)
			}
			if errors.Is(err, ErrDamaged) && !strings.Contains(err.Error(), "gateway restore") {
				t.Errorf("it does not say what to do: %v", err)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestADirectoryThatIsAFileIsRefused(t *testing.T) {
	path := filepath.Join(shm(t), "data")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: path}); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Error(err)
	}
}

func TestWithoutPermissionNothingIsOpened(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may do everything")
	}
	r := newRig(t)
	r.Store.Close()
	for path, mode := range map[string]os.FileMode{r.path: 0o400, r.dir: 0} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(r.config); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s with mode %o: %v", path, mode, err)
		}
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
			if err != nil {
				t.Fatal(err)
			}
			if c.want == nil {
				r.reopen()
				return
			}
			// What else a newer release does is not known: its other records do not matter.
			err = r.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketRecords).Delete(keyProgress) })
			if err != nil {
				t.Fatal(err)
			}
			r.Store.Close()
			_, err = Open(r.config)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "reads format 5") {
				t.Errorf("opened with %v", err)
			}
			if _, err := Verify(r.path); !errors.Is(err, c.want) {
				t.Errorf("verified with %v", err)
			}
		})
	}
}
