package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/embedded"
)

// smallHalf has a rotation every few batches.
const smallHalf = 16 << 10

func newJournalRig(t testing.TB) *rig {
	return newRigIn(t, Config{Dir: filepath.Join(shm(t), "data"), journalHalf: smallHalf})
}

// files are what a crash leaves: the store's file and the journal; nil for none.
type files struct{ store, journal []byte }

// crash copies what the disk has right now.
func (r *rig) crash() files {
	r.Helper()
	f := files{store: assert.Value(os.ReadFile(r.path))(r)}
	f.journal, _ = os.ReadFile(JournalPath(r.path))
	return f
}

// after puts the files of a crash into a directory of their own and opens the store there.
func (f files) after(t testing.TB) (*Store, error) {
	t.Helper()
	dir := shm(t)
	path := filepath.Join(dir, FileName)
	assert.NoError(t, os.WriteFile(path, f.store, 0o600))
	if f.journal != nil {
		assert.NoError(t, os.WriteFile(JournalPath(path), f.journal, 0o600))
	}
	return Open(Config{Dir: dir, journalHalf: smallHalf})
}

// is says whether a store opens from the files, goes on, and has exactly what one of the models has.
func (f files) is(t testing.TB, models ...model) error {
	t.Helper()
	s, err := f.after(t)
	if err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	defer s.Close()
	got, err := load(s)
	if err != nil {
		return err
	}
	for i := range models {
		if err = models[i].differs(got); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	if err := s.Append(embedded.Batch{Txns: txns(s.progress.Last, 2, 50)}); err != nil {
		return err
	}
	more := *got
	more.append(embedded.Batch{Txns: txns(s.progress.Last-2, 2, 50)})
	if got, err = load(s); err != nil {
		return err
	}
	return more.differs(got)
}

func TestAKilledStoreHasWhatItsJournalHas(t *testing.T) {
	for seed := range uint64(times(8, 200)) {
		rng := rand.New(rand.NewPCG(seed, 9))
		r := newJournalRig(t)
		under, zxid := 0, int64(0)
		for range 60 {
			switch rng.IntN(10) {
			case 0:
				r.reopen()
				under = 0
			case 1:
				if under == 0 {
					zxid = r.last()
				}
				last := rng.IntN(3) == 0
				r.piece(zxid, under, rng.IntN(20_000), rng.IntN(3), last)
				if under++; last {
					under = 0
				}
			case 2:
				assert.Value(r.Backup(t.Context(), &bytes.Buffer{}))(t)
			case 3:
				r.add(1, smallHalf) // larger than the journal takes
			default:
				r.add(1+rng.IntN(5), rng.IntN(600))
			}
			m := r.model
			m.under = nil
			if rng.IntN(4) == 0 {
				err := r.crash().is(t, m)
				assert.Must(t, err == nil, "seed %d: %v", seed, err)
			}
			r.check()
		}
		r.Store.Close()
	}
}

// tornDisk is a journalFile: what was synced, and the one write that was not. Before each sync it calls torn.
type tornDisk struct {
	durable []byte
	at      int64
	written []byte
	torn    func()
	fail    error // of the next sync, which then has done nothing
}

func (d *tornDisk) WriteAt(b []byte, at int64) (int, error) {
	if d.written != nil {
		return 0, errors.New("two writes without a sync between them")
	}
	d.at, d.written = at, bytes.Clone(b)
	return len(b), nil
}

func (d *tornDisk) Sync() error {
	d.torn()
	if d.fail != nil {
		return d.fail
	}
	copy(d.durable[d.at:], d.written)
	d.written = nil
	return nil
}

func (d *tornDisk) Close() error { return nil }

// with is the disk's contents when only some of the sectors have got there.
func (d *tornDisk) with(there func(sector, of int) bool) (b []byte, all bool) {
	b, all = bytes.Clone(d.durable), true
	n := len(d.written) / sector
	for i := range n {
		if there(i, n) {
			copy(b[d.at+int64(i*sector):], d.written[i*sector:(i+1)*sector])
		} else {
			all = false
		}
	}
	return b, all
}

// tear has r's journal on such a disk.
func (r *rig) tear() *tornDisk {
	r.Helper()
	if r.journal.file != nil {
		assert.NoError(r, r.journal.file.Close())
	}
	d := &tornDisk{durable: assert.Value(os.ReadFile(JournalPath(r.path)))(r), torn: func() {}}
	r.journal.file = d
	return d
}

// TestACrashAtAnyWriteOfTheJournalLosesNothingAcknowledged stops before each sync of the journal with every beginning, every end and
// random parts of the sectors on the disk, and before and after each commit of the store's file.
func TestACrashAtAnyWriteOfTheJournalLosesNothingAcknowledged(t *testing.T) {
	r := newJournalRig(t)
	r.add(3, 100)
	d := r.tear()
	rng := rand.New(rand.NewPCG(11, 12))
	var batch embedded.Batch
	var old []byte // the store's file before the last commit
	store := func() []byte { return assert.Value(os.ReadFile(r.path))(t) }
	crashes, begun, persisted := 0, 0, 0
	try := func(f files, what string, models ...model) {
		t.Helper()
		crashes++
		err := f.is(t, models...)
		assert.Must(t, err == nil, "batch %d, %s: %v", len(r.model.txns), what, err)
	}
	d.torn = func() {
		with := r.model
		with.under = nil
		without := with
		with.append(batch)
		n := len(d.written) / sector
		ways := []func(i, n int) bool{func(int, int) bool { return false }, func(int, int) bool { return true }}
		for at := 1; at < n; at++ {
			ways = append(ways, func(i, n int) bool { return i < at }, func(i, n int) bool { return i >= at })
		}
		for range min(n-1, 4) {
			bits := rng.Uint64()
			ways = append(ways, func(i, n int) bool { return bits&(1<<(i%64)) != 0 })
		}
		for _, there := range ways {
			journal, all := d.with(there)
			want := without
			if rec, ok := readRecord(d.written, r.journal.instance); !ok {
				t.Fatal("no record is written")
			} else if rec.number == 0 {
				begun++
			} else if all {
				want = with
				persisted++
			}
			try(files{store(), journal}, "a torn record", want)
		}
	}
	update := r.update
	r.update = func(change func(*bolt.Tx) error) error {
		m := r.model
		m.under = nil
		with := m
		with.append(batch)
		with.under = nil
		old = store()
		try(files{old, d.durable}, "before a commit", m)
		err := update(change)
		try(files{store(), d.durable}, "after a commit", m, with)
		// All pages are there but the newest meta page.
		half := store()
		im := assert.Value(openImage(bytes.NewReader(half), int64(len(half))))(t)
		page := int(im.meta.tx%2) * pageSize
		copy(half[page:page+pageSize], old[page:])
		try(files{half, d.durable}, "a commit without its meta page", m)
		return err
	}
	for i := range times(27, 400) {
		batch = embedded.Batch{Txns: txns(r.last(), 1+i%4, rng.IntN(900))}
		if i%13 == 12 {
			batch.Piece = &embedded.Piece{Zxid: r.last(), Data: make([]byte, 3000), First: true, Last: true}
		}
		r.append(batch)
	}
	r.update = update
	d.torn = func() {}
	t.Logf("%d crashes, %d of them while a generation began, %d with a batch that was not acknowledged", crashes, begun, persisted)
	assert.That(t, begun > 3 && persisted > 5, "the test does not try what it should")
}

func TestAJournalThatCannotBeSyncedIsTheEnd(t *testing.T) {
	failure := errors.New("input/output error")
	for name, persisted := range map[string]bool{"failed": false, "failed but persisted": true} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the generation had begun: %v", name, begun), func(t *testing.T) {
				r := newJournalRig(t)
				r.add(3, 10)
				if !begun {
					assert.NoError(t, r.seal())
				}
				d := r.tear()
				d.fail = failure
				b := embedded.Batch{Txns: txns(r.last(), 2, 10)}
				assert.ErrorIs(t, r.Append(b), failure)
				d.fail = nil
				assert.ErrorIs(t, r.Append(b), failure, "appended after a failure")
				_, err := r.Backup(t.Context(), &bytes.Buffer{})
				assert.ErrorIs(t, err, failure, "a backup of a store that lacks what its journal has")
				f := r.crash()
				f.journal, _ = d.with(func(int, int) bool { return persisted })
				m := r.model
				if persisted && begun {
					m.append(b)
				}
				assert.Nil(t, f.is(t, m))
				r.Store.Close()
			})
		}
	}
}

// journaled is a store that was killed with many batches in its journal.
func journaled(t *testing.T) (*rig, files) {
	t.Helper()
	r := newJournalRig(t)
	for r.journal.generation < 4 {
		r.add(2, 300)
	}
	for range 4 {
		r.add(2, 300)
	}
	return r, r.crash()
}

// recordsOf are the places and sizes of the records in force.
func (r *rig) recordsOf(f files) (starts []int, sizes []int) {
	half := int(r.journal.half)
	base := int(r.journal.generation%2) * half
	for at := base; at < base+half; {
		rec, ok := readRecord(f.journal[at:base+half], r.journal.instance)
		if !ok || rec.generation != r.journal.generation {
			break
		}
		starts, sizes = append(starts, at), append(sizes, recordHead+len(rec.data))
		at += int(recordSize(len(rec.data)))
	}
	return starts, sizes
}

func TestEveryDamagedByteOfTheJournalIsNoticed(t *testing.T) {
	r, f := journaled(t)
	starts, sizes := r.recordsOf(f)
	assert.Must(t, len(starts) >= 5, "%d records", len(starts))
	without := r.model
	without.txns = without.txns[:len(without.txns)-2]
	for i, start := range starts {
		last := i == len(starts)-1
		for at := start; at < start+sizes[i]; at += times(37, 1) {
			hurt := files{f.store, bytes.Clone(f.journal)}
			hurt.journal[at] ^= 1 << (at % 8)
			err := hurt.is(t, without)
			// The last record may be one that a crash has cut off.
			assert.Must(t, last && err == nil || !last && errors.Is(err, ErrDamaged), "record %d of %d, byte %d: %v", i, len(starts), at-start, err)
		}
	}
}

func TestAJournalThatIsMissingOrNotTheStoresIsNoticed(t *testing.T) {
	r, f := journaled(t)
	_, other := journaled(t)
	half := smallHalf
	begin := int(r.journal.generation%2) * half
	swapped := slices.Concat(f.journal[half:], f.journal[:half])
	zeros := make([]byte, 2*half)
	begun := bytes.Clone(f.journal)
	clear(begun[begin+sector : begin+2*sector])
	foreign := make([]byte, 2*half)
	copy(foreign[begin:], (&record{generation: r.journal.generation}).appendTo(nil, []byte("another instance")))
	for what, journal := range map[string][]byte{
		"missing": nil, "empty": {}, "cut": f.journal[:2*half-sector], "longer": append(bytes.Clone(f.journal), 0), "zeros": zeros,
		"another store's": other.journal, "another store's that has just begun": foreign, "halves in turn": swapped, "without its second record": begun,
	} {
		err := files{f.store, journal}.is(t, r.model)
		assert.That(t, errors.Is(err, ErrDamaged), "%s: %v", what, err)
	}
	// Each with the other of an earlier or later time.
	for r.journal.generation < 6 {
		r.add(2, 300)
	}
	r.add(1, 10)
	later := r.crash()
	err := files{later.store, f.journal}.is(t, r.model)
	assert.That(t, errors.Is(err, ErrDamaged), "an older journal: %v", err)
	err = files{f.store, later.journal}.is(t, r.model)
	assert.That(t, errors.Is(err, ErrDamaged), "an older store: %v", err)
	r.add(1, 10)
	assert.NoError(t, r.seal())
	sealed := r.crash()
	r.add(1, 10)
	err = files{sealed.store, r.crash().journal}.is(t, r.model)
	assert.That(t, errors.Is(err, ErrDamaged), "a store as it was before its journal went on: %v", err)
	assert.Nil(t, later.is(t, model{txns: r.model.txns[:len(r.model.txns)-2]}))
}

// TestBatchesThatTheStoreTookOverAreNotRepeated: the journal goes on with its generation when a batch goes to the store's file at once.
func TestBatchesThatTheStoreTookOverAreNotRepeated(t *testing.T) {
	r := newJournalRig(t)
	r.add(2, 100)
	r.add(1, smallHalf)
	assert.Nil(t, r.crash().is(t, r.model))
	r.add(2, 100)
	generation := r.journal.generation
	assert.Nil(t, r.crash().is(t, r.model))
	r.snapshot(2, 4_000, 1)
	r.add(2, 100)
	assert.Equal(t, r.journal.generation, generation)
	assert.Nil(t, r.crash().is(t, r.model))
}

func TestAKilledStoreIsVerifiedWithItsJournal(t *testing.T) {
	r, f := journaled(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "copy")
	assert.NoError(t, os.WriteFile(path, f.store, 0o600))
	_, err := Verify(path)
	assert.ErrorIs(t, err, ErrDamaged, "without its journal")
	assert.NoError(t, os.WriteFile(JournalPath(path), f.journal, 0o600))
	sum := assert.Value(Verify(path))(t)
	assert.That(t, sum.LastZxid == r.last() && sum.Transactions == int64(len(r.model.txns)), "%+v", sum)
}

// TestAStoreOfFormat1BecomesOneOfFormat2: it has no record of a journal.
func TestAStoreOfFormat1BecomesOneOfFormat2(t *testing.T) {
	r := newRig(t)
	r.add(5, 100)
	assert.NoError(t, r.seal())
	p := r.progress
	assert.NoError(t, r.commit(&p, func(tx *bolt.Tx) error {
		records := tx.Bucket(bucketRecords)
		return errors.Join(records.Delete(keyJournal), records.Put(keyFormat, seal(nil, keyFormat, format{1, 1})))
	}))
	f := r.crash()
	assert.Nil(t, files{store: f.store}.is(t, r.model))
	r.journal.open = false
	r.reopen()
	assert.Equal(t, r.contents().format, format{formatVersion, formatVersion})
	// One of format 2 must have the record.
	p = r.progress
	assert.NoError(t, r.commit(&p, func(tx *bolt.Tx) error { return tx.Bucket(bucketRecords).Delete(keyJournal) }))
	assert.ErrorIs(t, files{store: r.crash().store}.is(t, r.model), ErrDamaged)
}

// TestAStoreThatCannotBeClosedInOrderKeepsItsJournal, for the next start.
func TestAStoreThatCannotBeClosedInOrderKeepsItsJournal(t *testing.T) {
	r := newJournalRig(t)
	r.add(3, 100)
	r.update = func(func(*bolt.Tx) error) error { return errors.New("no space left") }
	assert.NoError(t, r.Store.Close())
	assert.That(t, r.crash().journal != nil, "the journal is gone")
	r.open()
	r.check()
}

// The directory was moved away, and another store began in its place.
func TestAStoreThatIsClosedLeavesTheJournalOfAnotherOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := assert.Value(Open(Config{Dir: dir}))(t)
	assert.NoError(t, os.Rename(dir, dir+".old"))
	second := assert.Value(Open(Config{Dir: dir}))(t)
	defer second.Close()
	assert.NoError(t, first.Close())
	_, err := os.Lstat(JournalPath(second.Path()))
	assert.NoError(t, err, "the journal of the second store")
}

func TestNoStoreIsMadeBesideTheJournalOfOneThatIsMissing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	assert.NoError(t, os.WriteFile(JournalPath(path), []byte("what was acknowledged"), 0o600))
	_, err := Open(Config{Dir: dir})
	assert.That(t, err != nil && strings.Contains(err.Error(), "its journal is there"), "%v", err)
	left := assert.Value(os.ReadFile(JournalPath(path)))(t)
	assert.Equal(t, string(left), "what was acknowledged")
	_, err = os.Lstat(path)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func FuzzAnyJournalIsReadOrRefused(f *testing.F) {
	instance := []byte("0123456789abcdef")
	var whole []byte
	for n := range uint64(6) {
		whole = (&record{generation: 2, number: n, first: int64(n), data: bytes.Repeat([]byte{byte(n)}, int(n)*300)}).appendTo(whole, instance)
	}
	whole = append(whole, make([]byte, 2*smallHalf-len(whole))...)
	f.Add(uint16(0), []byte{7}, uint16(900), []byte{0xff})
	f.Fuzz(func(t *testing.T, at uint16, patch []byte, at2 uint16, patch2 []byte) {
		b := bytes.Clone(whole)
		copy(b[int(at)%len(b):], patch)
		copy(b[int(at2)%len(b):], patch2)
		p, err := scanJournal(b, journalRef{Generation: 2, Half: smallHalf, Open: true}, instance)
		var d *damage
		assert.Must(t, err == nil || errors.As(err, &d), "%v", err)
		if err == nil {
			for first, data := range p.each {
				assert.Must(t, bytes.Equal(data, bytes.Repeat([]byte{byte(first)}, int(first)*300)), "record %d is not what was written", first)
			}
		}
	})
}
