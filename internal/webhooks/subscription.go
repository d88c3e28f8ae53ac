package webhooks

import (
	"cmp"
	"crypto/rand"
	"crypto/x509"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"lockkeeper/internal/locks/access"
)

// Limits of subscriptions. The specification states the same numbers.
const (
	MaxSubscriptions = 256 // of a fleet: each end is matched with each of them; a maker has MaxOfMaker
	MaxURL           = 2048
	MaxDescription   = 256
	MaxHeaders       = 16
	MaxHeaderBytes   = 2048
	MaxCA            = 16 << 10
	// MaxOverlap is how long an old secret may sign beside its successor.
	MaxOverlap = 7 * 24 * time.Hour
	// DefaultOverlap is the overlap of a rotation that names none.
	DefaultOverlap = 24 * time.Hour
	secretBytes    = 32
	secretPrefix   = "whsec_"
	idPrefix       = "wh_"
)

// The types of messages.
const (
	// Every way in which a lock is released.
	Released  = "lease.released"  // by its client
	Expired   = "lease.expired"   // its client stopped heartbeating
	Cancelled = "lease.cancelled" // its client went away as it was granted
	Unclaimed = "lease.unclaimed" // granted, and not claimed by its client
	Revoked   = "lease.revoked"   // by an administrator
	Removed   = "lease.removed"   // its contender is gone by another hand, or its program's session is over
	Destroyed = "lock.destroyed"  // with its queue

	// What else happens to leases and locks. Granted goes to the notify_url of a lease, too.
	Queued          = "lease.queued"
	Granted         = "lease.granted"
	Updated         = "lease.updated"
	RevokeRequested = "lease.revoke_requested"
	RevokeWithdrawn = "lease.revoke_withdrawn"
	EndingSoon      = "lease.ending" // a reservation ends soon
	HazardAppeared  = "lock.hazard"
	HazardCleared   = "lock.hazard_cleared"

	// Test is what the test of a subscription sends.
	Test = "webhook.test"
)

// Durable are the ends: the transaction that ends a lease writes them into the outbox. A subscription that names no types gets them.
// BestEffort are the types that a subscription gets only when it names them: memory alone holds their messages.
var (
	Durable    = []string{Released, Expired, Cancelled, Unclaimed, Revoked, Removed, Destroyed}
	BestEffort = []string{Queued, Granted, Updated, RevokeRequested, RevokeWithdrawn, EndingSoon, HazardAppeared, HazardCleared}
)

// Subscription is a record in ZooKeeper: a receiver and the ends that are delivered to it.
type Subscription struct {
	ID          string
	URL         string
	Events      []string // of Durable and BestEffort, sorted; none: all that are Durable
	NS          string   // glob; "": every namespace
	Locks       string   // glob; "": every lock
	Owner       string   // glob: of the event's owner; "": any, and none
	Reason      string   // glob: of the word for why a lease ended, or of the text that came with it; "": any, and none
	Purpose     string   // glob: of the reason of the lease's acquire; "": any, and none
	Format      string   // see Formats; "": FormatStandard
	Description string
	Enabled     bool
	Disabled    string   // why the gateway disabled it
	Secrets     []Secret // the newest first
	Headers     map[string]string
	CA          string // PEM; "": the system's
	Created     time.Time
	Maker       *Maker // nil: it was made where no caller was authenticated
	Version     int32  // of its record
	Unread      bool   // there is a record that cannot be read here: what waits for it goes on waiting

	Standing Standing // of the maker, as of now; no part of the record
}

// Secret signs messages.
type Secret struct {
	Value string    `json:"value"`          // whsec_ and base64
	Until time.Time `json:"until,omitzero"` // zero: no end
}

// FieldError names the field of a subscription that is wrong.
type FieldError struct{ Field, Detail string }

func (e *FieldError) Error() string { return e.Field + ": " + e.Detail }

func wrong(field, format string, args ...any) *FieldError {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// NewID is a subscription's id.
func NewID() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return idPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// IsID reports whether s can be a subscription's id.
func IsID(s string) bool {
	rest, ok := strings.CutPrefix(s, idPrefix)
	if !ok || len(rest) != 16 {
		return false
	}
	for _, r := range rest {
		if (r < 'a' || r > 'z') && (r < '2' || r > '7') {
			return false
		}
	}
	return true
}

// NewSecret makes a signing secret, as Standard Webhooks writes them.
func NewSecret() Secret {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:])
	return Secret{Value: secretPrefix + base64.StdEncoding.EncodeToString(b[:])}
}

// Rotate puts a new secret in front. The one before it goes on for overlap, older
// ones end at once: there are never more than two.
func (s *Subscription) Rotate(now time.Time, overlap time.Duration) Secret {
	fresh := NewSecret()
	kept := []Secret{fresh}
	if len(s.Secrets) > 0 && overlap > 0 {
		old := s.Secrets[0]
		old.Until = now.Add(overlap).UTC()
		kept = append(kept, old)
	}
	s.Secrets = kept
	return fresh
}

// Normalize checks a subscription, and brings it into the one form in which it
// is kept. An error is a *FieldError. Types that its record had before may be a later release's: they stay.
func (s *Subscription) Normalize(allowed *Addresses, before ...string) error {
	if err := checkURL(s.URL, allowed); err != nil {
		return err
	}
	slices.Sort(s.Events)
	s.Events = slices.Compact(s.Events)
	for _, event := range s.Events {
		if types := slices.Concat(Durable, BestEffort); !slices.Contains(types, event) && !slices.Contains(before, event) {
			return wrong("events", "there is no event type %q; types are %s", event, strings.Join(types, ", "))
		}
	}
	if err := access.CheckGlob(s.NS); err != nil {
		return wrong("ns", "%s", err)
	}
	if err := access.CheckGlob(s.Locks); err != nil {
		return wrong("locks", "%s", err)
	}
	for field, glob := range map[string]string{"owner": s.Owner, "reason": s.Reason, "acquire_reason": s.Purpose} {
		if len(glob) > access.MaxGlob || strings.Count(glob, "*") > access.MaxStars || !printable(glob) {
			return wrong(field, "must be at most %d bytes of text without control characters, and with at most %d stars, for any characters", access.MaxGlob, access.MaxStars)
		}
	}
	if err := s.normalizeFormat(); err != nil {
		return err
	}
	if len(s.Description) > MaxDescription || !printable(s.Description) {
		return wrong("description", "must be at most %d bytes of text without control characters", MaxDescription)
	}
	if err := s.normalizeHeaders(); err != nil {
		return err
	}
	if s.CA != "" {
		if len(s.CA) > MaxCA {
			return wrong("ca", "must have at most %d bytes", MaxCA)
		}
		if !x509.NewCertPool().AppendCertsFromPEM([]byte(s.CA)) {
			return wrong("ca", "must be one or more certificates in PEM")
		}
	}
	return nil
}

// own are headers that the delivery sets, or that say how a message is framed.
var own = []string{"Host", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade",
	"Te", "Trailer", "Expect", "User-Agent", "Traceparent", "Tracestate", "Proxy-Authorization", "Proxy-Connection"}

func (s *Subscription) normalizeHeaders() error {
	if len(s.Headers) > MaxHeaders {
		return wrong("headers", "must be at most %d", MaxHeaders)
	}
	canonical := make(map[string]string, len(s.Headers))
	total := 0
	for name, value := range s.Headers {
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return wrong("headers", "%q is not the name of a header", name)
		case !httpguts.ValidHeaderFieldValue(value):
			return wrong("headers", "the value of %s must be a valid header value", name)
		}
		key := textproto.CanonicalMIMEHeaderKey(name)
		if slices.Contains(own, key) || strings.HasPrefix(key, "Webhook-") {
			return wrong("headers", "%s is set by the delivery itself", key)
		}
		if _, twice := canonical[key]; twice {
			return wrong("headers", "%s is there twice", key)
		}
		canonical[key] = value
		total += len(name) + len(value)
	}
	if total > MaxHeaderBytes {
		return wrong("headers", "must have at most %d bytes together", MaxHeaderBytes)
	}
	if len(canonical) == 0 {
		canonical = nil
	}
	s.Headers = canonical
	return nil
}

func checkURL(raw string, allowed *Addresses) error {
	if raw == "" || len(raw) > MaxURL {
		return wrong("url", "must be an http:// or https:// address of at most %d bytes", MaxURL)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }):
		return wrong("url", "must be a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return wrong("url", "must begin with http:// or https://")
	case u.Opaque != "" || u.Hostname() == "":
		return wrong("url", "must name a host")
	case u.User != nil:
		return wrong("url", "must not have a user or a password, which would be shown with it: use headers")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return wrong("url", "must not have a fragment, which is never sent")
	case u.Path == shownPath && u.RawQuery == "":
		return wrong("url", "must not be the shortened form that readers see: leave it out to keep the address, or give all of it")
	case u.Port() == "" && strings.HasSuffix(u.Host, ":"):
		return wrong("url", "must not have an empty port")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return wrong("url", "the port must be a number from 1 to 65535")
		}
	}
	if err := allowed.CheckHost(u.Hostname()); err != nil {
		return wrong("url", "%s", err)
	}
	return nil
}

// shownPath stands for the path and the query of a URL.
const shownPath = "/..."

// ShownURL is a URL as readers see it: scheme, host and port. At many receivers the path is the secret.
func ShownURL(raw string) string {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "":
		return shownPath
	case (u.Path == "" || u.Path == "/") && u.RawQuery == "" && !u.ForceQuery:
		return u.Scheme + "://" + u.Host + u.Path
	}
	return u.Scheme + "://" + u.Host + shownPath
}

// SameTarget reports whether both URLs have the same scheme, host, port and path. On a shared host another path is another's receiver.
func SameTarget(a, b string) bool {
	u, err := url.Parse(a)
	v, err2 := url.Parse(b)
	path := func(u *url.URL) string { return cmp.Or(u.EscapedPath(), "/") }
	return err == nil && err2 == nil && u.Scheme == v.Scheme && strings.EqualFold(u.Host, v.Host) && path(u) == path(v)
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Wants reports whether such an event is delivered to the subscription.
func (s *Subscription) Wants(e *Event) bool {
	named := slices.Contains(s.Events, e.Type) || len(s.Events) == 0 && slices.Contains(Durable, e.Type)
	return s.active() && named && access.Match(cmp.Or(s.NS, "*"), e.NS) && access.Match(cmp.Or(s.Locks, "*"), e.Lock) && s.selects(e) && s.mayGet(e.NS, e.Lock)
}

// selects reports whether owner and reasons are those that the subscription asks for. An event without them is for one that asks
// for none.
func (s *Subscription) selects(e *Event) bool {
	given := func(glob, text string) bool { return text != "" && access.Match(glob, text) }
	return (s.Owner == "" || given(s.Owner, e.Owner)) && (s.Purpose == "" || given(s.Purpose, e.Purpose)) && (s.Reason == "" || given(s.Reason, e.Reason) || given(s.Reason, e.Detail))
}

// Deliveries are the subscription's types by how they are delivered. A later release's type is in neither list.
func (s *Subscription) Deliveries() (durable, bestEffort []string) {
	durable, bestEffort = []string{}, []string{}
	for _, event := range s.Events {
		switch {
		case slices.Contains(Durable, event):
			durable = append(durable, event)
		case slices.Contains(BestEffort, event):
			bestEffort = append(bestEffort, event)
		}
	}
	if len(s.Events) == 0 {
		durable = slices.Sorted(slices.Values(Durable))
	}
	return durable, bestEffort
}

// wantsBestEffort reports whether any best-effort event may go to the subscription.
func (s *Subscription) wantsBestEffort() bool {
	_, bestEffort := s.Deliveries()
	return s.active() && len(bestEffort) > 0
}

// signing are the secrets that sign at a moment.
func (s *Subscription) signing(now time.Time) []string {
	var values []string
	for _, secret := range s.Secrets {
		if secret.Until.IsZero() || now.Before(secret.Until) {
			values = append(values, secret.Value)
		}
	}
	return values
}

// record is how a subscription is kept. Version 2 has a maker. A gateway of a release that does not decide by makers cannot read
// it, so it delivers nothing to it, and writes no record without the maker. Version 3 may have one, and says what is sent in which
// form: a gateway that does not know of that would send what is not asked for, in a form that its receiver does not take.
type record struct {
	Version     int               `json:"v"`
	URL         string            `json:"url"`
	Events      []string          `json:"events,omitempty"`
	NS          string            `json:"ns,omitempty"`
	Locks       string            `json:"locks,omitempty"`
	Description string            `json:"description,omitempty"`
	Enabled     bool              `json:"enabled"`
	Disabled    string            `json:"disabled,omitempty"`
	Secrets     []Secret          `json:"secrets"`
	Headers     map[string]string `json:"headers,omitempty"`
	CA          string            `json:"ca,omitempty"`
	Created     int64             `json:"created_ms"`
	Maker       *Maker            `json:"maker,omitempty"`
	Owner       string            `json:"owner,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	Format      string            `json:"format,omitempty"`
	Purpose     string            `json:"purpose,omitempty"`
}

const (
	recordVersion     = 1
	recordWithAMaker  = 2
	recordWithAFormat = 3
)

// Record is the data of a subscription's node. It holds its secrets.
func (s *Subscription) Record() []byte {
	version := recordVersion
	switch {
	case s.Owner != "" || s.Reason != "" || s.Purpose != "" || s.Format != "":
		version = recordWithAFormat
	case s.Maker != nil:
		version = recordWithAMaker
	}
	data, err := json.Marshal(record{version, s.URL, s.Events, s.NS, s.Locks, s.Description, s.Enabled, s.Disabled,
		s.Secrets, s.Headers, s.CA, s.Created.UnixMilli(), s.Maker, s.Owner, s.Reason, s.Format, s.Purpose})
	if err != nil {
		panic("encoding a subscription: " + err.Error()) // strings, numbers and times only
	}
	return data
}

// errNewer: a later release wrote it.
var errNewer = errors.New("a newer gateway wrote it: upgrade this one")

// ParseRecord reads the data of a subscription's node. Members that it does not
// know are a later release's business; a later version is an error.
func ParseRecord(id string, data []byte, version int32) (*Subscription, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("the record of webhook %s is damaged", id) // the cause would quote from it
	}
	switch {
	case r.Version > recordWithAFormat:
		return nil, fmt.Errorf("webhook %s: %w", id, errNewer)
	case r.Version == recordWithAMaker && r.Maker == nil, r.Maker != nil && (r.Maker.Name == "" || r.Version < recordWithAMaker):
		return nil, fmt.Errorf("the record of webhook %s is damaged: it must say who made it", id)
	}
	return &Subscription{ID: id, URL: r.URL, Events: r.Events, NS: r.NS, Locks: r.Locks, Description: r.Description, Enabled: r.Enabled,
		Disabled: r.Disabled, Secrets: r.Secrets, Headers: r.Headers, CA: r.CA, Created: time.UnixMilli(r.Created).UTC(), Maker: r.Maker, Owner: r.Owner, Reason: r.Reason, Format: r.Format, Purpose: r.Purpose, Version: version}, nil
}
