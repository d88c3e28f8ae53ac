package postmortem

import "slices"

// textBlock is how many bytes of texts are kept together.
const textBlock = 1 << 15

// texts are strings in blocks of bytes, in the order in which they were put: the garbage collector looks at a block
// once, and at nothing in it.
type texts struct {
	blocks []block // the oldest first
	end    uint64  // where the next text is put
}

// block is a part of the texts. Its bytes begin at a place, which rises from block to block.
type block struct {
	from  uint64
	bytes []byte // never grown beyond their capacity
}

// put keeps parts one behind the other and returns where they begin.
func (t *texts) put(parts ...string) (at uint64) {
	need := 0
	for _, part := range parts {
		need += len(part)
	}
	last := len(t.blocks) - 1
	if last < 0 || len(t.blocks[last].bytes)+need > cap(t.blocks[last].bytes) {
		if last >= 0 {
			t.end = t.blocks[last].from + uint64(cap(t.blocks[last].bytes))
		}
		t.blocks = append(t.blocks, block{t.end, make([]byte, 0, max(textBlock, need))})
		last++
	}
	at = t.end
	b := &t.blocks[last].bytes
	for _, part := range parts {
		*b = append(*b, part...)
	}
	t.end += uint64(need)
	return at
}

// get returns n bytes from a place on. They are not to be kept.
func (t *texts) get(at uint64, n uint32) []byte {
	if n == 0 {
		return nil
	}
	i, found := slices.BinarySearchFunc(t.blocks, at, func(b block, at uint64) int {
		if b.from < at {
			return -1
		}
		return int(min(b.from-at, 1))
	})
	if !found {
		i--
	}
	b := &t.blocks[i]
	return b.bytes[at-b.from:][:n]
}

// has reports whether these parts stand at that place.
func (t *texts) has(at uint64, sizes []uint32, parts ...string) bool {
	for i, part := range parts {
		if int(sizes[i]) != len(part) || string(t.get(at, sizes[i])) != part {
			return false
		}
		at += uint64(sizes[i])
	}
	return true
}

// forget drops the blocks that end at or before a place.
func (t *texts) forget(before uint64) {
	n := 0
	for n < len(t.blocks) && t.blocks[n].from+uint64(cap(t.blocks[n].bytes)) <= before {
		n++
	}
	t.blocks = slices.Delete(t.blocks, 0, n)
}
