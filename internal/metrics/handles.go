package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// handles are the collectors of a vector by their labels. One that was asked for before is found without a lock and without
// putting its labels together. Their number is that of the labels' values, which is bounded.
type handles[K comparable, C any] struct {
	find  func(K) C
	known atomic.Pointer[map[K]C] // never written to; a new one takes its place

	mu sync.Mutex // held to replace known
}

func newHandles[K comparable, C any](find func(K) C) *handles[K, C] {
	h := &handles[K, C]{find: find}
	h.known.Store(new(map[K]C))
	return h
}

func (h *handles[K, C]) of(labels K) C {
	if c, ok := (*h.known.Load())[labels]; ok {
		return c
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	known := *h.known.Load()
	if c, ok := known[labels]; ok {
		return c // another goroutine has asked meanwhile
	}
	c := h.find(labels)
	more := map[K]C{labels: c}
	maps.Copy(more, known)
	h.known.Store(&more)
	return c
}
