package disk

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"

	"lockkeeper/internal/test/assert"
)

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
