package check

import "time"

// Kind is what a request asked for.
type Kind string

// The kinds.
const (
	Acquire   Kind = "acquire"
	Heartbeat Kind = "heartbeat"
	Poll      Kind = "poll"
	Release   Kind = "release"
)

// Mode is how a lock is held.
type Mode string

// The modes.
const (
	Exclusive Mode = "exclusive"
	Shared    Mode = "shared"
	Semaphore Mode = "semaphore"
)

// Op is one request as its client saw it. Times count from the beginning of the run, on the clients' one monotonic clock.
type Op struct {
	Client  int           `json:"client"`
	Attempt string        `json:"attempt"`
	Kind    Kind          `json:"kind"`
	Lock    string        `json:"lock"`
	Mode    Mode          `json:"mode"`
	Permits int           `json:"permits,omitempty"` // of a semaphore
	Limit   int           `json:"limit,omitempty"`
	TTL     time.Duration `json:"ttl"`
	Via     string        `json:"via"` // which way it went, for the reader
	Sent    time.Duration `json:"sent"`
	Done    time.Duration `json:"done"` // the answer was there, or the client gave up

	Status  int           `json:"status,omitempty"` // 0: no answer
	Code    string        `json:"code,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	State   string        `json:"state,omitempty"`
	LeaseID string        `json:"lease,omitempty"`
	Token   int64         `json:"token,omitempty"`  // the fencing token
	Number  int           `json:"number,omitempty"` // of its znode, plus one; 0 is not known
	Left    time.Duration `json:"left,omitempty"`   // what the answer said that is left to live
}

// success says that the request found its lease alive.
func (o *Op) success() bool {
	return o.Kind != Release && o.Status >= 200 && o.Status < 300 && (o.State == "held" || o.State == "waiting")
}

// ended says that the answer tells of the lease's end. A release that is answered 204 tells of none: it makes one.
func (o *Op) ended() bool { return o.Status == 410 || o.Status == 200 && o.State == "ended" }

// Listing is a look at a lock's queue that began with Sent and shows a state that is not older than that.
type Listing struct {
	Lock       string        `json:"lock"`
	Sent       time.Duration `json:"sent"`
	Done       time.Duration `json:"done"`
	Contenders []Contender   `json:"contenders"`
}

// Contender is one entry of a queue.
type Contender struct {
	LeaseID string `json:"lease"`
	Attempt string `json:"attempt"` // its owner label; empty when the look could not tell
	Holds   bool   `json:"holds,omitempty"`
}

// Span is a time in which something was broken: from when it began to break until all of it was at work again.
type Span struct {
	Kind string        `json:"kind"`
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
}

// History is a whole run.
type History struct {
	Ops      []Op      `json:"ops"`
	Listings []Listing `json:"listings"`
	Spans    []Span    `json:"spans"`
}

// Times are what the fleet was set up with.
type Times struct {
	Session time.Duration // session timeout
	Window  time.Duration // promise window
}

// Violation is one broken promise.
type Violation struct {
	Rule   string        `json:"rule"`
	Lock   string        `json:"lock"`
	At     time.Duration `json:"at"`
	Detail string        `json:"detail"`
}
