package session

import (
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// facts are what never changes while a Session lives.
type facts struct {
	cfg    *zk.Config
	id     string
	window time.Duration // W
	conn   *conn.Conn
	trust  *TrustWindow

	registration, guard string // paths below the chroot
	registered          []byte // the registration's data
}
