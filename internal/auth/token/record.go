package token

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	// MaxTokens is how many records a fleet may have.
	MaxTokens = 10_000
	// keepEnded is how long a record stays after its token has expired or was revoked.
	keepEnded = 30 * 24 * time.Hour
	// day is the precision of a last use.
	day = 24 * time.Hour

	maxName = 64
)

// State says whether a token lets a client in.
type State string

// The states of a token.
const (
	Active     State = "active"
	Expired    State = "expired"
	Revoked    State = "revoked"
	Unreadable State = "unreadable" // the record is damaged, or of a later release
)

// Record is what the fleet knows of a token. It is never changed: a change makes another one.
type Record struct {
	ID, Name  string
	Admin     bool // has the built-in role admin, whatever the rules say
	Created   time.Time
	CreatedBy string
	Expires   time.Time // zero: never
	LastUsed  time.Time // the day, at its beginning; zero: never
	RevokedAt time.Time // zero: it is not revoked
	RevokedBy string

	unreadable bool
	hash       hash
	version    int32 // of the node
}

// StateAt is the token's state at a time.
func (r *Record) StateAt(now time.Time) State {
	switch {
	case r.unreadable:
		return Unreadable
	case !r.RevokedAt.IsZero():
		return Revoked
	case !r.Expires.IsZero() && !now.Before(r.Expires):
		return Expired
	}
	return Active
}

// ended reports whether the record has told for long enough that its token has ended.
func (r *Record) ended(now time.Time) bool {
	switch r.StateAt(now) {
	case Revoked:
		return now.Sub(r.RevokedAt) > keepEnded
	case Expired:
		return now.Sub(r.Expires) > keepEnded
	}
	return false
}

// stored is a record as ZooKeeper has it. A later release that adds a field raises the version where this one must not ignore it.
type stored struct {
	V         int    `json:"v"`
	Name      string `json:"name"`
	SHA256    string `json:"sha256,omitempty"`
	Admin     bool   `json:"admin,omitempty"`
	Created   int64  `json:"created_ms"`
	CreatedBy string `json:"created_by"`
	Expires   int64  `json:"expires_ms,omitempty"`
	LastUsed  string `json:"last_used,omitempty"`
	Revoked   int64  `json:"revoked_ms,omitempty"`
	RevokedBy string `json:"revoked_by,omitempty"`
}

const storedVersion = 1

func (r *Record) encode() []byte {
	s := stored{V: storedVersion, Name: r.Name, Admin: r.Admin, Created: r.Created.UnixMilli(), CreatedBy: r.CreatedBy, RevokedBy: r.RevokedBy,
		Expires: millis(r.Expires), Revoked: millis(r.RevokedAt)}
	if r.RevokedAt.IsZero() {
		s.SHA256 = base64.StdEncoding.EncodeToString(r.hash[:])
	}
	if !r.LastUsed.IsZero() {
		s.LastUsed = r.LastUsed.Format(time.DateOnly)
	}
	data, err := json.Marshal(s)
	if err != nil {
		panic("encoding a token's record: " + err.Error()) // it has nothing that could fail
	}
	return data
}

// parse reads a record. One that cannot be understood lets no client in: a field that is not known here may be a condition.
func parse(id string, data []byte, version int32) *Record {
	unreadable := &Record{ID: id, unreadable: true, version: version}
	var s stored
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil || s.V != storedVersion {
		return unreadable
	}
	r := &Record{ID: id, Name: s.Name, Admin: s.Admin, Created: moment(s.Created), CreatedBy: s.CreatedBy, Expires: moment(s.Expires),
		RevokedAt: moment(s.Revoked), RevokedBy: s.RevokedBy, version: version}
	sum, err := base64.StdEncoding.DecodeString(s.SHA256)
	if s.Revoked == 0 && (err != nil || len(sum) != len(r.hash)) || CheckName(s.Name) != nil {
		return unreadable
	}
	copy(r.hash[:], sum)
	if s.LastUsed != "" {
		if r.LastUsed, err = time.Parse(time.DateOnly, s.LastUsed); err != nil {
			return unreadable
		}
	}
	return r
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// CheckName says what is wrong with the name of a token.
func CheckName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("the name of a token must have 1 to %d characters, not %d", maxName, len(name))
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || !bytes.ContainsRune([]byte("-_.:@/"), rune(c))) {
			return errors.New("the name of a token must begin with a letter or a digit, and have letters, digits and - _ . : @ / alone")
		}
	}
	return nil
}
