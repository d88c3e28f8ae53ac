package supervise

import (
	"encoding/json"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// message is what watcher and keeper tell each other; one of its fields is set.
type message struct {
	// From the watcher.
	Signal   syscall.Signal `json:"signal,omitempty"`   // it got this signal
	Continue bool           `json:"continue,omitempty"` // it goes on after it was suspended

	// From the keeper.
	Group   int            `json:"group,omitempty"`   // the process group of the command
	Suspend bool           `json:"suspend,omitempty"` // the watcher shall stop as the command has
	Done    bool           `json:"done,omitempty"`    // the keeper is about to end, and leaves no descendant that it could kill
	DieOf   syscall.Signal `json:"die_of,omitempty"`  // with Done: the signal from the terminal that ended the command
}

// link is one end of the socket.
type link struct {
	conn net.Conn
	in   *json.Decoder

	mu  sync.Mutex
	out *json.Encoder
}

func newLink(f *os.File) (*link, error) {
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	f.Close()
	return &link{conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}, nil
}

// send tells the other one. An error would say that it is gone; that is seen when reading.
func (l *link) send(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A process that stands still reads nothing. The few messages that there are fit into the socket's buffer.
	_ = l.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_ = l.out.Encode(m)
}

// receive reads until the other one is gone.
func (l *link) receive(to chan<- message) {
	defer close(to)
	for {
		var m message
		if l.in.Decode(&m) != nil {
			return
		}
		to <- m
	}
}

func socketpair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
	return os.NewFile(uintptr(fds[0]), "watcher"), os.NewFile(uintptr(fds[1]), "keeper"), nil
}
