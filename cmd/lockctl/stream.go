package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"lockkeeper/client"
)

// event is one of /v1/events.
type event struct {
	ID      string `json:"id"`
	Time    string `json:"time"`
	Type    string `json:"type"`
	NS      string `json:"ns"`
	Lock    string `json:"lock"`
	LeaseID string `json:"lease_id"`
	Foreign *struct {
		Program string `json:"program"`
	} `json:"foreign"`
	Owner   string `json:"owner"`
	Fence   uint64 `json:"fencing_token"`
	Reason  string `json:"reason"`
	By      string `json:"by"`
	Detail  string `json:"detail"`
	Code    string `json:"code"`
	Gateway string `json:"gateway"`
	Path    string `json:"path"`

	raw json.RawMessage
}

const (
	// The gateway sends a sign of life every 15 s.
	silentFor   = 45 * time.Second
	longestLine = 1 << 20
	pauseLeast  = 100 * time.Millisecond
	pauseMost   = 5 * time.Second
)

// errEnough ends a stream in good order.
var errEnough = errors.New("enough")

// follow reads the stream of events, and goes on behind the last one when the connection ends, at whichever gateway answers. It
// ends with ctx, with an error of each, or when a gateway refuses. opened is called for each new stream, before its events.
func (a *app) follow(ctx context.Context, c *client.Client, q url.Values, since string, opened func() error, each func(*event) error) error {
	lost := false
	for pause := pauseLeast; ; pause = min(2*pause, pauseMost) {
		last := since
		err := a.stream(ctx, c, q, &since, func() error {
			if lost {
				fmt.Fprintln(a.stderr, "connected again")
			}
			lost = false
			return opened()
		}, each)
		var p *client.Problem
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errEnough):
			return nil
		case errors.As(err, &p) && p.Status < 500 && p.Status != 408 && p.Status != 429 && p.Code != "unexpected_answer", errors.Is(err, errOutput):
			return err
		case last == "" && since == "" && !lost:
			return err // it has never worked
		}
		if since != last {
			pause = pauseLeast
		}
		if !lost {
			fmt.Fprintf(a.stderr, "the stream has ended (%s); trying again\n", plain(err))
			lost = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// errOutput says that an event could not be printed.
var errOutput = errors.New("writing the output")

// stream reads one stream to its end. The id of the last event goes into since.
func (a *app) stream(ctx context.Context, c *client.Client, q url.Values, since *string, opened func() error, each func(*event) error) error {
	header := http.Header{"Accept": {"text/event-stream"}}
	if *since != "" {
		header.Set("Last-Event-ID", *since)
	}
	answer, err := c.Open(ctx, client.Request{Path: "/v1/events?" + q.Encode(), Header: header})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := opened(); err != nil {
		return err
	}
	silent := time.AfterFunc(silentFor, func() { answer.Body.Close() })
	defer silent.Stop()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		silent.Reset(silentFor)
		line := lines.Text()
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			*since = id
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		e := event{raw: json.RawMessage(data)}
		if err := json.Unmarshal(e.raw, &e); err != nil {
			return fmt.Errorf("an event cannot be read: %w", err)
		}
		if err := each(&e); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the gateway ended it")
}
