package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"lockkeeper/internal/audit"
	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/events"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/zk/layout"
)

// auditEndsWithin is how long the end of the process waits for the last lines of the audit log: a file may be a pipe, or on another
// machine.
const auditEndsWithin = 5 * time.Second

// openAudit opens the audit log; nil without --audit-log.
func (g *gateway) openAudit(stderr io.Writer) (err error) {
	options := audit.Options{Path: g.c.AuditLog, Lost: g.metrics.AuditLost, Log: g.log.With("part", "audit")}
	switch g.c.AuditLog {
	case "":
		return nil
	case "stderr":
		options.Path, options.Output = "", stderr
	}
	if g.audit, err = audit.Open(options); err != nil {
		return usage("for example --audit-log /var/log/lockkeeper/audit.log, in a directory that this user may write to, or --audit-log stderr", "--audit-log: %w", err)
	}
	return nil
}

// writeAudit lets the audit log be written until end is called. SIGHUP opens the file again.
func (g *gateway) writeAudit() (end func()) {
	if g.audit == nil {
		return func() {}
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	ctx, stop := context.WithCancel(context.Background())
	written, over := make(chan struct{}), make(chan struct{})
	go func() { defer close(written); g.audit.Run(ctx) }()
	go func() {
		for {
			select {
			case <-hangup:
				g.audit.Reopen()
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangup)
		close(over)
		stop()
		select {
		case <-written:
		case <-time.After(auditEndsWithin):
			g.log.Error("the audit log takes nothing, and the process ends: its last lines are lost")
		}
	}
}

// tokenChanged audits what this gateway has observed of a token, also when another process made the change.
func (g *gateway) tokenChanged(c token.Change) {
	line := audit.Line{Event: "token." + string(c.Kind), Token: c.ID, Name: c.Name, Admin: c.Admin}
	switch c.Kind {
	case token.WasCreated:
		line.Principal = c.CreatedBy
	case token.WasRevoked:
		line.Principal = c.RevokedBy
	}
	g.audit.Add(line)
}

// secretChanged audits what has become of the fleet's secret, also when another process made the change.
func (g *gateway) secretChanged(was, is *layout.Secret) {
	line := audit.Line{Event: "secret.dropped"} // the old key
	switch r := is.Rotation; {
	case r == nil && was.Rotation == nil:
		return
	case r != nil:
		line.Event, line.Principal = "secret."+string(r.Phase), r.By
	}
	g.audit.Add(line)
}

// auditedEnds are the ends of leases that no request tells, or not alone.
var auditedEnds = events.Types(events.LeaseExpired, events.LeaseUnclaimed, events.LeaseCancelled, events.LeaseRemoved, events.LeaseRevoked, events.LockDestroyed)

// auditEnds audits the ends of the leases that this gateway runs, until ctx ends.
func (g *gateway) auditEnds(ctx context.Context) {
	if g.audit == nil {
		return
	}
	for ctx.Err() == nil {
		s, err := g.hub.Subscribe(events.Filter{Rules: access.Everything(), Types: auditedEnds}, "")
		for err == nil {
			var batch []*events.Event
			batch, err = s.Next(ctx)
			for _, e := range batch {
				switch {
				case e.Type == events.Resync: // this gateway publishes faster than its log was written
					g.audit.Add(audit.Line{Event: "audit.gap", Reason: "ends of leases were missed"})
				case e.Here || e.Type == events.LockDestroyed:
					g.audit.Add(audit.Line{Time: e.Time, Event: e.Type.String(), NS: e.NS, Lock: e.Lock, LeaseID: e.LeaseID, Owner: e.Owner, LeasePrincipal: e.Principal, Reason: e.Reason})
				}
			}
		}
		if s != nil {
			s.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
