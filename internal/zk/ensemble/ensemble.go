// Package ensemble asks the servers of a ZooKeeper ensemble what they say of
// themselves. It is for people to look at: nothing is decided by it.
package ensemble

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of asking for srvr, the four-letter word that ZooKeeper allows unless it is configured otherwise.
const (
	srvrTimeout = time.Second
	srvrAge     = 5 * time.Second
	maxSrvr     = 16 << 10 // bytes
)

// Dial opens a connection, as zk.Config's does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Server is one server of the ensemble.
type Server struct {
	Address     string
	Mode        string // "leader", "follower", "observer", "standalone"; "" when it does not say
	Version     string
	Zxid        int64
	Connections int
	Outstanding int
	Problem     string // why nothing is known; "" when it is
}

// Ask asks one server. It takes a second at most. dial connects to it; nil is a net.Dialer.
func Ask(ctx context.Context, dial Dial, address string) Server {
	ctx, cancel := context.WithTimeout(ctx, srvrTimeout)
	defer cancel()
	s := Server{Address: address}
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	nc, err := dial(ctx, "tcp", address)
	if err != nil {
		s.Problem = "unreachable"
		return s
	}
	defer nc.Close()
	deadline, _ := ctx.Deadline()
	_ = nc.SetDeadline(deadline) // a connection that refuses it fails below
	if _, err = io.WriteString(nc, "srvr"); err == nil {
		err = s.read(io.LimitReader(nc, maxSrvr))
	}
	if err != nil {
		s.Problem = err.Error()
	}
	return s
}

// read takes what a server says, line by line: "Mode: leader".
func (s *Server) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	said := false
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		if !ok {
			continue
		}
		var err error
		switch name {
		case "Zookeeper version":
			s.Version, _, _ = strings.Cut(value, "-")
			s.Version, _, _ = strings.Cut(s.Version, ",")
			said = true
		case "Mode":
			s.Mode = value
		case "Zxid":
			s.Zxid, err = strconv.ParseInt(value, 0, 64)
		case "Connections":
			s.Connections, err = strconv.Atoi(value)
		case "Outstanding":
			s.Outstanding, err = strconv.Atoi(value)
		}
		if err != nil {
			return fmt.Errorf("it says %s %.40q", name, value)
		}
	}
	switch {
	case lines.Err() != nil:
		return fmt.Errorf("it does not answer srvr")
	case !said:
		return fmt.Errorf("it does not answer srvr, or is not serving")
	}
	return nil
}

// Status keeps what the servers said last. The zero value asks no server.
type Status struct {
	Servers []string
	Dial    Dial // nil: a net.Dialer

	mu    sync.Mutex
	last  []Server
	at    time.Time     // of last
	asked chan struct{} // closed when the servers that are being asked have answered; nil while none is
}

// Get is what the servers said at most some seconds ago. The first caller waits for it, a second at most. Later
// callers get what is known while the servers are asked again.
func (e *Status) Get(ctx context.Context) []Server {
	if len(e.Servers) == 0 {
		return nil
	}
	e.mu.Lock()
	if e.asked == nil && time.Since(e.at) >= srvrAge {
		done := make(chan struct{})
		e.asked = done
		go e.ask(done) // ends within srvrTimeout
	}
	asked, last := e.asked, e.last
	e.mu.Unlock()
	if last != nil || asked == nil {
		return last
	}
	select {
	case <-asked:
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

func (e *Status) ask(done chan struct{}) {
	all := make([]Server, len(e.Servers))
	var answers sync.WaitGroup
	for i, address := range e.Servers {
		answers.Go(func() { all[i] = Ask(context.Background(), e.Dial, address) })
	}
	answers.Wait()
	e.mu.Lock()
	e.last, e.at, e.asked = all, time.Now(), nil
	e.mu.Unlock()
	close(done)
}
