package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"lockkeeper/internal/test/assert"
)

func frames(sizes ...int) (stream []byte, want [][]byte) {
	for i, n := range sizes {
		f := bytes.Repeat([]byte{byte(i + 1)}, n)
		mark := len(stream)
		stream = EndFrame(append(BeginFrame(stream), f...), mark)
		want = append(want, f)
	}
	return stream, want
}

// readers are ways in which a stream can arrive.
var readers = map[string]func([]byte) io.Reader{
	"whole":    func(b []byte) io.Reader { return bytes.NewReader(b) },
	"by 3":     func(b []byte) io.Reader { return &steps{b, 3} },
	"by half":  func(b []byte) io.Reader { return iotest.HalfReader(bytes.NewReader(b)) },
	"with EOF": func(b []byte) io.Reader { return iotest.DataErrReader(bytes.NewReader(b)) },
}

var sizes = []int{0, 1, 100, frameChunk - 5, frameChunk - 4, frameChunk, 3 * frameChunk, 7, 17 * frameChunk, 3}

func TestFramesComeOutAsTheyWentIn(t *testing.T) {
	stream, want := frames(sizes...)
	for name, reader := range readers {
		f := NewFrameReader(reader(stream), 32*frameChunk)
		for i, w := range want {
			got, err := f.Next()
			assert.Must(t, err == nil && bytes.Equal(got, w), "%s: frame %d: %d bytes, %v; want %d", name, i, len(got), err, len(w))
		}
		_, err := f.Next()
		assert.That(t, err == io.EOF, "%s: at the end: %v", name, err)
	}
}

func TestBurstsHoldEveryFrameOnce(t *testing.T) {
	stream, want := frames(sizes...)
	for name, reader := range readers {
		f := NewFrameReader(reader(stream), 32*frameChunk)
		var spare []byte
		i := 0
		for {
			burst, err := f.Burst(spare)
			if err == io.EOF {
				break
			}
			assert.NoError(t, err, "%s", name)
			assert.Must(t, len(burst) != 0, "%s: an empty burst", name)
			rest := burst
			for {
				var frame []byte
				if frame, rest = NextInBurst(rest); frame == nil {
					break
				}
				assert.Must(t, bytes.Equal(frame, want[i]), "%s: frame %d has %d bytes, want %d", name, i, len(frame), len(want[i]))
				i++
			}
			clear(burst[:cap(burst)]) // the reader must not need it any more
			spare = burst
		}
		assert.That(t, i == len(want), "%s: %d frames of %d", name, i, len(want))
	}
}

func TestABurstIsWhatHasArrived(t *testing.T) {
	stream, _ := frames(1, 2, 3)
	r, w := io.Pipe()
	go func() {
		w.Write(stream[:len(stream)-1])
		w.Write(stream[len(stream)-1:])
		w.Close()
	}()
	f := NewFrameReader(r, 100)
	burst, err := f.Burst(nil)
	if want := 4 + 1 + 4 + 2; len(burst) != want || err != nil {
		t.Errorf("the first burst has %d bytes (%v), want the two whole frames: %d", len(burst), err, want)
	}
	assert.That(t, !f.Buffered(), "half a frame is said to be buffered")
	burst, err = f.Burst(burst)
	assert.That(t, len(burst) == 7 && err == nil, "the second burst has %d bytes (%v)", len(burst), err)
}

func TestFramesOutsideTheLimitEndTheStream(t *testing.T) {
	for _, n := range []int32{101, 1<<31 - 1, -1, -1 << 31} {
		stream, _ := frames(5)
		stream = AppendInt(stream, n)
		f := NewFrameReader(bytes.NewReader(stream), 100)
		_, err := f.Burst(nil)
		assert.NoError(t, err, "the good frame before length %d", n)
		assert.That(t, f.Buffered(), "length %d: the failure is at hand, yet Next is said to block", n)
		_, err = f.Next()
		assert.That(t, errors.Is(err, ErrFrameTooLarge), "length %d: %v", n, err)
	}
}

func TestAStreamThatEndsInsideAFrame(t *testing.T) {
	stream, _ := frames(10)
	for n := 1; n < len(stream); n++ {
		_, err := NewFrameReader(bytes.NewReader(stream[:n]), 100).Next()
		assert.That(t, err == io.ErrUnexpectedEOF, "after %d bytes: %v", n, err)
	}
}

func TestALengthThatIsALieCostsNoMemory(t *testing.T) {
	stream := append(AppendInt(nil, 60<<20), make([]byte, 1000)...)
	f := NewFrameReader(bytes.NewReader(stream), 64<<20)
	_, err := f.Next()
	assert.That(t, err == io.ErrUnexpectedEOF, "%v", err)
	assert.That(t, cap(f.buf) <= 4*frameChunk, "%d bytes set aside for 1000 that came", cap(f.buf))
}

func TestAHugeFrameDoesNotKeepItsBuffer(t *testing.T) {
	stream, _ := frames(17*frameChunk, 1, 1)
	for name, next := range map[string]func(f *FrameReader, spare []byte) []byte{
		"Next":  func(f *FrameReader, spare []byte) []byte { f.Next(); return nil },
		"Burst": func(f *FrameReader, spare []byte) []byte { b, _ := f.Burst(spare); return b },
	} {
		f := NewFrameReader(&steps{stream, 1000}, 64<<20)
		var spare []byte
		for range 3 {
			spare = next(f, spare)
		}
		assert.That(t, cap(f.buf) <= 16*frameChunk, "%s keeps %d bytes", name, cap(f.buf))
	}
}

func TestAReaderThatReturnsNothingIsGivenUp(t *testing.T) {
	_, err := NewFrameReader(idle{}, 100).Next()
	assert.That(t, err == io.ErrNoProgress, "%v", err)
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

func TestBurstsAllocateNothingOnceUnderWay(t *testing.T) {
	one, _ := frames(100, 100, 100)
	f := NewFrameReader(&endless{data: one}, 1000)
	var spare []byte
	for range 3 {
		spare, _ = f.Burst(spare)
	}
	assert.Equal(t, testing.AllocsPerRun(100, func() { spare, _ = f.Burst(spare) }), 0, "allocations a burst")
}

// endless repeats its data for ever.
type endless struct {
	data []byte
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.data[e.at:])
	e.at = (e.at + n) % len(e.data)
	return n, nil
}

func TestRandomFramesThroughRandomReads(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	for round := range 50 {
		var ns []int
		for range rnd.IntN(20) {
			ns = append(ns, rnd.IntN(1+rnd.IntN(3*frameChunk)))
		}
		stream, want := frames(ns...)
		f := NewFrameReader(&random{data: stream, rnd: rnd}, 4*frameChunk)
		var got [][]byte
		var spare []byte
		for {
			if rnd.IntN(2) == 0 {
				frame, err := f.Next()
				if err != nil {
					break
				}
				got = append(got, bytes.Clone(frame))
				continue
			}
			burst, err := f.Burst(spare)
			if err != nil {
				break
			}
			for rest := burst; ; {
				var frame []byte
				if frame, rest = NextInBurst(rest); frame == nil {
					break
				}
				got = append(got, bytes.Clone(frame))
			}
			spare = burst
		}
		assert.Must(t, slices.EqualFunc(got, want, bytes.Equal),
			"seed %d round %d: %d frames of %d differ", seed, round, len(got), len(want))
	}
}

type random struct {
	data []byte
	rnd  *rand.Rand
}

func (r *random) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(r.data), 1+r.rnd.IntN(2*frameChunk))
	copy(p, r.data[:n])
	r.data = r.data[n:]
	return n, nil
}

// A server has thousands of connections of which most send a ping now and then.
func TestAConnectionOnWhichLittleComesHoldsLittle(t *testing.T) {
	little := make([]int, 20)
	for i := range little {
		little[i] = 8
	}
	for name, before := range map[string]int{"from the start": 0, "after a busy time": 2000} {
		stream, _ := frames(append(slices.Repeat([]int{100}, before), little...)...)
		f := NewFrameReader(&each{stream, 12, 104 * before}, frameChunk)
		var spare []byte
		most := 0
		for {
			burst, err := f.Burst(spare)
			if err != nil {
				break
			}
			spare = burst
			most = max(most, cap(f.buf))
		}
		held := cap(f.buf) + cap(spare)
		assert.That(t, held <= 32<<10, "%s: %d bytes are held", name, held)
		assert.That(t, before <= 0 || most >= frameChunk, "%s: read by %d at most", name, most)
	}
}

// each gives as much as is asked for of the first many bytes, then n at a time.
type each struct {
	data    []byte
	n, many int
}

func (e *each) Read(p []byte) (int, error) {
	if len(e.data) == 0 {
		return 0, io.EOF
	}
	n := min(e.n, len(p))
	if e.many > 0 {
		n = min(e.many, len(p))
		e.many -= n
	}
	n = copy(p, e.data[:min(n, len(e.data))])
	e.data = e.data[n:]
	return n, nil
}
