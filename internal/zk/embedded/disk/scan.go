package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// contents are what a file says about itself, and where the rest is.
type contents struct {
	image    *image
	format   format
	identity identity
	progress progress
	journal  journalRef
	pending  *pending          // what the journal has; nil for nothing
	end      progress          // where the store ends with it: scan sets it
	buckets  map[string][]byte // the values of the top-level buckets, by name
}

// readStore reads the records of the store in path, of which r is the file, and its journal.
func readStore(path string, r io.ReaderAt, size int64) (*contents, error) {
	c, err := readContents(r, size)
	if err != nil {
		return nil, err
	}
	c.pending, err = readJournal(path, c.journal, c.identity.Instance[:])
	return c, err
}

// readContents reads the records.
func readContents(r io.ReaderAt, size int64) (*contents, error) {
	im, err := openImage(r, size)
	if err != nil {
		return nil, err
	}
	c := &contents{image: im, buckets: make(map[string][]byte)}
	err = im.root(func(e entry) error {
		if !e.bucket {
			return damaged("%q is no bucket", e.key)
		}
		c.buckets[string(e.key)] = bytes.Clone(e.value)
		return nil
	})
	if err != nil {
		return nil, err
	}
	home, ok := c.buckets[string(bucketRecords)]
	if !ok {
		return nil, damaged("there is no bucket %q: this is no store", bucketRecords)
	}
	records := make(map[string][]byte)
	err = im.bucket(home, func(e entry) error {
		if e.bucket {
			return damaged("record %q is a bucket", e.key)
		}
		records[string(e.key)] = bytes.Clone(e.value)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := unseal(nil, keyFormat, records[string(keyFormat)], &c.format); err != nil {
		return nil, err
	}
	if c.format.OldestReader > formatVersion {
		return nil, &newer{c.format.Version, c.format.OldestReader}
	}
	if err := unseal(nil, keyIdentity, records[string(keyIdentity)], &c.identity); err != nil {
		return nil, err
	}
	if err := unseal(c.identity.Instance[:], keyProgress, records[string(keyProgress)], &c.progress); err != nil {
		return nil, err
	}
	if b, ok := records[string(keyJournal)]; ok {
		if err := unseal(c.identity.Instance[:], keyJournal, b, &c.journal); err != nil {
			return nil, err
		}
	} else if c.format.Version > 1 {
		return nil, damaged("record %q is missing", keyJournal)
	}
	if c.progress.Tx != im.meta.tx {
		return nil, damaged("the records are of transaction %d, and the meta page of %d: a write was lost", c.progress.Tx, im.meta.tx)
	}
	return c, nil
}

// visitor is given what scan finds; what it is given it must not keep. Both may be nil.
type visitor struct {
	piece func(data []byte) error
	txn   func(zxid int64, data []byte) error
}

// scan reads everything once, the newest whole snapshot and then the log behind it, and holds it against the checksums and
// against where the store says that it ends. It can be called once.
func (c *contents) scan(v visitor) error {
	p := &c.progress
	expected := map[string]bool{string(bucketRecords): true}
	if p.Whole.Generation > 0 {
		expected[snapName(p.Whole.Generation)] = true
		if err := c.scanSnapshot(&p.Whole, v.piece); err != nil {
			return err
		}
	}
	if err := c.scanLog(expected, v.txn); err != nil {
		return err
	}
	if p.Under.Generation > 0 {
		expected[snapName(p.Under.Generation)] = true
		if err := c.scanSnapshot(&p.Under, nil); err != nil {
			return err
		}
	}
	for name := range c.buckets {
		if !expected[name] {
			return damaged("bucket %q has no place in this store", name)
		}
	}
	return nil
}

func (c *contents) scanSnapshot(s *snapshot, piece func([]byte) error) error {
	name := snapName(s.Generation)
	value, ok := c.buckets[name]
	if !ok {
		return damaged("bucket %q is missing", name)
	}
	chain, pieces, chunks, size := c.identity.snapSeed(s.Generation, s.Zxid), uint32(0), uint32(0), int64(0)
	var data []byte
	finish := func() error {
		if piece == nil || pieces == 0 {
			return nil
		}
		return piece(data)
	}
	err := c.image.bucket(value, func(e entry) error {
		part, err := checkChunk(&chain, e)
		if err != nil {
			return err
		}
		switch {
		case bytes.Equal(e.key, snapKey(pieces, 0)):
			if err := finish(); err != nil {
				return err
			}
			pieces, chunks, data = pieces+1, 1, append(data[:0], part...)
		case pieces > 0 && bytes.Equal(e.key, snapKey(pieces-1, chunks)):
			chunks, data = chunks+1, append(data, part...)
		default:
			return damaged("%s: a piece is missing before %x", name, e.key)
		}
		size += int64(len(part)) + chunkCost
		return nil
	})
	if err != nil {
		return err
	}
	if pieces != s.Pieces || chain != s.Chain || size != s.Bytes {
		return damaged("%s: %d pieces of %d bytes in all are there, of %d of %d", name, pieces, size, s.Pieces, s.Bytes)
	}
	return finish()
}

func (c *contents) scanLog(expected map[string]bool, txn func(int64, []byte) error) error {
	p := &c.progress
	s := &logScan{chain: p.Whole.LogChain, next: p.Whole.Zxid + 1, txn: txn}
	c.end = *p
	if p.Segment-p.Whole.Generation >= uint64(len(c.buckets)) {
		return damaged("segments %d to %d of the log, in %d buckets", p.Whole.Generation, p.Segment, len(c.buckets))
	}
	for g := p.Whole.Generation; g <= p.Segment; g++ {
		name := logName(g)
		expected[name] = true
		value, ok := c.buckets[name]
		if !ok {
			return damaged("bucket %q is missing", name)
		}
		if err := c.image.bucket(value, s.chunk); err != nil {
			return err
		}
	}
	if err := s.finish(); err != nil {
		return err
	}
	if s.next-1 != p.Last || s.chain != p.Chain || s.txns != p.LogTxns || s.size != p.LogBytes {
		return damaged("the log ends with transaction %#x instead of %#x, and has %d instead of %d", s.next-1, p.Last, s.txns, p.LogTxns)
	}
	if c.pending == nil {
		return nil
	}
	for first, sealed := range c.pending.each {
		if first <= p.Last { // the store's file took it over
			continue
		}
		for i, value := range chunks(sealed) {
			if err := s.chunk(entry{key: logKey(first, i), value: value}); err != nil {
				return fmt.Errorf("journal: %w", err)
			}
		}
		if err := s.finish(); err != nil {
			return err
		}
	}
	c.end.Last, c.end.Chain, c.end.LogTxns, c.end.LogBytes = s.next-1, s.chain, s.txns, s.size
	return nil
}

// logScan puts batches together from their chunks.
type logScan struct {
	chain  uint32
	next   int64 // the zxid after those of finished batches
	chunks uint32
	batch  []byte // under way when chunks > 0; begins with next
	txns   int64
	size   int64
	txn    func(int64, []byte) error
}

func (s *logScan) chunk(e entry) error {
	part, err := checkChunk(&s.chain, e)
	if err != nil {
		return err
	}
	if s.chunks == 0 || !bytes.Equal(e.key, logKey(s.next, s.chunks)) {
		if err := s.finish(); err != nil {
			return err
		}
		if !bytes.Equal(e.key, logKey(s.next, 0)) {
			return damaged("log: %x where transaction %#x should be", e.key, s.next)
		}
	}
	s.batch = append(s.batch, part...)
	s.chunks++
	s.size += int64(len(part)) + chunkCost
	return nil
}

// finish takes the batch apart: the number of its transactions, and each behind its length.
func (s *logScan) finish() error {
	if s.chunks == 0 {
		return nil
	}
	b := s.batch
	count, n := binary.Uvarint(b)
	for i := uint64(0); i < count && n > 0; i++ {
		b = b[n:]
		var size uint64
		if size, n = binary.Uvarint(b); n <= 0 || size > uint64(len(b)-n) {
			return damaged("log: the batch of transaction %#x is not whole", s.next)
		}
		if s.txn != nil {
			if err := s.txn(s.next, b[n:n+int(size)]); err != nil {
				return err
			}
		}
		s.next++
		s.txns++
		n += int(size)
	}
	if n != len(b) || count == 0 {
		return damaged("log: the batch before transaction %#x is not whole", s.next)
	}
	s.batch, s.chunks = s.batch[:0], 0
	return nil
}

// checkChunk gives a chunk's data, and goes on in the chain of checksums.
func checkChunk(chain *uint32, e entry) ([]byte, error) {
	if e.bucket || len(e.value) < 4 {
		return nil, damaged("the chunk at %x is none", e.key)
	}
	data := e.value[4:]
	sum := chunkSum(*chain, e.key, data)
	if sum != binary.BigEndian.Uint32(e.value) {
		return nil, damaged("the chunk at %x does not match its checksum", e.key)
	}
	*chain = sum
	return data, nil
}
