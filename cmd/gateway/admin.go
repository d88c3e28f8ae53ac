package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"lockkeeper/internal/unixsock"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
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

// openAdmin begins to serve. routes adds what the gateway's parts do there.
func openAdmin(dir string, node *standalone.Node, routes func(*http.ServeMux), logger *slog.Logger) (*admin, error) {
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
	if routes != nil {
		routes(mux)
	}
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

// socketError is a problemError on its way over the socket.
type socketError struct {
	Code  int    `json:"exit_code"`
	Error string `json:"error"`
	Hint  string `json:"hint"`
}

// adminRoute serves one operation: do answers it, and problem says what to do about an error.
func adminRoute(mux *http.ServeMux, pattern string, log *slog.Logger, problem func(error) error, do func(*http.Request) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		answer, err := do(r)
		status := http.StatusOK
		if err != nil {
			p := &problemError{code: exitFailure, err: err}
			_ = errors.As(problem(err), &p)
			status, answer = http.StatusConflict, socketError{p.code, err.Error(), p.hint}
			log.Warn("a command was refused", "command", pattern, "by", r.RemoteAddr, "err", err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // an error means that the client is gone
	})
}

// askAdminJSON asks the gateway that runs on a data directory. Its error is a *net.OpError, wrapped, when none runs there.
func askAdminJSON(ctx context.Context, dir, method, path string, body, answer any) error {
	var sent bytes.Buffer
	if err := json.NewEncoder(&sent).Encode(body); err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	got, err := askAdmin(ctx, dir, method, path, &sent)
	if err != nil {
		return fmt.Errorf("asking the gateway that runs there: %w", err)
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		var said socketError
		if err := json.NewDecoder(io.LimitReader(got.Body, 64<<10)).Decode(&said); err != nil {
			return &problemError{code: exitFailure, err: fmt.Errorf("the gateway that runs there answers %s", got.Status), hint: "it may be of another release than this command"}
		}
		return &problemError{code: said.Code, err: errors.New(said.Error), hint: said.Hint}
	}
	if err := json.NewDecoder(got.Body).Decode(answer); err != nil {
		return fmt.Errorf("reading the answer of the gateway that runs there: %w", err)
	}
	return nil
}

// administer does work with the gateway that runs on a data directory, or with ZooKeeper where none runs there. The directory is the
// gateway's own default unless it is given. by is who works on ZooKeeper.
func (c *config) administer(ctx context.Context, stderr io.Writer, running func(dir string) error, atRest func(ctx context.Context, o *layout.Offline, by string) error) error {
	by := "uid:" + strconv.Itoa(os.Getuid())
	if c.ZK != "" {
		if host, err := os.Hostname(); err == nil {
			by += "@" + host
		}
	} else {
		dir, err := c.dataDir()
		if err != nil {
			return err
		}
		if err := running(dir); !errors.As(err, new(*net.OpError)) || ctx.Err() != nil {
			return err
		}
		c.DataDir = dir // no gateway answers there
		if err := c.existing(); err != nil {
			return err
		}
	}
	return c.offline(ctx, stderr, func(ctx context.Context, cfg zk.Config) error {
		o, err := layout.OpenOffline(ctx, cfg)
		if err != nil {
			return err
		}
		defer o.Close()
		return atRest(ctx, o, by)
	})
}
