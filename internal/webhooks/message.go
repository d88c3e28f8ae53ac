package webhooks

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"lockkeeper/internal/fault"
)

// Event is what a message tells: the API's event, as it was when it happened.
type Event struct {
	Type         string    `json:"type"`
	Time         time.Time `json:"time"`
	NS           string    `json:"ns"`
	Lock         string    `json:"lock"`
	LeaseID      string    `json:"lease_id,omitempty"`
	Program      string    `json:"program,omitempty"` // of another program's contender
	Znode        string    `json:"znode,omitempty"`
	Owner        string    `json:"owner,omitempty"`
	Mode         string    `json:"mode,omitempty"`
	FencingToken int64     `json:"fencing_token,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	Detail       string    `json:"detail,omitempty"`
	Gateway      string    `json:"gateway,omitempty"`
	Waiting      bool      `json:"waiting,omitempty"` // it never held; told only to its notify_url
}

// Notice is one event and who is to be told of it.
type Notice struct {
	Event Event `json:"event"`
	To    []int `json:"to"` // indices into Entry.Subscriptions
}

// Entry is what the outbox keeps: one end of a lease, in all its locks, with the
// subscriptions that had asked for it when it ended. It is a node of its own,
// created in the transaction that ends the lease and named by the lease, so that it
// cannot be there twice.
type Entry struct {
	Name          string   // of its node; not part of the data
	Order         int64    // the transaction that created it; not part of the data
	Version       int      `json:"v"`
	Subscriptions []string `json:"subscriptions"`
	Notices       []Notice `json:"notices"`
	TraceParent   string   `json:"traceparent,omitempty"` // of the request that ended it
	Dead          []Dead   `json:"dead,omitempty"`

	Dropped bool     `json:"-"` // there was no room for it: it is in no transaction
	LeftOut []string `json:"-"` // subscriptions that wanted to be told and have more than their share of the outbox waiting
}

// Dead is a message that had its last try.
type Dead struct {
	Notice       int       `json:"notice"`
	Subscription int       `json:"subscription"`
	At           time.Time `json:"at"`
	Attempts     int       `json:"attempts"`
	Error        string    `json:"error"`
}

const entryVersion = 1

// maxEntry bounds an entry, half of what a transaction takes: in the same one the lease's nodes are deleted, and one
// that is too large would never commit. Only a lease of dozens of locks, with the longest names and words, comes near it.
const maxEntry = 128 << 10

// slim leaves out what receivers can do without.
func (e *Entry) slim() {
	for i := range e.Notices {
		n := &e.Notices[i].Event
		n.Znode, n.Owner, n.Detail = "", "", ""
	}
}

// Data is the data of the entry's node.
func (e *Entry) Data() []byte {
	e.Version = entryVersion
	data, err := json.Marshal(e)
	if err != nil {
		panic("encoding an outbox entry: " + err.Error()) // strings, numbers and times only
	}
	return data
}

// ParseEntry reads the data of an outbox entry's node.
func ParseEntry(name string, order int64, data []byte) (*Entry, error) {
	e := &Entry{}
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("outbox entry %s: %w", name, err)
	}
	if e.Version > entryVersion {
		return nil, fmt.Errorf("outbox entry %s: %w", name, errNewer)
	}
	e.Name, e.Order = name, order
	in := func(i int, n int) bool { return 0 <= i && i < n }
	for _, n := range e.Notices {
		for _, to := range n.To {
			if !in(to, len(e.Subscriptions)) {
				return nil, fmt.Errorf("outbox entry %s: %w", name, errDamaged)
			}
		}
	}
	for _, d := range e.Dead {
		if !in(d.Notice, len(e.Notices)) || !in(d.Subscription, len(e.Subscriptions)) {
			return nil, fmt.Errorf("outbox entry %s: %w", name, errDamaged)
		}
	}
	return e, nil
}

var errDamaged = errors.New("it names what it does not have")

// MessageID is the webhook-id of what an entry tells a subscription of one lock: the
// same whoever sends it and how often. It follows from what is told and not from where that stands: of one end two gateways
// may have seen more or less (PartEntry).
func MessageID(entry string, e *Event, subscription string) string {
	if fault.On("hooks-id") {
		subscription += time.Now().String()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %q %s", wholeOf(entry), e.NS, e.Lock, subscription))
	return "msg_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// Body is what is sent: Standard Webhooks' form. It is the same each time.
func (e *Event) Body() []byte {
	body, err := json.Marshal(struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      *Event    `json:"data"`
	}{e.Type, e.Time, e})
	if err != nil {
		panic("encoding a message: " + err.Error())
	}
	return body
}
