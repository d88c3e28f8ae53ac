package webhooks

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"lockkeeper/internal/fault"
)

// Event is the content of a message: the API's event, as it was when it happened.
type Event struct {
	Type         string    `json:"type"`
	Time         time.Time `json:"time"`
	NS           string    `json:"ns"`
	Lock         string    `json:"lock"`
	LeaseID      string    `json:"lease_id,omitempty"`
	Program      string    `json:"program,omitempty"` // of another program's contender
	Znode        string    `json:"znode,omitempty"`
	Owner        string    `json:"owner,omitempty"`
	Principal    string    `json:"principal,omitempty"` // that took the lease
	Mode         string    `json:"mode,omitempty"`
	FencingToken int64     `json:"fencing_token,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	Detail       string    `json:"detail,omitempty"`
	By           string    `json:"by,omitempty"`       // who ended it or asked for it; "" for a lease of several locks
	Code         string    `json:"code,omitempty"`     // of a hazard
	Programs     []string  `json:"programs,omitempty"` // of a hazard
	Gateway      string    `json:"gateway,omitempty"`
	Waiting      bool      `json:"waiting,omitempty"` // it never held; delivered only to its notify_url
	Purpose      string    `json:"acquire_reason,omitempty"`
}

// Notice is one event and its receivers.
type Notice struct {
	Event Event `json:"event"`
	To    []int `json:"to"` // indices into Entry.Subscriptions
}

// Entry is what the outbox keeps: one end of a lease, in all its locks, with the
// subscriptions in force when it ended. Its node is
// created in the transaction that ends the lease and named by the lease, so it
// cannot be there twice.
type Entry struct {
	Name          string   `json:"-"` // of its node
	Order         int64    `json:"-"` // the transaction that created it
	Version       int      `json:"v"`
	Subscriptions []string `json:"subscriptions"`
	Notices       []Notice `json:"notices"`
	TraceParent   string   `json:"traceparent,omitempty"` // of the request that ended it
	Dead          []Dead   `json:"dead,omitempty"`

	Dropped bool     `json:"-"` // there was no room for it: no transaction creates it
	LeftOut []string `json:"-"` // subscriptions that have more than their share of the outbox waiting
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

// slim leaves out optional fields.
func (e *Entry) slim() {
	for i := range e.Notices {
		n := &e.Notices[i].Event
		n.Znode, n.Owner, n.Detail, n.By, n.Purpose = "", "", "", "", ""
	}
}

// Data is the data of the entry's node.
func (e *Entry) Data() []byte {
	e.Version = entryVersion
	b := make([]byte, 0, 256+512*len(e.Notices))
	b = strconv.AppendInt(append(b, `{"v":`...), entryVersion, 10)
	b = append(b, `,"subscriptions":`...)
	b = appendList(b, len(e.Subscriptions), func(b []byte, i int) []byte { return appendString(b, e.Subscriptions[i]) })
	b = append(b, `,"notices":`...)
	b = appendList(b, len(e.Notices), func(b []byte, i int) []byte { return appendNotice(b, &e.Notices[i]) })
	b = appendMember(b, `,"traceparent":`, e.TraceParent)
	if len(e.Dead) > 0 {
		dead, err := json.Marshal(e.Dead)
		if err != nil {
			panic("encoding dead letters: " + err.Error()) // strings, numbers and times only
		}
		b = append(append(b, `,"dead":`...), dead...)
	}
	return append(b, '}')
}

func appendNotice(b []byte, n *Notice) []byte {
	b = appendEvent(append(b, `{"event":`...), &n.Event)
	b = append(b, `,"to":`...)
	b = appendList(b, len(n.To), func(b []byte, i int) []byte { return strconv.AppendInt(b, int64(n.To[i]), 10) })
	return append(b, '}')
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

var errDamaged = errors.New("the entry is damaged: an index is out of range")

// MessageID is the webhook-id of an entry's message about one lock to a subscription: the
// same for each gateway and attempt. It depends on the content and not on the entry: of one end two gateways
// may have seen more or less (PartEntry).
func MessageID(entry string, e *Event, subscription string) string {
	if fault.On("hooks-id") {
		subscription += time.Now().String()
	}
	b := append(make([]byte, 0, 256), wholeOf(entry)...)
	b = strconv.AppendQuote(append(b, ' '), e.NS)
	b = strconv.AppendQuote(append(b, ' '), e.Lock)
	b = append(append(b, ' '), subscription...)
	sum := sha256.Sum256(b)
	return string(lowerBase32.AppendEncode([]byte("msg_"), sum[:16]))
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Body is what is sent: Standard Webhooks' form. It is the same each time.
func (e *Event) Body() []byte {
	b := appendString(append(make([]byte, 0, 512), `{"type":`...), e.Type)
	b = appendTime(append(b, `,"timestamp":`...), e.Time)
	b = appendEvent(append(b, `,"data":`...), e)
	return append(b, '}')
}
