package httpapi

import (
	"net/http"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
)

// maxFollowers bounds the streams to other gateways. Each of them has one.
const maxFollowers = 256

var typeNews = []string{"text/plain; charset=utf-8"}

// mountNews gives other gateways the stream of what this one tells them. It is no part of the interface that clients use: to who
// has no seal there is nothing at its path.
func (s *Server) mountNews() {
	s.router.Get(fleet.StreamPath, func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		x.operation, x.quiet, x.r = "News", true, r
		if x.peer == nil {
			x.notFound()
			return
		}
		x.tellNews()
	})
}

// tellNews tells what there is, and goes on until the other gateway leaves or this one has told its last: that is
// after it has drained.
func (x *exchange) tellNews() {
	s := x.s
	if s.followers.Add(1) > maxFollowers {
		s.followers.Add(-1)
		x.problem(tooManyStreams())
		return
	}
	defer s.followers.Add(-1)
	lines := x.keys.Lines(x.peer)
	control := http.NewResponseController(x.w)
	since := x.r.URL.Query().Get("since")
	x.Header()["Content-Type"] = typeNews
	x.WriteHeader(http.StatusOK)
	alive := time.NewTicker(s.newsKeepalive)
	defer alive.Stop()
	for first := true; ; first = false {
		news, at, more := s.news(since)
		if len(news) > 0 || first {
			if x.writeLine(control, lines.Close(at, news)) != nil {
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
		case <-alive.C:
			if x.writeLine(control, lines.Close(at, nil)) != nil {
				return
			}
		case <-x.r.Context().Done():
			return
		}
	}
}

func (x *exchange) writeLine(control *http.ResponseController, line []byte) error {
	// A recorder in a test has no deadlines; on a connection this cannot fail.
	_ = control.SetWriteDeadline(time.Now().Add(x.s.streamWrite))
	if _, err := x.Write(line); err != nil {
		return err
	}
	return control.Flush()
}

// Others are the gateways to follow: those that are registered and have said where they are, this one left out.
func Others(peers []locks.Peer) (list []fleet.Peer) {
	for _, p := range peers {
		if p.Registered && !p.Self && p.Address != "" {
			list = append(list, fleet.Peer{Gateway: p.Gateway, Address: p.Address})
		}
	}
	return list
}
