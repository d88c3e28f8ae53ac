package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrFrameTooLarge reports a frame above the reader's limit (or of negative
// length). The connection is of no use afterwards.
var ErrFrameTooLarge = errors.New("wire: frame above the limit")

// BeginFrame reserves a frame's length. EndFrame(b, mark) fills it in, where mark is len(b) before BeginFrame.
func BeginFrame(b []byte) []byte { return append(b, 0, 0, 0, 0) }

// EndFrame writes the length of the frame that BeginFrame began at mark.
func EndFrame(b []byte, mark int) []byte {
	binary.BigEndian.PutUint32(b[mark:], uint32(len(b)-mark-4))
	return b
}

// AppendFrame appends the records as one frame.
func AppendFrame(b []byte, records ...Record) []byte {
	mark := len(b)
	b = BeginFrame(b)
	for _, r := range records {
		b = r.AppendTo(b)
	}
	return EndFrame(b, mark)
}

// A FrameReader asks for firstChunk at a time, for more, up to frameChunk, while that is not enough, and for less again
// when little comes: a connection that is idle holds little. A larger frame grows the buffer only as its bytes arrive,
// at most doubling it, so a length that is a lie costs nothing.
const (
	firstChunk = 4 << 10
	frameChunk = 64 << 10
)

// FrameReader cuts a stream into frames. It is not safe for concurrent use.
type FrameReader struct {
	r     io.Reader
	limit int
	chunk int    // how much is asked for at a time
	buf   []byte // buf[start:end] is read and not yet handed out
	start int
	end   int
}

// NewFrameReader reads frames of at most limit bytes from r.
func NewFrameReader(r io.Reader, limit int) *FrameReader {
	return &FrameReader{r: r, limit: limit, chunk: firstChunk}
}

// Next returns the next frame without its length. It is valid until the next call. At the end of the stream between
// frames it returns io.EOF, inside one io.ErrUnexpectedEOF.
func (f *FrameReader) Next() ([]byte, error) {
	n, err := f.fill()
	if err != nil {
		return nil, err
	}
	frame := f.buf[f.start+4 : f.start+4+n]
	f.start += 4 + n
	return frame, nil
}

// Buffered reports whether Next would answer without reading.
func (f *FrameReader) Buffered() bool {
	_, whole, err := f.peek()
	return whole || err != nil
}

// Burst waits until at least one frame is there and returns all frames that are, each behind its length: what
// NextInBurst takes apart. The result is the reader's old buffer and belongs to the caller; in exchange the reader goes
// on with spare (nil: a new one), which is usually the burst before this one.
func (f *FrameReader) Burst(spare []byte) ([]byte, error) {
	if _, err := f.fill(); err != nil {
		return nil, err
	}
	first := f.start
	for {
		n, whole, err := f.peek()
		if err != nil || !whole {
			break // a bad length is reported when it is its turn
		}
		f.start += 4 + n
	}
	burst := f.buf[first:f.start]
	rest := f.buf[f.start:f.end]
	if len(burst)+len(rest) < f.chunk/8 {
		f.chunk = max(firstChunk, f.chunk/2)
	}
	spare = spare[:cap(spare)]
	if len(spare) < max(f.chunk, len(rest)) || len(spare) > 8*f.chunk {
		spare = make([]byte, max(f.chunk, 2*len(rest)))
	}
	f.start, f.end = 0, copy(spare, rest)
	f.buf = spare
	return burst, nil
}

// NextInBurst splits the first frame off a burst. frame is nil at the end.
func NextInBurst(burst []byte) (frame, rest []byte) {
	if len(burst) < 4 {
		return nil, nil
	}
	n := int(binary.BigEndian.Uint32(burst))
	if n > len(burst)-4 {
		return nil, nil
	}
	return burst[4 : 4+n : 4+n], burst[4+n:]
}

// peek tells the length of the frame at start and whether all of it is there.
func (f *FrameReader) peek() (n int, whole bool, err error) {
	have := f.end - f.start
	if have < 4 {
		return 0, false, nil
	}
	n = int(int32(binary.BigEndian.Uint32(f.buf[f.start:])))
	if n < 0 || n > f.limit {
		return 0, false, fmt.Errorf("%w: %d bytes, limit %d", ErrFrameTooLarge, n, f.limit)
	}
	return n, have-4 >= n, nil
}

// fill reads until the frame at start is whole, and returns its length.
func (f *FrameReader) fill() (int, error) {
	for empty := 0; ; {
		n, whole, err := f.peek()
		if err != nil || whole {
			return n, err
		}
		f.room(n)
		m, err := f.r.Read(f.buf[f.end:])
		f.end += m
		if m > 0 {
			if f.end == len(f.buf) {
				f.chunk = min(2*f.chunk, frameChunk)
			}
			empty = 0
			continue
		}
		if err == nil {
			if empty++; empty == 100 {
				return 0, io.ErrNoProgress
			}
			continue
		}
		if err == io.EOF && f.end > f.start {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
}

// room makes space behind end for more of a frame of n bytes.
func (f *FrameReader) room(n int) {
	if f.start == f.end {
		f.start, f.end = 0, 0
		if len(f.buf) > 16*f.chunk || len(f.buf) < f.chunk {
			f.buf = nil // a huge frame has passed: let its buffer go; or more comes at a time than fits
		}
	}
	if f.end < len(f.buf) && f.start+4+n <= len(f.buf) {
		return
	}
	have := f.end - f.start
	if f.start > 0 && 4+n <= len(f.buf) {
		copy(f.buf, f.buf[f.start:f.end])
		f.start, f.end = 0, have
		return
	}
	if have < len(f.buf)-f.start {
		return // not full yet: grow when it is
	}
	grown := make([]byte, max(f.chunk, min(4+n, 2*max(have, len(f.buf)))))
	f.end = copy(grown, f.buf[f.start:f.end])
	f.start = 0
	f.buf = grown
}
