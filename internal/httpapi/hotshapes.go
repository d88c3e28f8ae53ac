package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"lockkeeper/internal/locks"
)

// The two answers that clients get most are encoded without reflection: a lease and a heartbeat. A test holds the bytes
// against what encoding/json makes of their shapes (shapes.go).

// encodeLease puts a lease into the buffer.
func (o *outgoing) encodeLease(l *locks.Lease) {
	o.out.Reset()
	m := members{append(o.out.AvailableBuffer(), '{')}
	m.text("lease_id", l.ID)
	m.given("token", l.Token)
	m.given("lock", l.Lock)
	m.given("ns", l.NS)
	if len(l.Locks) > 0 {
		m.other("locks", leaseShape(l).Locks)
	}
	m.given("mode", string(l.Mode))
	m.positive("permits", int64(l.Permits))
	m.positive("limit", int64(l.Limit))
	m.text("state", string(l.State))
	m.given("reason", string(l.Reason))
	m.positive("position", int64(l.Position))
	if l.State != locks.Ended {
		m.number("queue_length", int64(l.QueueLength))
	}
	m.positive("fencing_token", l.FencingToken)
	m.millis("ttl_ms", l.TTL)
	if l.State != locks.Ended {
		m.millis("expires_in_ms", l.ExpiresIn)
	}
	if l.LastHeartbeat > 0 {
		m.millis("last_heartbeat_ms", l.LastHeartbeat)
	}
	m.flag("failover_safe", l.FailoverSafe)
	m.given("owner", l.Owner)
	m.given("principal", l.Principal)
	m.given("metadata", l.Metadata)
	if len(l.Holds) > 0 {
		m.other("holds", l.Holds)
	}
	if l.LockDelay > 0 {
		m.positive("lock_delay_ms", millis(l.LockDelay))
		m.given("lock_delay_on", string(l.LockDelayOn))
	}
	if l.Ephemeral {
		m.flag("ephemeral", true)
	}
	m.revocation(l.Revoke)
	m.given("warning", l.Warning)
	m.given("znode", l.Znode)
	m.text("rev", l.Rev)
	m.given("acquire_reason", l.Purpose)
	m.positive("at_least_ms", millis(l.AtLeast))
	once := l.OncePer > 0
	if once {
		m.given("done_on", string(l.DoneOn))
	}
	m.given("ends_at", endsAt(l.EndsAt))
	m.given("notify_secret", l.NotifySecret)
	m.given("notify_url", l.NotifyURL)
	if once {
		m.positive("once_per_ms", millis(l.OncePer))
		m.given("period", l.Period)
	}
	m.positive("reserved_for_ms", millis(l.ReservedFor))
	if l.WaitedKnown {
		m.millis("waited_ms", l.Waited)
	}
	o.out.Write(append(m.b, "}\n"...))
}

// encodeHeartbeat puts the answer to a heartbeat into the buffer.
func (o *outgoing) encodeHeartbeat(h *locks.Heartbeat) {
	o.out.Reset()
	m := members{append(o.out.AvailableBuffer(), '{')}
	m.text("lease_id", h.LeaseID)
	m.text("state", string(h.State))
	m.millis("expires_in_ms", h.ExpiresIn)
	m.millis("ttl_ms", h.TTL)
	m.positive("fencing_token", h.FencingToken)
	m.positive("position", int64(h.Position))
	m.number("waiters", int64(h.Waiters))
	m.revocation(h.Revoke)
	o.out.Write(append(m.b, "}\n"...))
}

// members are those of a JSON object, whose opening brace is there. The object is inert (inert.go).
type members struct{ b []byte }

func (m *members) name(name string) {
	if m.b[len(m.b)-1] != '{' {
		m.b = append(m.b, ',')
	}
	m.b = append(m.b, '"')
	m.b = append(m.b, name...)
	m.b = append(m.b, `":`...)
}

func (m *members) text(name, value string) {
	if !bare(value) {
		m.other(name, value)
		return
	}
	m.name(name)
	m.b = append(m.b, '"')
	m.b = append(m.b, value...)
	m.b = append(m.b, '"')
}

// given adds a text unless it is empty.
func (m *members) given(name, value string) {
	if value != "" {
		m.text(name, value)
	}
}

func (m *members) number(name string, n int64) {
	m.name(name)
	m.b = strconv.AppendInt(m.b, n, 10)
}

// positive adds a number unless it is 0.
func (m *members) positive(name string, n int64) {
	if n != 0 {
		m.number(name, n)
	}
}

func (m *members) millis(name string, d time.Duration) { m.number(name, millis(d)) }

func (m *members) flag(name string, is bool) {
	m.name(name)
	m.b = strconv.AppendBool(m.b, is)
}

func (m *members) revocation(r *locks.Revocation) {
	if r != nil {
		m.other("revoke_requested", revocation(r))
	}
}

// other adds what is rare enough for encoding/json.
func (m *members) other(name string, value any) {
	var doc bytes.Buffer
	e := json.NewEncoder(&doc)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		panic(fmt.Errorf("encoding %s: %w", name, err)) // our own types; only a defect gets here
	}
	m.name(name)
	m.b = appendInert(m.b, bytes.TrimSuffix(doc.Bytes(), []byte("\n")))
}

// bare reports whether a text stands in an inert JSON string as it is.
func bare(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '$' || c == '`' {
			return false
		}
	}
	return true
}
