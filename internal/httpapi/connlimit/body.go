package connlimit

import (
	"io"
	"net"
)

// body reports to the limiter that the last byte of a request's body has been read. A handler that reads to the end of a body
// whose connection was closed for a newcomer gets net.ErrClosed, so it does not begin what its client cannot see.
type body struct {
	io.ReadCloser
	conn *conn
	read bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && !b.read {
		if !b.conn.arrived() {
			return n, net.ErrClosed
		}
		b.read = true
	}
	return n, err
}
