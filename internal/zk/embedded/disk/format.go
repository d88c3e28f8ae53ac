package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// formatVersion is what this program writes, and the newest that it reads. A version that older programs can still read
// writes their version as the oldest reader.
//
// Format 2 brought the journal. A store of format 1 has none, and becomes one of format 2 when it is opened.
const formatVersion uint32 = 2

// The buckets and records. The bucket of records and the form of the format record stay as they are in every version.
var (
	bucketRecords = []byte("lockkeeper")
	keyFormat     = []byte("format")
	keyIdentity   = []byte("identity")
	keyProgress   = []byte("progress")
	keyJournal    = []byte("journal")
)

func logName(generation uint64) string  { return fmt.Sprintf("log-%016x", generation) }
func snapName(generation uint64) string { return fmt.Sprintf("snap-%016x", generation) }

// The records have a fixed size, in big endian.
type format struct{ Version, OldestReader uint32 }

type identity struct {
	Instance [16]byte // of this store; part of every checksum, so that no page of another store is taken for one of this
	Secret   [32]byte
	Created  int64 // milliseconds since the Unix epoch
}

// progress is where the store ends. It is written with every commit.
type progress struct {
	Tx      uint64 // bbolt's number of the transaction that wrote this
	Written int64  // when, in milliseconds since the Unix epoch

	Last    int64  // zxid of the last transaction
	Chain   uint32 // the log's checksum so far
	Segment uint64 // the newest segment
	// The log behind Whole.
	LogBytes, LogTxns int64

	Whole snapshot // the newest whole snapshot; of generation 0 as long as there is none
	Under snapshot // the one under way; of generation 0 when there is none
}

// journalRef is what the store's file says about its journal. A store of format 1 has no such record.
type journalRef struct {
	Generation uint64 // the newest one that was opened
	Half       int64  // bytes of each of the journal's halves
	Open       bool   // the generation may have batches that the store's file lacks
}

// snapshot is a snapshot, and the log's state when it was begun, with which the log behind it starts.
type snapshot struct {
	Generation uint64
	Zxid       int64
	Pieces     uint32
	Bytes      int64
	Chain      uint32

	LogChain          uint32
	LogBytes, LogTxns int64 // behind the snapshot before it
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Each record ends with a checksum over the store's instance (none for the format and for the identity, which has it), the
// record's key and the record.

func seal(instance, key []byte, record any) []byte {
	b, err := binary.Append(nil, binary.BigEndian, record)
	if err != nil {
		panic(fmt.Sprintf("disk: a record of no fixed size: %v", err))
	}
	return binary.BigEndian.AppendUint32(b, recordSum(instance, key, b))
}

func unseal(instance, key, b []byte, record any) error {
	if want := binary.Size(record) + 4; len(b) != want {
		return damaged("record %q has %d bytes instead of %d", key, len(b), want)
	}
	b, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if sum != recordSum(instance, key, b) {
		return damaged("record %q does not match its checksum", key)
	}
	if _, err := binary.Decode(b, binary.BigEndian, record); err != nil {
		return damaged("record %q: %v", key, err)
	}
	return nil
}

func recordSum(instance, key, b []byte) uint32 {
	return crc32.Update(crc32.Update(crc32.Update(0, castagnoli, instance), castagnoli, key), castagnoli, b)
}

// Batches and pieces are cut into chunks. A chunk's value is a checksum over the chunk before it, its key and its data, and
// the data.
const (
	// chunkData lets four chunks into a page: 4096 bytes less the page's header of 16, each with 16 for its place, 12 for
	// its key and 4 for the checksum. bbolt does not split pages of up to four entries, so a page never needs a second one.
	chunkData = (pageSize-16)/4 - 16 - 12 - 4
	// chunkCost is what a chunk takes in its page, beside its data.
	chunkCost = 16 + 12 + 4
)

// logKey is the key of a chunk of the batch whose first transaction is first.
func logKey(first int64, chunk uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(make([]byte, 0, 12), uint64(first)), chunk)
}

// logKeys gives the keys of the chunks of the batch whose first transaction is first.
func logKeys(first int64) func(chunk uint32) []byte {
	return func(chunk uint32) []byte { return logKey(first, chunk) }
}

// snapKey is the key of a chunk of a piece.
func snapKey(piece, chunk uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(make([]byte, 0, 8), piece), chunk)
}

func chunkSum(chain uint32, key, data []byte) uint32 {
	return crc32.Update(crc32.Update(chain, castagnoli, key), castagnoli, data)
}

// logSeed is what the checksums of a new store's log begin with, and snapSeed those of a snapshot.
func (id *identity) logSeed() uint32 { return recordSum(id.Instance[:], []byte("log"), nil) }

func (id *identity) snapSeed(generation uint64, zxid int64) uint32 {
	name := binary.BigEndian.AppendUint64([]byte(snapName(generation)), uint64(zxid))
	return recordSum(id.Instance[:], name, nil)
}
