package recipe

import (
	"encoding/base32"
	"errors"
	"io"
	"strconv"
	"strings"
)

// Tag starts every lease id. With the fleet id it marks the contenders of this fleet.
const Tag = "lk"

// Lengths of ids in characters, five bits each.
const (
	fleetLen   = 8  // 40 bits
	gatewayLen = 13 // 64 bits: the last character carries four of them
	randomLen  = 16 // 80 bits

	fleetAt   = len(Tag)
	gatewayAt = fleetAt + fleetLen
	randomAt  = gatewayAt + gatewayLen

	// LeaseIDLen is the length of a lease id.
	LeaseIDLen = randomAt + randomLen
)

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// FleetID names all gateways that share one root: 40 bits in lower-case base32
// (RFC 4648, section 6, without padding), 8 characters.
type FleetID string

// GatewayID names one ZooKeeper session of one gateway: 64 bits, 13 characters
// of the same alphabet. A new session is a new gateway id.
type GatewayID string

// LeaseID names a lease: the tag "lk", the fleet id, the id of the gateway that
// created it and 80 random bits, 39 characters. It is public.
type LeaseID string

// NewFleetID makes a fleet id of 5 bytes read from random. It returns the reader's error.
func NewFleetID(random io.Reader) (FleetID, error) {
	s, err := generate(random, 5)
	return FleetID(s), err
}

// NewGatewayID makes a gateway id of 8 bytes read from random. It returns the reader's error.
func NewGatewayID(random io.Reader) (GatewayID, error) {
	s, err := generate(random, 8)
	return GatewayID(s), err
}

// NewLeaseID makes a lease id with 10 bytes read from random. The error is the
// reader's, or tells that fleet or gateway is not an id.
//
// The id never ends in a word that other clients look for in front of a dash:
// go-zookeeper could not read any child of a directory with a contender called
// write-v1.lk...lock-__WRIT__0000000005, and its Lock would fail there. One lease
// in a million would have such an id.
func NewLeaseID(fleet FleetID, gateway GatewayID, random io.Reader) (LeaseID, error) {
	if _, err := ParseFleetID(string(fleet)); err != nil {
		return "", err
	}
	if _, err := ParseGatewayID(string(gateway)); err != nil {
		return "", err
	}
	// A buffer that an interface fills is on the heap: it is one allocation with the id.
	b := make([]byte, LeaseIDLen+10)
	id, raw := b[:LeaseIDLen], b[LeaseIDLen:]
	if err := read(random, raw); err != nil {
		return "", err
	}
	copy(id, Tag)
	copy(id[fleetAt:], fleet)
	copy(id[gatewayAt:], gateway)
	encoding.Encode(id[randomAt:], raw)
	for _, word := range []string{"lock", "lease", "latch"} {
		if strings.HasSuffix(string(id[randomAt:]), word) {
			id[LeaseIDLen-1] = 'a'
		}
	}
	return LeaseID(id), nil
}

func generate(random io.Reader, bytes int) (string, error) {
	b := make([]byte, bytes)
	if err := read(random, b); err != nil {
		return "", err
	}
	return encoding.EncodeToString(b), nil
}

func read(random io.Reader, b []byte) error {
	if _, err := io.ReadFull(random, b); err != nil {
		return &idError{what: "making an id: reading random bytes", err: err}
	}
	return nil
}

// ParseFleetID checks that s is a fleet id.
func ParseFleetID(s string) (FleetID, error) {
	if err := check(s, fleetLen, "fleet id"); err != nil {
		return "", err
	}
	return FleetID(s), nil
}

// ParseGatewayID checks that s is a gateway id in the one encoding that its 64
// bits have.
func ParseGatewayID(s string) (GatewayID, error) {
	if err := check(s, gatewayLen, "gateway id"); err != nil {
		return "", err
	}
	if !canonicalGateway(s) {
		return "", &idError{what: "gateway id", err: errNotCanonical}
	}
	return GatewayID(s), nil
}

// ParseLeaseID checks that s is a lease id, of any fleet, in the one
// encoding that its bits have.
func ParseLeaseID(s string) (LeaseID, error) {
	if err := check(s, LeaseIDLen, "lease id"); err != nil {
		return "", err
	}
	if s[:fleetAt] != Tag {
		return "", &idError{what: "lease id", err: errTag}
	}
	if !canonicalGateway(s[gatewayAt:randomAt]) {
		return "", &idError{what: "lease id", err: errNotCanonical}
	}
	return LeaseID(s), nil
}

// Fleet is the fleet that the lease belongs to; "" for what is no lease id.
func (id LeaseID) Fleet() FleetID {
	if len(id) != LeaseIDLen {
		return ""
	}
	return FleetID(id[fleetAt:gatewayAt])
}

// Gateway is the gateway id under which the lease was created; its clock runs
// there or at the end of that id's succession. It is "" for what is no lease id.
func (id LeaseID) Gateway() GatewayID {
	if len(id) != LeaseIDLen {
		return ""
	}
	return GatewayID(id[gatewayAt:randomAt])
}

func check(s string, length int, what string) error {
	if len(s) != length {
		return &idError{what: what, err: errors.New("must have " + strconv.Itoa(length) + " characters, not " + strconv.Itoa(len(s)))}
	}
	for i := range len(s) {
		if !isBase32(s[i]) {
			return &idError{what: what, err: errAlphabet}
		}
	}
	return nil
}

func isBase32(c byte) bool { return 'a' <= c && c <= 'z' || '2' <= c && c <= '7' }

// canonicalGateway tells whether the bit of the 13th character that carries
// nothing is zero, as encoders write it. Thirteen characters have 65 bits; an id
// with two spellings would be two ids.
func canonicalGateway(s string) bool {
	c := s[gatewayLen-1]
	if c >= 'a' {
		return (c-'a')&1 == 0
	}
	return (c-'2')&1 == 0 // 2 stands for 26
}

var (
	errAlphabet     = errors.New("must consist of a-z and 2-7")
	errTag          = errors.New("must start with " + Tag)
	errNotCanonical = errors.New("has unused bits that are not zero")
)

type idError struct {
	what string
	err  error
}

func (e *idError) Error() string { return e.what + ": " + e.err.Error() }
func (e *idError) Unwrap() error { return e.err }
