package fleet

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/zk/layout"
)

// Header holds the seal of a request or an answer.
const Header = "Lockkeeper-Fleet"

// The first word of a seal says which fields it has: one that names a caller has two more. keyInfo is the HKDF info that
// separates the keys of seals from others derived from the cluster secret.
const (
	withoutCaller = "2"
	withCaller    = "3"
	keyInfo       = "lockkeeper fleet 1"
)

// SealLife is how long a request with a seal is on its way at most. Longer answers keep the key that they began with.
const SealLife = time.Minute

// The versions of seals. A gateway's registration has the newest one that it acts by: Seals where it asks what callers may do,
// and SealsWithoutCaller where it asks for no credential, because it would do for each caller what that one asks.
const (
	Seals              = 3
	SealsWithoutCaller = 2
)

// covered are the headers of a request that a seal covers; Open removes the others.
var covered = []string{"Accept", "Content-Encoding", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Lease-Token", "Traceparent"}

// answered are the headers of an answer that the client gets.
var answered = []string{"Allow", "Content-Type", "Etag", "Idempotency-Replayed", "Location", "Retry-After", "Www-Authenticate"}

// ErrSeal is the error of Open for a seal that is not genuine.
var ErrSeal = errors.New("the seal is not genuine")

// Keys make and check seals. They are immutable and safe for concurrent use.
type Keys struct{ keys []key }

type key struct {
	id     string
	secret []byte
}

// NewKeys derives the keys for seals from those of the cluster secret. The first one seals, and any opens.
func NewKeys(secret []layout.TokenKey) (*Keys, error) {
	if len(secret) == 0 {
		return nil, errors.New("the cluster secret has no key")
	}
	k := &Keys{}
	for _, s := range secret {
		derived, err := hkdf.Key(sha256.New, s.Key, nil, keyInfo, sha256.Size)
		if err != nil {
			return nil, fmt.Errorf("deriving a key: %w", err)
		}
		k.keys = append(k.keys, key{id: s.ID, secret: derived})
	}
	return k, nil
}

// Seal describes a request that a gateway sends to another one.
type Seal struct {
	From, To string // gateway ids; only the gateway whose id is To at that moment may act on the request
	Zxid     int64  // the last one that From has seen
	Lease    string // the lease that it is about; "" when there are several, or none
	Request  string // its id in the logs of both
	Client   string // the client's address, for the log; "" when unknown

	// Caller is the name of the caller that From has authenticated, and Roles are the caller's; "" where From authenticates
	// none, or no caller is concerned.
	Caller string
	Roles  []string

	// Sender and Number are this request's alone. Fleet fills them in, and From and Registered.
	Sender     string // one process' Fleet, by a random name
	Number     uint64 // rises by one with each request that it sends
	Registered int64  // a zxid that is not before From's registration

	key string // id of the key that it was made with
	mac []byte
}

// version is the first word of the seal.
func (s *Seal) version() string {
	if s.Caller == "" {
		return withoutCaller
	}
	return withCaller
}

// text is the seal without its MAC.
func (s *Seal) text() string {
	var b strings.Builder
	b.WriteString(s.version())
	for _, field := range []struct{ name, value string }{
		{"key", s.key}, {"from", s.From}, {"to", s.To}, {"sender", s.Sender}, {"number", fmt.Sprintf("%016x", s.Number)}, {"registered", strconv.FormatInt(s.Registered, 10)},
		{"zxid", strconv.FormatInt(s.Zxid, 10)}, {"lease", s.Lease}, {"request", s.Request}, {"client", s.Client},
	} {
		b.WriteString(" " + field.name + "=" + field.value)
	}
	if s.Caller != "" {
		b.WriteString(" caller=" + base64.RawURLEncoding.EncodeToString([]byte(s.Caller)) + " roles=" + strings.Join(s.Roles, ","))
	}
	return b.String()
}

// Know reports whether the key of a seal is still one of the fleet's.
func (k *Keys) Know(s *Seal) bool {
	return slices.ContainsFunc(k.keys, func(key key) bool { return key.id == s.key })
}

// Close puts the seal on a request with that body.
func (k *Keys) Close(s *Seal, r *http.Request, body []byte) {
	s.key = k.keys[0].id
	s.mac = s.sum(k.keys[0].secret, r, body)
	r.Header[Header] = []string{s.text() + " mac=" + base64.RawURLEncoding.EncodeToString(s.mac)}
}

// Open checks the seal of a request with that body and removes the headers
// that it does not cover. Its error is ErrSeal, wrapped with what is wrong.
func (k *Keys) Open(r *http.Request, body []byte) (*Seal, error) {
	values := r.Header[Header]
	if len(values) != 1 {
		return nil, fmt.Errorf("%w: there must be exactly one", ErrSeal)
	}
	s, err := parse(values[0])
	if err != nil {
		return nil, err
	}
	for _, key := range k.keys {
		if key.id != s.key {
			continue
		}
		if !hmac.Equal(s.mac, s.sum(key.secret, r, body)) {
			return nil, fmt.Errorf("%w: it must be of this request", ErrSeal)
		}
		strip(r.Header)
		return s, nil
	}
	return nil, fmt.Errorf("%w: its key must be one of this fleet", ErrSeal)
}

// strip leaves what a seal covers.
func strip(h http.Header) {
	kept := make(http.Header, len(covered))
	for _, name := range covered {
		if values := h[name]; values != nil {
			kept[name] = values
		}
	}
	clear(h)
	for name, values := range kept {
		h[name] = values
	}
}

// maxSeal bounds a seal, in bytes.
const maxSeal = 4096

// sealField is a field of a seal's text.
type sealField struct {
	name string
	to   *string
}

func parse(text string) (*Seal, error) {
	wrong := fmt.Errorf("%w: it must be one of this version", ErrSeal)
	sealed, mac, ok := strings.Cut(text, " mac=")
	if !ok || len(text) > maxSeal {
		return nil, wrong
	}
	words := strings.Split(sealed, " ")
	s := &Seal{}
	var number, registered, zxid, caller, roles string
	fields := []sealField{
		{"key", &s.key}, {"from", &s.From}, {"to", &s.To}, {"sender", &s.Sender}, {"number", &number}, {"registered", &registered},
		{"zxid", &zxid}, {"lease", &s.Lease}, {"request", &s.Request}, {"client", &s.Client},
	}
	if words[0] == withCaller {
		fields = append(fields, sealField{"caller", &caller}, sealField{"roles", &roles})
	}
	if len(words) != len(fields)+1 || words[0] != withCaller && words[0] != withoutCaller {
		return nil, wrong
	}
	for i, field := range fields {
		if *field.to, ok = strings.CutPrefix(words[i+1], field.name+"="); !ok {
			return nil, wrong
		}
	}
	var err, e2, e3 error
	s.Number, err = strconv.ParseUint(number, 16, 64)
	s.Registered, e2 = strconv.ParseInt(registered, 10, 64)
	s.Zxid, e3 = strconv.ParseInt(zxid, 10, 64)
	if err != nil || e2 != nil || e3 != nil {
		return nil, wrong
	}
	if s.mac, err = base64.RawURLEncoding.Strict().DecodeString(mac); err != nil {
		return nil, wrong
	}
	name, err := base64.RawURLEncoding.Strict().DecodeString(caller)
	if err != nil {
		return nil, wrong
	}
	if s.Caller = string(name); roles != "" {
		s.Roles = strings.Split(roles, ",")
	}
	if s.text() != sealed {
		return nil, wrong // one spelling
	}
	return s, nil
}

// sum is the MAC of a request under the seal. Each part is preceded by its length, so
// no two requests have the same bytes.
func (s *Seal) sum(secret []byte, r *http.Request, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	digest := sha256.Sum256(body)
	write(h, "request", s.text(), r.Method, r.URL.RequestURI(), string(digest[:]))
	writeHeader(h, r.Header, covered)
	return h.Sum(nil)
}

// CloseAnswer puts a seal on the answer to a request that Open has accepted.
func (k *Keys) CloseAnswer(s *Seal, status int, header http.Header, body []byte) {
	for _, key := range k.keys {
		if key.id == s.key {
			header[Header] = []string{s.version() + " mac=" + base64.RawURLEncoding.EncodeToString(s.sumAnswer(key.secret, status, header, body))}
		}
	}
}

// OpenAnswer checks the seal of the answer to a request.
func (k *Keys) OpenAnswer(s *Seal, status int, header http.Header, body []byte) error {
	values := header[Header]
	if len(values) != 1 {
		return fmt.Errorf("%w: the answer must have one", ErrSeal)
	}
	text, ok := strings.CutPrefix(values[0], s.version()+" mac=")
	mac, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil {
		return fmt.Errorf("%w: the answer's must be one of this version", ErrSeal)
	}
	for _, key := range k.keys {
		if key.id == s.key && hmac.Equal(mac, s.sumAnswer(key.secret, status, header, body)) {
			return nil
		}
	}
	return fmt.Errorf("%w: the answer's must be of this answer", ErrSeal)
}

// sumAnswer is the MAC of an answer: it names the request by its own MAC.
func (s *Seal) sumAnswer(secret []byte, status int, header http.Header, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	digest := sha256.Sum256(body)
	write(h, "answer", string(s.mac), strconv.Itoa(status), string(digest[:]))
	writeHeader(h, header, answered)
	return h.Sum(nil)
}

func writeHeader(h hash.Hash, header http.Header, names []string) {
	for _, name := range names {
		values := header[name]
		write(h, name, strconv.Itoa(len(values)))
		write(h, values...)
	}
}

func write(h hash.Hash, parts ...string) {
	for _, part := range parts {
		writePart(h, part)
	}
}

func writePart[T string | []byte](h hash.Hash, part T) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(part)))
	h.Write(n[:])
	h.Write([]byte(part))
}
