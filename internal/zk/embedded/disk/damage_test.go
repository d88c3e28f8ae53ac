package disk

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/embedded/state"
)

// patient is a store with a snapshot, segments of the log before and behind an unfinished snapshot, and free pages, as the
// bytes of its file; closed.
func patient(t *testing.T) (*model, []byte) {
	r := newDirectRig(t)
	r.add(200, 300)
	r.snapshot(3, 20_000, 2)
	for range 20 {
		r.add(3, 200)
	}
	r.add(1, 9_000)
	r.snapshot(4, 15_000, 1)
	for range 30 {
		r.add(2, 300)
	}
	r.piece(r.last(), 0, 10_000, 3, false)
	r.add(4, 100)
	r.Store.Close()
	return &r.model, r.bytes()
}

// bytes are what the store uses of its file.
func (r *rig) bytes() []byte {
	r.Helper()
	b := assert.Value(os.ReadFile(r.path))(r)
	im := assert.Value(openImage(bytes.NewReader(b), int64(len(b))))(r)
	return b[:im.meta.pages*pageSize]
}

// ward tries files that something has happened to.
type ward struct {
	*testing.T
	dir                       string
	model                     *model
	whole, damaged, different int
}

func newWard(t *testing.T, m *model) *ward { return &ward{T: t, dir: shm(t), model: m} }

// try opens a file: it has everything that model has, or is refused as damaged. It says which.
func (w *ward) try(b []byte, what string, args ...any) (opened bool) {
	w.Helper()
	path := filepath.Join(w.dir, FileName)
	assert.NoError(w, os.WriteFile(path, b, 0o600))
	s, err := Open(Config{Dir: w.dir})
	if err != nil {
		if w.damaged++; !errors.Is(err, ErrDamaged) {
			w.Errorf(what+": %v", append(args, err)...)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(after, b) {
			w.Errorf(what+": refused, and changed", args...)
		}
		return false
	}
	defer s.Close()
	got, err := load(s)
	if err == nil {
		err = w.model.differs(got)
	}
	if err == nil {
		// It must not break later either, where bbolt follows what was not looked at.
		err = s.Append(embedded.Batch{Txns: txns(s.progress.Last, 3, 500)})
	}
	if err != nil {
		w.different++
		w.Errorf(what+": opened, but %v", append(args, err)...)
	}
	w.whole++
	return true
}

func (w *ward) report() {
	w.Logf("%d opened with everything, %d refused as damaged", w.whole, w.damaged)
}

// times is how often something is tried.
func times(short, long int) int {
	if full() {
		return long
	}
	return short
}

func TestAFileThatWasCutOffIsRefused(t *testing.T) {
	m, b := patient(t)
	w := newWard(t, m)
	steps := times(100, 1500)
	for i := range steps {
		length := len(b) * i / steps
		assert.That(t, !w.try(b[:length], "cut at %d of %d", length, len(b)), "cut at %d of %d, and opened", length, len(b))
	}
	for _, length := range []int{1, pageSize - 1, pageSize, 2*pageSize + 1, len(b) - pageSize, len(b) - 1} {
		assert.That(t, !w.try(b[:length], "cut at %d of %d", length, len(b)), "cut at %d of %d, and opened", length, len(b))
	}
	assert.That(t, w.try(b, "not cut") && w.try(append(bytes.Clone(b), make([]byte, 10_000)...), "longer"), "what is whole was refused")
	w.report()
}

// TestAFileIsRefusedWhenOnlyFreePagesWereCutOff: nothing is missing, but the file was cut, and bbolt maps it as a whole.
func TestAFileIsRefusedWhenOnlyFreePagesWereCutOff(t *testing.T) {
	r := newDirectRig(t)
	for range 10 {
		r.add(1, 100_000)
	}
	r.snapshot(1, 10, 0)
	r.reopen()
	r.Store.Close()
	b := r.bytes()
	w := newWard(t, &r.model)
	for pages := 1; pages < 50; pages++ {
		assert.That(t, !w.try(b[:len(b)-pages*pageSize], "%d pages cut off", pages), "%d pages cut off, and opened", pages)
	}
}

func TestFlippedBitsNeverLoseAnything(t *testing.T) {
	m, b := patient(t)
	w := newWard(t, m)
	rng := rand.New(rand.NewPCG(1, 2))
	for range times(300, 10_000) {
		hurt := bytes.Clone(b)
		at := rng.IntN(len(b))
		if rng.IntN(2) == 0 {
			at = at/pageSize*pageSize + rng.IntN(300) // where the pages' structure is
		}
		at = min(at, len(b)-1)
		bit := byte(1) << rng.IntN(8)
		hurt[at] ^= bit
		w.try(hurt, "byte %d of page %d ^ %#x", at%pageSize, at/pageSize, bit)
	}
	w.report()
	assert.That(t, w.whole != 0 && w.damaged != 0, "the test does not try what it should")
}

// TestAMetaPageThatIsBrokenIsNotPassedOver: bbolt goes on with the other one, which is a batch behind.
func TestAMetaPageThatIsBrokenIsNotPassedOver(t *testing.T) {
	m, b := patient(t)
	w := newWard(t, m)
	for page := range 2 {
		for at := range headerSize + 64 {
			hurt := bytes.Clone(b)
			hurt[page*pageSize+at] ^= 4
			assert.That(t, !w.try(hurt, "byte %d of meta page %d", at, page) || at >= 10 && at < headerSize,
				"opened with byte %d of meta page %d changed", at, page)
		}
	}
	w.report()
}

// TestEveryByteOfTheRecordsIsWatched: they are a small part of a file, which random places rarely hit.
func TestEveryByteOfTheRecordsIsWatched(t *testing.T) {
	m, b := patient(t)
	im := assert.Value(openImage(bytes.NewReader(b), int64(len(b))))(t)
	w := newWard(t, m)
	for at := int(im.meta.root) * pageSize; at < int(im.meta.root+1)*pageSize; at += times(3, 1) {
		hurt := bytes.Clone(b)
		hurt[at] ^= 1 << (at % 8)
		w.try(hurt, "byte %d of the root page", at%pageSize)
	}
	w.report()
}

func TestOverwrittenRangesNeverLoseAnything(t *testing.T) {
	m, b := patient(t)
	w := newWard(t, m)
	rng := rand.New(rand.NewPCG(3, 4))
	for range times(200, 5_000) {
		hurt := bytes.Clone(b)
		at, n := rng.IntN(len(b)), 1+rng.IntN(2*pageSize)
		how := rng.IntN(4)
		if rng.IntN(2) == 0 {
			at, n = at/pageSize*pageSize, pageSize // a page, and exactly that
		}
		part := hurt[at:min(at+n, len(b))]
		switch how {
		case 0:
			clear(part)
		case 1:
			for i := range part {
				part[i] = byte(rng.Uint32())
			}
		case 2:
			for i := range part {
				part[i] = 0xff
			}
		case 3: // another part of the file
			copy(part, b[rng.IntN(len(b)/pageSize)*pageSize:])
		}
		w.try(hurt, "%d bytes from %d of page %d on, way %d", len(part), at%pageSize, at/pageSize, how)
	}
	w.report()
	assert.That(t, w.whole != 0 && w.damaged != 0, "the test does not try what it should")
}

// TestWritesThatWereLostAreNoticed puts back what pages held before: a write that the disk has acknowledged and not done.
func TestWritesThatWereLostAreNoticed(t *testing.T) {
	r := newDirectRig(t)
	var history [][]byte
	var models []model
	keep := func() { history, models = append(history, r.bytes()), append(models, r.model) }
	keep()
	for i := range 40 {
		r.add(1+i%3, 400)
		keep()
		switch i {
		case 10, 25:
			zxid := r.last()
			for piece := range 3 {
				r.piece(zxid, piece, 6_000, 1, piece == 2)
				keep()
			}
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	w := newWard(t, nil)
	pageOf := func(b []byte, id int) []byte {
		if (id+1)*pageSize > len(b) {
			return make([]byte, pageSize) // it was not there yet
		}
		return b[id*pageSize : (id+1)*pageSize]
	}
	for range times(200, 10_000) {
		n := 1 + rng.IntN(len(history)-1)
		hurt := bytes.Clone(history[n])
		w.model = &models[n]
		old := max(0, n-1-rng.IntN(8))
		lost := 0
		for range 1 + rng.IntN(3) {
			id := 2 + rng.IntN(len(hurt)/pageSize-2)
			if was := pageOf(history[old], id); !bytes.Equal(was, pageOf(hurt, id)) {
				copy(hurt[id*pageSize:], was)
				lost++
			}
		}
		if lost > 0 {
			w.try(hurt, "after batch %d, %d pages as after %d", n, lost, old)
		}
	}
	for n := 1; n < len(history); n++ { // all but the meta pages
		for old := max(0, n-times(1, 3)); old < n; old++ {
			hurt := bytes.Clone(history[n])
			copy(hurt[2*pageSize:], history[old][2*pageSize:])
			w.model = &models[n]
			w.try(hurt, "after batch %d, everything as after %d", n, old)
		}
	}
	w.report()
	// The one that cannot be told from a crash before it: the newest meta page.
	for n := 2; n < len(history); n++ {
		for id := range 2 {
			hurt := bytes.Clone(history[n])
			copy(hurt[id*pageSize:], pageOf(history[n-2], id))
			newest := assert.Value(openImage(bytes.NewReader(hurt), int64(len(hurt))))(t)
			w.model = &models[n]
			if was, _ := openImage(bytes.NewReader(history[n]), int64(len(history[n]))); newest.meta.tx != was.meta.tx {
				w.model = &models[n-1]
			}
			assert.That(t, w.try(hurt, "after batch %d, meta page %d as after %d", n, id, n-2),
				"after batch %d, meta page %d as after %d: refused", n, id, n-2)
		}
	}
}

// TestABatchOfAnotherTimelineIsNoticed: a store and an older copy of it that were both written to. Their pages fit each other,
// down to the checksum of the chunk itself.
func TestABatchOfAnotherTimelineIsNoticed(t *testing.T) {
	r := newDirectRig(t)
	r.add(5, 100)
	var copied bytes.Buffer
	_, err := r.Backup(t.Context(), &copied)
	assert.NoError(t, err)
	_, other := restored(t, copied.Bytes())
	there := txn(6, 100)
	there.Time++
	assert.NoError(t, other.Append(embedded.Batch{Txns: []*state.Txn{there}}))
	r.add(1, 100)
	r.add(1, 100)
	assert.NoError(t, other.seal())
	var foreign []byte
	log := []byte(logName(0))
	err = other.db.View(func(tx *bolt.Tx) error {
		foreign = bytes.Clone(tx.Bucket(log).Get(logKey(6, 0)))
		return nil
	})
	assert.Must(t, err == nil && foreign != nil, "%v", err)
	p := r.progress
	assert.NoError(t, r.commit(&p, func(tx *bolt.Tx) error { return tx.Bucket(log).Put(logKey(6, 0), foreign) }))
	r.Store.Close()
	_, err = Open(r.config)
	assert.That(t, errors.Is(err, ErrDamaged), "opened with %v", err)
}

func TestDamageIsSaidWithItsPlaceAndWhatToDo(t *testing.T) {
	_, b := patient(t)
	c, err := readContents(bytes.NewReader(b), int64(len(b)))
	assert.NoError(t, err)
	page := int(native.Uint64(c.buckets[snapName(c.progress.Whole.Generation)]))
	b[page*pageSize+8] ^= 0x40 // its kind
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	assert.NoError(t, os.WriteFile(path, b, 0o600))
	_, err = Open(Config{Dir: dir})
	for _, want := range []string{path, "damaged", "page", "gateway restore"} {
		assert.That(t, err != nil && strings.Contains(err.Error(), want), "it does not say %q: %v", want, err)
	}
	t.Log(err)
}

func FuzzAnyFileIsReadOrRefused(f *testing.F) {
	dir := f.TempDir()
	s := assert.Value(Open(Config{Dir: dir}))(f)
	assert.NoError(f, s.Append(embedded.Batch{Txns: txns(0, 20, 500), Piece: &embedded.Piece{First: true, Data: make([]byte, 3000)}}))
	s.Close()
	b := assert.Value(os.ReadFile(s.path))(f)
	whole := b[:16*pageSize]
	f.Add(uint16(0), uint16(16), []byte{7}, uint16(3), uint16(0), []byte{0xff})
	// Patches, not files: mutating 64 kB takes far longer than reading them.
	f.Fuzz(func(t *testing.T, page, at uint16, patch []byte, page2, at2 uint16, patch2 []byte) {
		b := bytes.Clone(whole)
		copy(b[int(page)%16*pageSize+int(at)%pageSize:], patch)
		copy(b[int(page2)%16*pageSize+int(at2)%pageSize:], patch2)
		c, err := readContents(bytes.NewReader(b), int64(len(b)))
		if err == nil {
			err = c.scan(visitor{})
		}
		var d *damage
		var n *newer
		assert.Must(t, err == nil || errors.As(err, &d) || errors.As(err, &n), "%v", err)
	})
}

// childEnv makes the test binary another program: the name of a child, and the store's directory behind a colon.
const childEnv = "LOCKKEEPER_DISK_CHILD"

// children are those programs.
var children = map[string]func(dir string) error{"append": appendChild, "full": fullChild, "faults": faultsChild}

func TestMain(m *testing.M) {
	name, dir, ok := strings.Cut(os.Getenv(childEnv), ":")
	if !ok {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // strace counts the system calls of each thread for itself
	if err := children[name](dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is the command for one, run by what stands before it, if anything.
func child(t *testing.T, name, dir string, before ...string) *exec.Cmd {
	t.Helper()
	self := assert.Value(os.Executable())(t)
	argv := append(before, self)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"="+name+":"+dir)
	return cmd
}

// appendChild appends for ever and prints each zxid once Append has returned. Snapshots are due all the time.
func appendChild(dir string) error {
	s, err := Open(Config{Dir: dir, SnapshotBytes: 100_000})
	if err != nil {
		return err
	}
	last, pieces, zxid := s.progress.Last, 0, int64(0)
	for {
		n := 1 + int(last%7)
		b := embedded.Batch{Txns: txns(last, n, int(last*37%1500))}
		if pieces > 0 || s.SnapshotDue() {
			if pieces == 0 {
				zxid = last
			}
			b.Piece = &embedded.Piece{Zxid: zxid, Data: bytes.Repeat([]byte{byte(pieces), byte(zxid)}, 5_000), First: pieces == 0, Last: pieces == 4}
			pieces = (pieces + 1) % 5
		}
		if err := s.Append(b); err != nil {
			return err
		}
		last += int64(n)
		fmt.Println(last)
	}
}

func TestWhatWasAcknowledgedSurvivesKill9(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(7, 8))
	acknowledged, snapshots, between := int64(0), 0, 0
	var lastSnapshot int64
	for range times(25, 300) {
		cmd := child(t, "append", dir)
		out := assert.Value(cmd.StdoutPipe())(t)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		p := assert.Value(childproc.Start(cmd))(t)
		before := acknowledged
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil || n <= acknowledged {
				t.Fatalf("%q after %d", lines.Text(), acknowledged)
			}
			if before == acknowledged { // it is at work: kill it within the next appends
				time.AfterFunc(time.Duration(rng.IntN(60_000))*time.Microsecond, func() { cmd.Process.Kill() })
			}
			acknowledged = n
		}
		<-p.Done()
		assert.Must(t, stderr.Len() <= 0 && before != acknowledged, "after %d: %s", acknowledged, stderr.String())
		last, snapshot := readBack(t, dir)
		// The batch whose acknowledgement did not get out may be there.
		assert.Must(t, last >= acknowledged && last <= acknowledged+7, "acknowledged up to %d, and %d is there", acknowledged, last)
		if last > acknowledged {
			between++
		}
		acknowledged = last
		if snapshot != lastSnapshot {
			snapshots, lastSnapshot = snapshots+1, snapshot
		}
	}
	t.Logf("%d transactions; new snapshots after %d kills, a batch more than acknowledged after %d", acknowledged, snapshots, between)
}

// readBack opens a store, checks that everything in it is as appendChild writes it, and tells its last zxid and its snapshot's.
func readBack(t *testing.T, dir string) (last, snapshot int64) {
	t.Helper()
	s, err := Open(Config{Dir: dir})
	assert.NoError(t, err)
	defer s.Close()
	snapshot = s.progress.Whole.Zxid
	last = snapshot
	pieces := 0
	err = s.Load(embedded.Recovery{
		Piece: func(data []byte) error {
			if !bytes.Equal(data, bytes.Repeat([]byte{byte(pieces), byte(snapshot)}, 5_000)) {
				return fmt.Errorf("piece %d of the snapshot of %d is not what was stored", pieces, snapshot)
			}
			pieces++
			return nil
		},
		Txn: func(got *state.Txn) error {
			last++
			if size := len(got.Ops[0].Data); !bytes.Equal(got.AppendTo(nil), txn(last, size).AppendTo(nil)) {
				return fmt.Errorf("transaction %d is not what was stored", last)
			}
			return nil
		},
	})
	assert.NoError(t, err)
	assert.Must(t, snapshot <= 0 || pieces == 5, "%d pieces", pieces)
	return last, snapshot
}
