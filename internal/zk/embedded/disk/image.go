package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
)

// bbolt's format (its internal/common has the same as structs): pages of a fixed size, the first two of which are meta pages that are
// written in turns. A page begins with its number (8 bytes), its kind (2), the number of its elements (2) and how many more
// pages it takes (4). Elements are 16 bytes; they point to keys and values by distances from themselves. A bucket's value is its
// root page and a sequence number; a root of 0 means that the bucket's only page is inline, behind these. Numbers are in the
// machine's own byte order.
const (
	pageSize   = 4096
	headerSize = 16

	kindBranch = 0x01
	kindLeaf   = 0x02
	kindMeta   = 0x04

	metaMagic   = 0xED0CDAED
	metaVersion = 2
	noFreelist  = ^uint64(0)

	elementBucket = 0x01

	// maxDepth is far above what any file has (the pages of a branch hold over a hundred others).
	maxDepth = 24
	// maxOverflow bounds the memory for one page. This package writes none that overflows.
	maxOverflow = 255
)

var native = binary.NativeEndian

// image reads a bbolt file that is not written to meanwhile.
type image struct {
	r    io.ReaderAt
	meta meta
	seen []uint64 // a bit for each page that was read
	bufs [maxDepth][]byte
}

type meta struct{ root, pages, tx uint64 }

// openImage reads the meta pages. Both must be whole: a sector is written whole or not at all, so no crash leaves a half one.
func openImage(r io.ReaderAt, size int64) (*image, error) {
	im := &image{r: r}
	if size == 0 {
		return nil, damaged("the file is empty")
	}
	if size < 4*pageSize {
		return nil, damaged("the file has %d bytes, a store has at least %d", size, 4*pageSize)
	}
	for i := range uint64(2) {
		m, err := im.readMeta(i)
		if err != nil {
			return nil, err
		}
		if i == 0 || m.tx > im.meta.tx {
			im.meta = m
		}
	}
	if m := im.meta; m.pages < 4 || m.root < 2 || m.root >= m.pages {
		return nil, damaged("meta page: root page %d of %d pages", m.root, m.pages)
	}
	if im.meta.pages > uint64(size)/pageSize {
		return nil, damaged("the file was cut off: it has %d bytes, and the meta page speaks of %d pages of %d", size, im.meta.pages, pageSize)
	}
	im.seen = make([]uint64, im.meta.pages/64+1)
	return im, nil
}

func (im *image) readMeta(i uint64) (meta, error) {
	var b [headerSize + 64]byte
	if err := im.read(b[:], int64(i)*pageSize); err != nil {
		return meta{}, err
	}
	body := b[headerSize:]
	sum := fnv.New64a()
	sum.Write(body[:56])
	switch {
	case native.Uint32(body) != metaMagic:
		return meta{}, damaged("meta page %d: this is no bbolt file", i)
	case native.Uint64(body[56:]) != sum.Sum64():
		return meta{}, damaged("meta page %d does not match its checksum", i)
	case native.Uint32(body[4:]) != metaVersion || native.Uint32(body[8:]) != pageSize:
		return meta{}, damaged("meta page %d: bbolt version %d with pages of %d bytes", i, native.Uint32(body[4:]), native.Uint32(body[8:]))
	case native.Uint64(b[:]) != i || native.Uint16(b[8:]) != kindMeta:
		return meta{}, damaged("meta page %d: says that it is page %d of kind %#x", i, native.Uint64(b[:]), native.Uint16(b[8:]))
	}
	return meta{root: native.Uint64(body[16:]), pages: native.Uint64(body[40:]), tx: native.Uint64(body[48:])}, nil
}

// read fills b. A file that ends before is damaged; anything else is the medium's failure.
func (im *image) read(b []byte, at int64) error {
	n, err := im.r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return damaged("the file ends within page %d", at/pageSize)
	}
	return err
}

// entry is one key of a bucket. Key and value are valid until visit returns.
type entry struct {
	bucket     bool
	key, value []byte
}

// root visits the top-level entries.
func (im *image) root(visit func(entry) error) error {
	return im.tree(im.meta.root, nil, nil, 0, visit)
}

// bucket visits the entries of the bucket whose value is given, in order.
func (im *image) bucket(value []byte, visit func(entry) error) error {
	if len(value) < 16 || native.Uint64(value[8:]) != 0 {
		return damaged("a bucket's header is %x", value[:min(len(value), 16)])
	}
	if root := native.Uint64(value); root != 0 {
		return im.tree(root, nil, nil, 0, visit)
	}
	inline := value[16:]
	// An inline page has no number and no overflow; bbolt believes these, too, and frees what they name.
	if len(inline) < headerSize || native.Uint64(inline) != 0 || native.Uint16(inline[8:]) != kindLeaf || native.Uint32(inline[12:]) != 0 {
		return damaged("an inline bucket has no leaf")
	}
	err := leaf(inline, nil, nil, visit)
	var d *placeless
	if errors.As(err, &d) {
		return damaged("an inline bucket: %s", d.what)
	}
	return err
}

// tree visits the entries below page id, whose keys must lie in [low, high); nil is no bound.
func (im *image) tree(id uint64, low, high []byte, depth int, visit func(entry) error) error {
	if depth == maxDepth {
		return damaged("page %d: %d levels of pages above it", id, depth)
	}
	b, err := im.page(id, depth)
	if err != nil {
		return err
	}
	switch kind := native.Uint16(b[8:]); kind {
	case kindLeaf:
		err = leaf(b, low, high, visit)
	case kindBranch:
		err = im.branch(b, low, high, depth, visit)
	default:
		return damaged("page %d: of kind %#x instead of a branch or a leaf", id, kind)
	}
	var d *placeless
	if errors.As(err, &d) {
		return damaged("page %d: %s", id, d.what)
	}
	return err
}

// placeless is damage within a page, before it is known which one.
type placeless struct{ what string }

func (p *placeless) Error() string { return p.what }

// page reads a page, with those that it overflows into. Each page may be read once: it belongs to one place.
func (im *image) page(id uint64, depth int) ([]byte, error) {
	if id < 2 || id >= im.meta.pages {
		return nil, damaged("page %d is referred to, of %d", id, im.meta.pages)
	}
	b := im.bufs[depth]
	if b == nil {
		b = make([]byte, pageSize)
		im.bufs[depth] = b
	}
	b = b[:pageSize]
	if err := im.read(b, int64(id)*pageSize); err != nil {
		return nil, err
	}
	overflow := uint64(native.Uint32(b[12:]))
	if got := native.Uint64(b); got != id {
		return nil, damaged("page %d: says that it is page %d", id, got)
	}
	if overflow > maxOverflow || id+overflow >= im.meta.pages {
		return nil, damaged("page %d: %d more pages belong to it", id, overflow)
	}
	for p := id; p <= id+overflow; p++ {
		if im.seen[p/64]&(1<<(p%64)) != 0 {
			return nil, damaged("page %d is used twice", p)
		}
		im.seen[p/64] |= 1 << (p % 64)
	}
	if overflow > 0 {
		b = append(b, make([]byte, overflow*pageSize)...)
		im.bufs[depth] = b
		if err := im.read(b[pageSize:], int64(id+1)*pageSize); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// span is b[from : from+n], if it is there.
func span(b []byte, from, n uint64) ([]byte, bool) {
	if from > uint64(len(b)) || n > uint64(len(b))-from {
		return nil, false
	}
	return b[from : from+n], true
}

// inOrder says whether key follows the one before it and lies in [low, high).
func inOrder(key, before, low, high []byte) bool {
	return len(key) > 0 && (before == nil || bytes.Compare(before, key) < 0) &&
		(low == nil || bytes.Compare(low, key) <= 0) && (high == nil || bytes.Compare(key, high) < 0)
}

func leaf(b, low, high []byte, visit func(entry) error) error {
	var before []byte
	for i := range uint64(native.Uint16(b[10:])) {
		at := headerSize + 16*i
		e, ok := span(b, at, 16)
		if !ok {
			return &placeless{"more elements than fit"}
		}
		flags, pos, keyLen, valueLen := native.Uint32(e), uint64(native.Uint32(e[4:])), uint64(native.Uint32(e[8:])), uint64(native.Uint32(e[12:]))
		key, ok := span(b, at+pos, keyLen)
		value, ok2 := span(b, at+pos+keyLen, valueLen)
		if !ok || !ok2 || flags&^elementBucket != 0 {
			return &placeless{"an element that leads out of the page, or of an unknown kind"}
		}
		if !inOrder(key, before, low, high) {
			return &placeless{"keys out of order"}
		}
		before = key
		if err := visit(entry{bucket: flags == elementBucket, key: key, value: value}); err != nil {
			return err
		}
	}
	return nil
}

func (im *image) branch(b, low, high []byte, depth int, visit func(entry) error) error {
	count := uint64(native.Uint16(b[10:]))
	if count == 0 {
		return &placeless{"a branch without elements"}
	}
	keyAt := func(i uint64) ([]byte, uint64, bool) {
		at := headerSize + 16*i
		e, ok := span(b, at, 16)
		if !ok {
			return nil, 0, false
		}
		key, ok := span(b, at+uint64(native.Uint32(e)), uint64(native.Uint32(e[4:])))
		return key, native.Uint64(e[8:]), ok
	}
	key, child, ok := keyAt(0)
	var before []byte
	for i := range count {
		if !ok {
			return &placeless{"an element that leads out of the page"}
		}
		if !inOrder(key, before, low, high) {
			return &placeless{"keys out of order"}
		}
		next, nextChild, nextOK := high, uint64(0), true
		if i+1 < count {
			next, nextChild, nextOK = keyAt(i + 1)
		}
		if nextOK {
			if err := im.tree(child, key, next, depth+1, visit); err != nil {
				return err
			}
		}
		before, key, child, ok = key, next, nextChild, nextOK
	}
	return nil
}
