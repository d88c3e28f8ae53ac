package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// readJournal gives the batches of the journal beside the store in path, as the store's file refers to it. Some of them may be
// in the store's file, too.
func readJournal(path string, ref journalRef, instance []byte) (*pending, error) {
	f, err := os.Open(JournalPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		if ref.Open {
			return nil, damaged("%s is missing, which has what was written last", filepath.Base(JournalPath(path)))
		}
		return &pending{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != 2*ref.Half {
		if ref.Open {
			return nil, damaged("the journal has %d bytes instead of %d", info.Size(), 2*ref.Half)
		}
		return &pending{}, nil // it was not made to its end, or by another release
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, err
	}
	return scanJournal(b, ref, instance)
}

// scanJournal is readJournal for the contents of both halves.
//
// Each record was durable before the next one was written, and a generation's beginning before the store's file referred to
// it. So the batch that a crash has cut off can only be the last one: one that is broken with another of its generation
// behind it is damage. And a batch of a later generation shows that the store's file has lost a write.
func scanJournal(b []byte, ref journalRef, instance []byte) (*pending, error) {
	halves := [2][]byte{b[:ref.Half], b[ref.Half:]}
	for _, half := range halves {
		for r := range recordsFrom(half, 0, instance) {
			if r.generation > ref.Generation && r.number > 0 {
				return nil, damaged("the journal has generation %d, and the store refers to %d: a write was lost, or this is an older copy of the store", r.generation, ref.Generation)
			}
		}
	}
	p := &pending{}
	if !ref.Open {
		return p, nil
	}
	half, at := halves[ref.Generation%2], 0
	for n := uint64(0); ; n++ {
		r, ok := readRecord(half[at:], instance)
		if !ok || r.generation != ref.Generation || r.number != n {
			break
		}
		if n > 0 {
			p.add(r.first, r.data)
		}
		at += int(recordSize(len(r.data)))
	}
	if at == 0 {
		return nil, damaged("the journal lacks the beginning of generation %d, to which the store refers", ref.Generation)
	}
	for r := range recordsFrom(half, at, instance) {
		if r.generation == ref.Generation {
			return nil, damaged("journal: record %d is there, and one before it is not", r.number)
		}
	}
	return p, nil
}

// recordsFrom yields every record that begins at a sector from at on.
func recordsFrom(half []byte, at int, instance []byte) func(yield func(record) bool) {
	return func(yield func(record) bool) {
		for ; at < len(half); at += sector {
			if r, ok := readRecord(half[at:], instance); ok && !yield(r) {
				return
			}
		}
	}
}
