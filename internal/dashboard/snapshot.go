package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/web/templates"
)

// maxPrepared is how many messages a snapshot keeps for viewers that have skipped some. Another one gets all fragments.
const maxPrepared = 8

// snapshot is a page's fragments at one moment. It is immutable, but for the messages that it keeps.
type snapshot struct {
	seq       uint64 // 0: nothing has been rendered yet
	status    templates.Status
	fragments []fragment                 // the status is the first
	update    *websocket.PreparedMessage // what changed since the snapshot before
	next      chan struct{}              // closed when there is a newer one

	mu sync.Mutex
	// prepared are messages by what their viewers have seen: made once, and compressed once, for all of them.
	prepared map[uint64]*websocket.PreparedMessage
}

// fragment is the fragment with that id, nil when there is none.
func (s *snapshot) fragment(id string) *fragment {
	for i := range s.fragments {
		if s.fragments[i].id == id {
			return &s.fragments[i]
		}
	}
	return nil
}

// statusHTML is the status as it was rendered, nil when there is none.
func (s *snapshot) statusHTML() []byte {
	if f := s.fragment(statusID); f != nil {
		return f.Around[0]
	}
	return nil
}

// changedSince is what differs from what it was at seen, as the templates render it.
func (s *snapshot) changedSince(seen uint64) []byte { return appendSince(nil, s.fragments, seen) }

func appendSince(b []byte, fragments []fragment, seen uint64) []byte {
	for i := range fragments {
		b = fragments[i].appendSince(b, seen)
	}
	return b
}

// message is the whole page's fragments, one after the other. htmx finds their places by their ids (web/static/README.md).
// The status is rendered again, because its clock must be the present one.
func (s *snapshot) message(ctx context.Context) ([]byte, error) {
	if len(s.fragments) == 0 {
		return nil, nil
	}
	html, err := renderStatus(ctx, s.status, time.Now())
	if err != nil {
		return nil, err
	}
	return appendSince(html, s.fragments[1:], 0), nil
}

// prepareUpdate sets the message for viewers that have seen the snapshot before.
func (s *snapshot) prepareUpdate(html []byte) (err error) {
	s.update, err = websocket.NewPreparedMessage(websocket.TextMessage, html)
	return err
}

// rest is the message for viewers that have seen the snapshot seen (0: none), without the status: its clock must be the present one, so it is
// a message of its own. It is nil when there is nothing to say.
func (s *snapshot) rest(seen uint64) (*websocket.PreparedMessage, error) {
	if len(s.fragments) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.prepared[seen]; !there && len(s.prepared) >= maxPrepared {
		seen = 0
	}
	if m, there := s.prepared[seen]; there {
		return m, nil
	}
	html := appendSince(nil, s.fragments[1:], seen)
	if len(html) == 0 {
		return nil, nil
	}
	m, err := websocket.NewPreparedMessage(websocket.TextMessage, html)
	if err != nil {
		return nil, err
	}
	if s.prepared == nil {
		s.prepared = map[uint64]*websocket.PreparedMessage{}
	}
	s.prepared[seen] = m
	return m, nil
}
