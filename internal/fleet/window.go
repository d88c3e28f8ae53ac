package fleet

// window remembers which numbers of one sender have been received: all between its highest and some windowSize before it.
// A smaller number counts as received. That is the anti-replay window of RFC 4303, section 3.4.3, as a ring of words (RFC 6479).
//
// A window is as wide as its words less one, because the word that a new highest number enters is cleared as a whole.
type window struct {
	seen    []uint64 // bit n%64 of word n/64%len is number n
	highest uint64
}

// Numbers are given when a request is written to its connection. They arrive out of order when one connection stalls while
// the others go on: at 20,000 requests a second, for as long as the 3 s after which a heartbeat is given up, 60,000 numbers
// pass by. So this is far more than the 2*maxConns requests that can be under way to one gateway, in 16 KiB.
const windowSize = 32 * 2 * maxConns

func newWindow(size int) *window { return &window{seen: make([]uint64, size/64)} }

// take reports whether a number comes for the first time, and remembers it. Numbers begin at 1.
func (w *window) take(n uint64) bool {
	words := uint64(len(w.seen))
	block, top := n/64, w.highest/64
	switch {
	case n == 0:
		return false
	case n > w.highest:
		for i := range min(block-top, words) {
			w.seen[(block-i)%words] = 0
		}
		w.highest = n
	case top-block >= words:
		return false
	}
	word, bit := &w.seen[block%words], uint64(1)<<(n%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}
