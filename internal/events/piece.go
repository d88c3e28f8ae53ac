package events

import "sync"

const (
	// maxBatch is how many places in the order one Next reads at most. A batch that is cut ends at a multiple of it, so that
	// subscribers which fell behind by different spans get the same batches again.
	maxBatch = 512
	// maxPieces is how many batches the hub keeps for those that share them, with their encoded forms: some 150 KB each.
	// They may hold events that the ring has lost.
	maxPieces = 16
	// maxKept is how large a buffer a subscriber keeps that is alone in its group: there may be thousands.
	maxKept = 8 << 10
)

// piece is what a group's filter selects of a span: one batch, the same for all members at the same place.
type piece struct {
	group *group
	span  span

	read   sync.Once
	events []*Event
	lost   uint64 // the first that the ring had lost; 0: none

	mu    sync.Mutex
	forms map[string][]byte // what encode made of it
}

// pieceOf is the piece of that span, shared when the group has several members.
func (h *Hub) pieceOf(g *group, of span) *piece {
	h.piecesMu.Lock()
	defer h.piecesMu.Unlock()
	for _, p := range h.pieces {
		if p != nil && p.group == g && p.span == of {
			return p
		}
	}
	p := &piece{group: g, span: of, forms: map[string][]byte{}}
	h.pieces[h.oldest] = p
	h.oldest = (h.oldest + 1) % maxPieces
	return p
}

// fill reads the ring.
func (p *piece) fill(h *Hub) {
	for seq := p.span.first; seq < p.span.end; seq++ {
		e := h.at(seq)
		if e == nil {
			p.lost = seq
			return
		}
		if p.group.filter.Match(e) {
			p.events = append(p.events, e)
		}
	}
}

// Encoded is the last batch as encode appends it to a buffer. It is made once for all subscribers that were given the same
// batch and ask for the same form. The caller must not change it, and forget it before the next call of Next.
func (s *Subscriber) Encoded(form string, encode func([]byte, []*Event) []byte) []byte {
	p := s.piece
	if p == nil { // its own
		s.buffer = encode(s.buffer[:0], s.batch)
		return s.buffer
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b, made := p.forms[form]
	if !made {
		b = encode(nil, p.events)
		p.forms[form] = b
	}
	return b
}
