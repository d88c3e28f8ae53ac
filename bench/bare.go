package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/go-chi/chi/v5"

	"lockkeeper/internal/httpapi"
)

// bareVariable makes this program the bare handler: its value is a bareConfig.
const bareVariable = "LOCKKEEPER_BENCH_BARE"

// bareConfig says where the bare handler listens and what it answers.
type bareConfig struct {
	Listen           string
	Acquire, Release answer
}

// answer is an answer of the gateway, without its date.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// startBare starts a program that routes the two requests of a cycle with chi and answers each with the bytes that g has answered:
// what HTTP alone costs.
func (r *rig) startBare(ctx context.Context, g *gateway) (*gateway, error) {
	listen, err := freeAddr()
	if err != nil {
		return nil, err
	}
	config := bareConfig{Listen: listen}
	l := g.http.locker("own-0")
	if config.Acquire, err = recorded(ctx, http.MethodPost, l.acquireURL, ""); err != nil {
		return nil, err
	}
	var lease struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal(config.Acquire.Body, &lease); err != nil {
		return nil, fmt.Errorf("the gateway's answer: %w", err)
	}
	if config.Release, err = recorded(ctx, http.MethodDelete, g.http.base+"/v1/leases/self", lease.Token); err != nil {
		return nil, err
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), bareVariable+"="+string(text))
	return r.serve(ctx, "bare handler", cmd, listen)
}

// recorded sends one request and keeps its answer.
func recorded(ctx context.Context, method, url, token string) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return a, err
	}
	req.Header.Set("Lease-Token", token)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a = answer{Status: resp.StatusCode, Header: resp.Header}
	a.Header.Del("Date")
	a.Body, err = io.ReadAll(resp.Body)
	return a, err
}

// serveBare is the bare handler. It returns only with an error.
func serveBare(config string) error {
	var c bareConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	router := chi.NewRouter()
	router.Post("/v1/locks/{lock}/leases", c.Acquire.write)
	router.Delete("/v1/leases/self", c.Release.write)
	router.Get("/readyz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	router.Post("/messages", sendMessages)
	l, err := net.Listen("tcp4", c.Listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: router}
	httpapi.Configure(server)
	return server.Serve(l)
}

func (a answer) write(w http.ResponseWriter, _ *http.Request) {
	header := w.Header()
	for name, values := range a.Header {
		header[name] = values
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}

// sendMessages sends requests as large as webhook messages to a receiver: what the HTTP client alone costs a gateway that delivers.
func sendMessages(w http.ResponseWriter, req *http.Request) {
	var order messageOrder
	if err := json.NewDecoder(req.Body).Decode(&order); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	clients := newHTTPClients(order.URL)
	defer clients.close()
	_, err := together(req.Context(), order.AtOnce, func(ctx context.Context, i int, _ *client) error {
		for n := i; n < order.Messages; n += order.AtOnce {
			message, err := http.NewRequestWithContext(ctx, http.MethodPost, order.URL, strings.NewReader(order.Body))
			if err != nil {
				return err
			}
			message.Header = order.Header.Clone()
			if err := clients.send(message, http.StatusNoContent, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("{}"))
}

// messageOrder says what sendMessages sends where.
type messageOrder struct {
	URL              string
	Header           http.Header
	Body             string
	Messages, AtOnce int
}
