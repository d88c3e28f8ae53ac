package wire

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/test/assert"
)

// fuzzRecord decodes data as the kind-th record; what is accepted must round-
// trip, and nothing may cost memory out of proportion.
func fuzzRecord(t *testing.T, kind byte, data []byte) {
	all := samples()
	r := fresh(all[int(kind)%len(all)])
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d := NewDecoder(data)
	r.Decode(d)
	err := d.Finish()
	runtime.ReadMemStats(&after)
	// A result of a multi takes 9 bytes on the wire and some 170 in memory, and slices double as they grow.
	grown := after.TotalAlloc - before.TotalAlloc
	assert.Must(t, grown <= 256<<10+uint64(len(data))*128, "%T: %d bytes allocated for %d", r, grown, len(data))
	if err != nil {
		return
	}
	again := fresh(r)
	d = NewDecoder(r.AppendTo(nil))
	again.Decode(d)
	assert.NoError(t, d.Finish(), "%T: its own encoding is refused", r)
	diff := cmp.Diff(r, again)
	assert.Must(t, diff == "", "%T: -want +got\n%s", r, diff)
}

func FuzzDecodeRecord(f *testing.F) {
	for i, r := range samples() {
		f.Add(byte(i), r.AppendTo(nil))
	}
	f.Add(byte(0), []byte{})
	f.Add(byte(9), AppendInt(nil, 1<<31-1))
	f.Fuzz(fuzzRecord)
}

// FuzzDecodeFrames reads arbitrary bytes as a stream of frames: Next and Burst
// must see the same frames and the same end.
func FuzzDecodeFrames(f *testing.F) {
	whole, _ := frames(3, 0, 5)
	f.Add(whole, 4)
	f.Add(append(whole, 0xff, 0xff, 0xff, 0xff), 1)
	f.Add(AppendInt(nil, 1<<30), 3)
	f.Fuzz(func(t *testing.T, data []byte, step int) {
		step = 1 + (step&0xff)%64
		const limit = 1 << 20
		var one, two [][]byte
		a := NewFrameReader(&steps{data, step}, limit)
		var errA, errB error
		for {
			var frame []byte
			if frame, errA = a.Next(); errA != nil {
				break
			}
			one = append(one, bytes.Clone(frame))
		}
		b := NewFrameReader(&steps{data, 7}, limit)
		var burst []byte
		for {
			if burst, errB = b.Burst(burst); errB != nil {
				break
			}
			for rest := burst; ; {
				var frame []byte
				if frame, rest = NextInBurst(rest); frame == nil {
					break
				}
				two = append(two, bytes.Clone(frame))
			}
		}
		diff := cmp.Diff(one, two)
		assert.Must(t, diff == "", "Next and Burst differ:\n%s", diff)
		assert.Must(t, errA.Error() == errB.Error(), "Next ends with %v, Burst with %v", errA, errB)
	})
}

// steps returns a few bytes at a time.
type steps struct {
	data []byte
	n    int
}

func (s *steps) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.data[:min(s.n, len(s.data))])
	s.data = s.data[n:]
	return n, nil
}
