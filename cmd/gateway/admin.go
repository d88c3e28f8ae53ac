package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/zk/standalone"
)

// adminSocket is the Unix socket in the data directory by which the same user
// administers the gateway that runs there. No other user can open it.
const adminSocket = "admin.sock"

// adminStall is how long the client of a backup may stop reading: the store's file grows meanwhile.
const adminStall = 30 * time.Second

// admin serves the socket.
type admin struct {
	listener net.Listener
	server   *http.Server
	path     string
	ended    chan struct{}
}

// openAdmin begins to serve. The lock of the store proves that an existing socket
// was left by a dead process.
func openAdmin(dir string, node *standalone.Node, tokens *token.Store, logger *slog.Logger) (*admin, error) {
	a := &admin{path: filepath.Join(dir, adminSocket), ended: make(chan struct{})}
	if info, err := os.Lstat(a.path); err == nil && info.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(a.path); err != nil {
			return nil, err
		}
	}
	address, done, err := socketAddress(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		// Before it has a name: there is no moment at which others could open it.
		if controlled := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); controlled != nil {
			return controlled
		}
		return err
	}}
	if a.listener, err = config.Listen(context.Background(), "unix", address); err != nil {
		return nil, err
	}
	a.listener.(*net.UnixListener).SetUnlinkOnClose(false) // by its real name, in close
	if err := os.Chmod(a.path, 0o600); err != nil {        // where the system does not take it over from the socket
		return nil, errors.Join(err, a.listener.Close(), os.Remove(a.path))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /backup", func(w http.ResponseWriter, r *http.Request) {
		out := &stallLimit{w: w, control: http.NewResponseController(w)}
		n, err := node.Backup(r.Context(), out)
		switch {
		case err == nil:
			logger.Info("backup sent", "bytes", n)
		case n == 0 && !out.begun:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			logger.Warn("a backup was broken off", "bytes", n, "err", err)
			panic(http.ErrAbortHandler) // so that it does not look whole
		}
	})
	adminTokens{tokens, logger}.routes(mux)
	a.server = &http.Server{Handler: mux, ConnContext: withPeerUser, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	go func() {
		defer close(a.ended)
		if err := serveHTTP(a.server, a.listener); err != nil {
			logger.Warn("the administration's socket is closed", "err", err)
		}
	}()
	return a, nil
}

// close ends backups under way.
func (a *admin) close() {
	_ = a.server.Close() // nothing could be done about it
	<-a.ended
	_ = os.Remove(a.path) // the next one would remove it too
}

// stallLimit ends the answer when the reader stops for adminStall.
type stallLimit struct {
	w       io.Writer
	control *http.ResponseController
	begun   bool
}

func (p *stallLimit) Write(b []byte) (int, error) {
	p.begun = true
	if err := p.control.SetWriteDeadline(time.Now().Add(adminStall)); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

// socketAddress names the socket so that the system takes it: a path may have
// about a hundred bytes there. done is called when it is not needed any more.
func socketAddress(dir string) (address string, done func(), err error) {
	address = filepath.Join(dir, adminSocket)
	if len(address) < 100 {
		return address, func() {}, nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), adminSocket), func() { d.Close() }, nil
}

// askAdmin sends a request to the gateway that runs on a data directory.
func askAdmin(ctx context.Context, dir, method, path string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			address, done, err := socketAddress(dir)
			if err != nil {
				return nil, err
			}
			defer done()
			var d net.Dialer
			return d.DialContext(ctx, "unix", address)
		}}}
	return client.Do(request)
}
