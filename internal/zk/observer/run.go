package observer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"lockkeeper/internal/backoff"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
)

// Run connects and observes until ctx ends, and then returns nil, or until a *FatalError. It may be called once.
func (o *Observer) Run(ctx context.Context) error {
	o.mu.Lock()
	started := o.started
	o.started = true
	o.mu.Unlock()
	if started {
		return errors.New("observer: run twice")
	}
	defer o.stop()
	if o.cfgErr != nil {
		return o.cfgErr
	}
	failures := 0
	delays := backoff.New(o.cfg.Random, firstRetry, lastRetry)
	for {
		if failures > 0 && backoff.Sleep(ctx, delays.NextBackOff()) != nil {
			return nil
		}
		lived, err := o.connection(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if fatal, ok := errors.AsType[*zk.FatalError](err); ok {
			return fatal
		}
		if lived >= stableAfter {
			failures = 0
			delays.Reset()
		} else {
			failures++
		}
		level := slog.LevelDebug
		if failures <= 1 || failures%32 == 0 {
			level = slog.LevelWarn // not once a second for as long as ZooKeeper is away
		}
		o.log.Log(ctx, level, "observer's connection ended", "err", err, "failures", failures)
	}
}

// stop answers the callers that still wait when Run returns.
func (o *Observer) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	for _, r := range o.reachers {
		r.done <- zk.ErrUnavailable
	}
	o.reachers = nil
}

// connection makes one connection and works on it until it ends. It tells how
// long the connection lived after it was synced.
func (o *Observer) connection(ctx context.Context) (lived time.Duration, err error) {
	server := o.servers[o.next%len(o.servers)]
	o.next++
	began := time.Now()
	seen := max(o.lastZxid, o.writerZxid())
	if fault.On("last-seen") {
		seen = 0
	}
	s, err := dialStream(ctx, &o.cfg, server, seen)
	if err != nil {
		o.cfg.Metrics.Op("connect", "unknown", time.Since(began))
		return 0, err
	}
	o.cfg.Metrics.Op("connect", "ok", time.Since(began))
	o.log.Info("observer connected", "server", server, "session", s.sessionID)
	window := o.cfg.PromiseWindow
	c := &observation{
		Observer: o,
		s:        s,
		minZxid:  seen,
		// Two thirds of the session, as other clients do; but a ping that has had no answer for half the window stands
		// behind something that never ends (a sync at a server that is cut off), and the window is running.
		silenceLimit: min(s.timeout*2/3, max(window/2, time.Second)),
	}
	o.stream.Store(s)
	stop := context.AfterFunc(ctx, s.interrupt)
	err = c.run(ctx)
	stop()
	o.stream.Store(nil)
	if ctx.Err() != nil {
		s.closeSession(c.nextXid())
	}
	s.close()
	c.end()
	if !c.since.IsZero() {
		lived = time.Since(c.since)
	}
	return lived, err
}
