package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/unixsock"
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

// openAdmin begins to serve.
func openAdmin(dir string, node *standalone.Node, tokens *token.Store, logger *slog.Logger) (*admin, error) {
	a := &admin{path: filepath.Join(dir, adminSocket), ended: make(chan struct{})}
	var err error
	if a.listener, err = unixsock.Listen(a.path, 0o600); err != nil {
		return nil, err
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
	a.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
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

// askAdmin sends a request to the gateway that runs on a data directory.
func askAdmin(ctx context.Context, dir, method, path string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return unixsock.Dial(ctx, filepath.Join(dir, adminSocket))
		}}}
	return client.Do(request)
}
