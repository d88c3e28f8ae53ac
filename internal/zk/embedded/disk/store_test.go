package disk

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"

	"lockkeeper/internal/test/assert"
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
	assert.Must(t, len(r.model.txns) == 6 && len(r.model.pieces) == 3,
		"the model has %d transactions and %d pieces", len(r.model.txns), len(r.model.pieces))
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
		assert.Must(t, r.progress.Under.Generation == 0, "the snapshot is still under way")
	}
	r.snapshot(2, 5_000, 1)
	r.reopen()
	c := r.contents()
	assert.That(t, len(c.buckets) == 3, "buckets: %v", c.buckets)
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
	info := assert.Value(r.file.Stat())(r)
	c := assert.Value(readContents(r.file, info.Size()))(r)
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
	b := assert.Value(os.ReadFile(r.path))(t)
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
		assert.That(t, r.Append(b) != nil, "%s was taken", name)
		r.reopen()
		r.Store.Close()
	}
}

func TestAnAppendThatFailedIsTheLastOne(t *testing.T) {
	full := errors.New("no space left")
	for name, persisted := range map[string]bool{"failed": false, "failed but persisted": true} {
		t.Run(name, func(t *testing.T) {
			r := newDirectRig(t)
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
			err := r.Append(b)
			assert.Must(t, errors.Is(err, full), "%v", err)
			r.update = update
			err = r.Append(b)
			assert.Must(t, errors.Is(err, full), "appended after a failure: %v", err)
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
	assert.That(t, len(secret) >= 16 && !bytes.Equal(secret, make([]byte, len(secret))) && !bytes.Equal(secret, other.Secret()),
		"secrets %x and %x", secret, other.Secret())
	r.reopen()
	assert.That(t, bytes.Equal(secret, r.Secret()), "it has changed")
}

func TestAClosedStoreSaysSo(t *testing.T) {
	r := newRig(t)
	assert.NoError(t, r.Store.Close())
	_, loading := load(r.Store)
	_, backup := r.Backup(t.Context(), &bytes.Buffer{})
	for what, err := range map[string]error{"append": r.Append(embedded.Batch{Txns: txns(0, 1, 0)}), "load": loading, "backup": backup} {
		assert.That(t, errors.Is(err, ErrClosed), "%s: %v", what, err)
	}
	assert.Nil(t, r.Store.Close(), "closed twice")
}

// TestTheReaderSeesWhatBboltSees compares the reader with bbolt's own, on files of all shapes: deep and flat, inline buckets,
// values over many pages, deletions.
func TestTheReaderSeesWhatBboltSees(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		path := filepath.Join(shm(t), "any.db")
		db := assert.Value(bolt.Open(path, 0o600, &bolt.Options{PageSize: pageSize, NoFreelistSync: true}))(t)
		defer db.Close()
		longest := []int{10, 200, 3_000, 20_000}[seed%4]
		for range 12 {
			err := db.Update(func(tx *bolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists(fmt.Appendf(nil, "bucket %d", rng.IntN(5)))
				if err != nil {
					return err
				}
				b.FillPercent = rng.Float64()
				for range rng.IntN(100) {
					key := fmt.Appendf(nil, "key %d", rng.IntN(2_000))
					if rng.IntN(4) == 0 {
						err = b.Delete(key)
					} else {
						err = b.Put(key, bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(longest)))
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
			assert.NoError(t, err)
			if want, got := bboltSees(t, db), readerSees(t, path); !slices.Equal(want, got) {
				t.Fatalf("seed %d: the reader sees %d entries that are not the %d of bbolt", seed, len(got), len(want))
			}
		}
	}
}

func bboltSees(t *testing.T, db *bolt.DB) (all []string) {
	t.Helper()
	err := db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				all = append(all, fmt.Sprintf("%s %s %d %x", name, k, len(v), crc32.ChecksumIEEE(v)))
				return nil
			})
		})
	})
	assert.NoError(t, err)
	return all
}

func readerSees(t *testing.T, path string) (all []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	assert.NoError(t, err)
	im := assert.Value(openImage(bytes.NewReader(b), int64(len(b))))(t)
	var names, values [][]byte
	err = im.root(func(e entry) error {
		names, values = append(names, bytes.Clone(e.key)), append(values, bytes.Clone(e.value))
		return nil
	})
	assert.NoError(t, err)
	for i, name := range names {
		err := im.bucket(values[i], func(e entry) error {
			all = append(all, fmt.Sprintf("%s %s %d %x", name, e.key, len(e.value), crc32.ChecksumIEEE(e.value)))
			return nil
		})
		assert.NoError(t, err)
	}
	return all
}
