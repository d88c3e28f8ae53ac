package httpapi

import (
	"net/http"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
)

// gatherPause is how long a report waits for others, so that one line tells of many ends.
const gatherPause = 5 * time.Millisecond

// maxFollowers bounds the streams to other gateways. Each of them has one.
const maxFollowers = 256

// feed is the stream of this gateway's end reports for the others.
type feed struct {
	news      func(since string) (news [][]byte, at string, more <-chan struct{})
	open      places
	keepalive time.Duration
	write     time.Duration // for one line
}

// mountNews serves the stream of end reports to other gateways. It is no part of the interface for clients: a request
// without a seal gets 404.
func (s *Server) mountNews(news func(since string) (news [][]byte, at string, more <-chan struct{})) {
	s.feed = feed{news: news, open: places{limit: maxFollowers}, keepalive: fleet.StreamKeepalive, write: s.streams.write}
	s.router.Get(fleet.StreamPath, func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		x.operation, x.line.quiet, x.r = "News", true, r
		switch {
		case x.peer == nil:
			x.refuse(x.notFound())
		case !s.feed.open.take():
			x.problem(tooManyStreams())
		default:
			defer s.feed.open.give()
			s.feed.tell(x)
		}
	})
}

// tell writes the reports until the other gateway leaves, or this one has drained and written its last.
func (f *feed) tell(x *exchange) {
	lines := x.seal.keys.Lines(x.peer)
	since := x.r.URL.Query().Get("since")
	x.Header()["Content-Type"] = typeText
	x.WriteHeader(http.StatusOK)
	alive := time.NewTicker(f.keepalive)
	defer alive.Stop()
	for first := true; ; first = false {
		news, at, more := f.news(since)
		if len(news) > 0 || first {
			if f.line(x, lines.Close(at, news)) != nil {
				return
			}
		}
		since = at
		switch {
		case len(news) > 0:
			continue
		case more == nil:
			return
		}
		select {
		case <-more:
			time.Sleep(gatherPause)
		case <-alive.C:
			if keys, err := x.s.forwarder.fleet.Keys(); err != nil || !keys.Know(x.peer) {
				return // the other gateway begins a stream under the key that is in force
			}
			if f.line(x, lines.Close(at, nil)) != nil {
				return
			}
		case <-x.r.Context().Done():
			return
		}
	}
}

func (f *feed) line(x *exchange, line []byte) error {
	control := http.NewResponseController(x.w)
	// A recorder in a test has no deadlines; on a connection this cannot fail.
	_ = control.SetWriteDeadline(time.Now().Add(f.write))
	if _, err := x.Write(line); err != nil {
		return err
	}
	defer x.noDeadline()
	return control.Flush()
}

// Others returns the gateways to follow: every other registered gateway with an address.
func Others(peers []locks.Peer) (list []fleet.Peer) {
	for _, p := range peers {
		if p.Registered && !p.Self && p.Address != "" {
			list = append(list, fleet.Peer{Gateway: p.Gateway, Address: p.Address})
		}
	}
	return list
}
