package disk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// JournalPath is the file of the journal of the store in path. It is there while the store is open, and after a crash.
func JournalPath(path string) string { return path + journalSuffix }

const journalSuffix = "-journal"

// The journal has two halves, which are used in turns: each generation of records begins at the start of a half. A record
// begins at the start of a sector, so that no write touches a sector of the record before it. What lies behind the last
// record of a generation is zeros, or records of an older generation.
const (
	// journalHalf is how much is appended before the store's file takes it over, which takes some milliseconds.
	journalHalf = 1 << 20
	sector      = 512
	// journalShare is the share of a half above which a batch goes to the store's file at once.
	journalShare = 4
)

// record is a batch in the journal, or the beginning of a generation: that is record 0, and has no data.
type record struct {
	generation, number uint64
	first              int64  // zxid of the batch's first transaction
	data               []byte // the batch's sealed chunks
}

// recordHead is the checksum (4 bytes), the data's length (4), the generation, the number and the first zxid.
const recordHead = 4 + 4 + 8 + 8 + 8

// recordSize is what a record takes in the journal.
func recordSize(data int) int64 { return (recordHead + int64(data) + sector - 1) / sector * sector }

// appendTo appends the record with its padding. The checksum is over the store's instance and all that follows it.
func (r *record) appendTo(b, instance []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.data)))
	b = binary.BigEndian.AppendUint64(b, r.generation)
	b = binary.BigEndian.AppendUint64(b, r.number)
	b = binary.BigEndian.AppendUint64(b, uint64(r.first))
	b = append(b, r.data...)
	binary.BigEndian.PutUint32(b[start:], journalSum(instance, b[start+4:]))
	return append(b, make([]byte, int(recordSize(len(r.data)))-(len(b)-start))...)
}

func journalSum(instance, b []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, instance), castagnoli, b)
}

// readRecord reads the record that b begins with, if there is one.
func readRecord(b, instance []byte) (r record, ok bool) {
	if len(b) < recordHead {
		return record{}, false
	}
	size := int64(binary.BigEndian.Uint32(b[4:]))
	if recordSize(int(size)) > int64(len(b)) {
		return record{}, false
	}
	r = record{
		generation: binary.BigEndian.Uint64(b[8:]), number: binary.BigEndian.Uint64(b[16:]),
		first: int64(binary.BigEndian.Uint64(b[24:])), data: b[recordHead : recordHead+size],
	}
	// A generation is never 0, so free space needs no checksum.
	return r, r.generation != 0 && binary.BigEndian.Uint32(b) == journalSum(instance, b[4:recordHead+size])
}

// journalFile is what a journal is written to. Tests put a disk that fails in its place.
type journalFile interface {
	io.WriterAt
	io.Closer
	// Sync returns when all that was written is on the disk.
	Sync() error
}

// syncedFile syncs the data of a file and not its times, which saves the file system a transaction of its own.
type syncedFile struct{ *os.File }

// journal is written by its store, under the store's mutex.
type journal struct {
	file     journalFile
	path     string
	made     os.FileInfo // the file
	instance []byte
	half     int64

	open       bool // the store's file refers to this generation: it may be appended to
	generation uint64
	number     uint64 // of the next record
	at         int64  // where it goes in its half
	buf        []byte
}

// make makes the file anew. It has no generation that is in force, and nor has one that an earlier life left.
func (j *journal) make() (err error) {
	if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := filepath.Dir(j.path)
	f, err := os.CreateTemp(dir, newPattern) // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	// Zeros are written, not only allocated: so the sync of a record need not change what the file system knows of the file.
	if _, err := f.Write(make([]byte, 2*j.half)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if j.made, err = f.Stat(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), j.path); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	j.file = syncedFile{f}
	return nil
}

// close removes the journal when the store's file does not refer to it. What is there is of no generation in force then, so it
// does no harm when it stays. Another store may have come to its place meanwhile: its journal stays.
func (j *journal) close() {
	if j.file == nil {
		return
	}
	_ = j.file.Close() // every record was synced
	if now, err := os.Lstat(j.path); err == nil && !j.open && os.SameFile(j.made, now) {
		_ = os.Remove(j.path)
	}
}

// ref is what the store's file has to say about the journal.
func (j *journal) ref() journalRef {
	return journalRef{Generation: j.generation, Half: j.half, Open: j.open}
}

// takes says whether the journal is for batches of that size.
func (j *journal) takes(data int) bool { return recordSize(data) <= j.half/journalShare }

// fits says whether there is room for a batch in the present generation.
func (j *journal) fits(data int) bool { return j.open && j.at+recordSize(data) <= j.half }

// begin makes the beginning of the next generation durable, in the half that the present one does not use. The present one
// stays in force until the store's file refers to the next.
func (j *journal) begin() error {
	j.generation, j.number, j.at, j.open = j.generation+1, 0, 0, true
	return j.append(0, nil)
}

// append makes a record durable. After an error the journal must not be appended to.
func (j *journal) append(first int64, data []byte) error {
	r := record{j.generation, j.number, first, data}
	j.buf = r.appendTo(j.buf[:0], j.instance)
	if _, err := j.file.WriteAt(j.buf, int64(j.generation%2)*j.half+j.at); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.number++
	j.at += int64(len(j.buf))
	return nil
}

// pending are the batches that the journal has and the store's file lacks, in order.
type pending struct {
	batches []pendingBatch
	data    []byte
}

type pendingBatch struct {
	first int64 // zxid
	end   int   // of its chunks in data, which begin where those of the batch before end
}

func (p *pending) add(first int64, sealed []byte) {
	p.data = append(p.data, sealed...)
	p.batches = append(p.batches, pendingBatch{first, len(p.data)})
}

// after are the batches behind a zxid.
func (p *pending) after(last int64) (rest pending) {
	for first, sealed := range p.each {
		if first > last {
			rest.add(first, sealed)
		}
	}
	return rest
}

func (p *pending) clear() { p.batches, p.data = p.batches[:0], p.data[:0] }

// each yields the first zxid of each batch and its sealed chunks.
func (p *pending) each(yield func(int64, []byte) bool) {
	start := 0
	for _, b := range p.batches {
		if !yield(b.first, p.data[start:b.end]) {
			return
		}
		start = b.end
	}
}
