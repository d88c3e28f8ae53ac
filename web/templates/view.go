// Package templates is the dashboard's HTML: templ components and the values
// that they show. It knows nothing of locks or ZooKeeper; internal/dashboard
// fills the values in.
//
// A page is a frame and fragments. A fragment is an element with an id that is
// pushed again whole whenever what it shows has changed, rendered once for all
// viewers, and morphed into the page. So nothing in a fragment may depend
// on the viewer, and times are instants (the page counts them down itself).
//
// A push is the fragments that changed, one after the other, as they render: each
// root carries its id and hx-swap-oob="outerMorph". A poll's answer is the same
// with all fragments of the page. web/static/README.md has the whole contract.
package templates

//go:generate go tool templ generate -path .

import "time"

// Page is what the frame around each page needs.
type Page struct {
	Title  string
	Status Status
	// Live is the URL of the socket that pushes this page's fragments, Poll
	// that of the same fragments as one document, for when there is no socket.
	Live, Poll string
	// Assets are the URLs of web/static by file name, with a version in them.
	Assets map[string]string
	// Sheet is a stylesheet of web/static that the page needs besides; "" for none.
	Sheet string
	// Pages are those of the dashboard that the navigation leads to; Here is the address of the one to which this page belongs.
	Pages []Link
	Here  string
	// Viewer is who looks at the page; nil: the gateway asks for no credential. It is no part of a fragment.
	Viewer *Viewer
	// Credential: programs must show the gateway one.
	Credential bool
	// Bare: the page is for a browser without a session. It says nothing about the gateway.
	Bare bool
}

// Frame is the page's frame, for what has a Page in it.
func (p *Page) Frame() *Page { return p }

// Viewer is who looks at a page.
type Viewer struct {
	Name   string
	LogIn  string // URL that leads to a session and back; "" for one that has a session
	LogOut bool   // it has a session, which ends when its user asks for it
}

// Status is the state of gateway and ZooKeeper, on every page: fragment "status".
type Status struct {
	GatewayID string // "" while there is no session
	Version   string
	Build     string // differs when web/static does: a page of another build is loaded again
	Started   time.Time
	Now       time.Time // of the gateway: pages correct their own clock by it
	// ZooKeeper is "connected", "suspended" (the connection is lost, the session
	// may live on) or "none".
	ZooKeeper      string
	Embedded       bool // ZooKeeper is part of the gateway
	Servers        []string
	Root           string
	Trusted        bool // ZooKeeper has confirmed the gateway's writes within the promise window
	PromiseWindow  time.Duration
	ReplicaCurrent bool   // the data is not older than the promise window
	Serving        bool   // both, and connected: everything works
	Partial        bool   // totals are left out: they would count locks that viewers may not read
	Rules          string // differs when other things may be read and done: a page of other rules is loaded again
	Locks          int    // in use in all namespaces
	Contenders     int    // that hold or wait, foreign ones too
	Held, Waiting  int    // leases whose clock this gateway runs
	Hazards        int    // locks with a hazard
	HazardsURL     string // shows them, or the namespaces in which they are
}

// Who names a contender in one line.
type Who struct {
	Owner   string // as the client gave it: anything but control characters
	LeaseID string // "" when foreign
	Foreign bool
	Program string // of a foreign one, "" when not known
	Delayed bool   // its lease has ended, and its place stays for its lock delay
	Purpose string // the reason that its acquire gave
}

// LockRow is one lock of the overview.
type LockRow struct {
	NS, Name string
	URL      string // of its page
	// State is "free", "held", "unclaimed" (granted, and not yet claimed by its
	// client), "queued" (waiters and no holder) or "delayed" (released,
	// and kept for its last holder's lock delay).
	State       string
	Mode        string // of the holders; "" without one
	Permits     int    // that are taken, of Limit; with mode "semaphore"
	Limit       int
	Holders     []Who // the first few
	HolderCount int
	Waiting     int
	HeldSince   time.Time // zero when not known
	// HeldLonger: it has been held since before this gateway looked; HeldSince
	// is then the latest time at which the hold can have begun, HeldEarliest the earliest (zero when not known).
	HeldLonger   bool
	HeldEarliest time.Time
	ExpiresAt    time.Time // of a single holder's clock; zero when not known
	Hazards      int
	Usual        *Usual // for how long it is held, as a rule; nil when not known
	Trend        Trend  // of its queue
	Pinned       bool   // it stands among those that the viewer has pinned
}

// Trend is how long a queue was in the last hour, minute by minute.
type Trend struct {
	Points string // of a line 59 wide and 9 high; "" when it is not known, or nothing waited
	Most   int    // the longest it was in the mean of a minute
}

// Overview is the list of locks. Its fragments: "deadlocks", "locks" (the table and the
// pager). The filter's form is outside of them, so that typing is not disturbed.
type Overview struct {
	Page
	Query      string // part of a lock's name
	State      string // "" for all, "hazard" for those with a hazard
	NS         string
	Namespaces []string
	Rows       []LockRow
	First      string // URL of the first page, "" when this is it
	Next       string // URL of the next page, "" when this is the last
	MayTake    bool   // viewers may take a lock with any name here
	Deadlocks  []Deadlock
	// MoreDeadlocks are not in Deadlocks.
	MoreDeadlocks int
	Attention     Attention
	Hazardous     int // locks with a hazard; 0 where the page does not say
	HazardousURL  string
	Sort          string // "" by name, or as the API has it
	Total         int    // locks of the list; 0 when not known
	// Problem says in a sentence why there are no rows to show although there
	// may be locks ("" normally): ZooKeeper has not been reached yet.
	Problem string
}

// Contender is one entry of a queue.
type Contender struct {
	Who
	Position     int // among the waiters, from 1; 0 for a holder
	Mode         string
	Permits      int // 0 unless a semaphore's
	Limit        int // of the semaphore when it was enqueued; 0 when not known
	Znode        string
	FencingToken int64         // holders; 0 while it is not known
	Since        time.Time     // when it queued; zero when not known
	HeldSince    time.Time     // holders; zero when not known
	HeldLonger   bool          // as in LockRow
	HeldEarliest time.Time     // as in LockRow
	ExpiresAt    time.Time     // when its clock runs out unless it heartbeats, or its lock delay; zero when another gateway or program knows
	Clock        time.Duration // what ExpiresAt counts down from; 0 when not known
	Unclaimed    bool
	BeatAt       time.Time // its client's last heartbeat; zero when this gateway has not heard of one
	Late         bool      // more than half of its time has passed without a heartbeat
	Usual        *Usual    // of a holder; nil when too little is known
	Expected     *Expected // of a waiter; nil: not known
	Ended        string    // with Delayed: how its lease ended, "expired"
	Holds        []string  // of a reentrant lease
	Group        []Link    // the other locks of its lease
	AtFront      bool      // nothing stands before it here: it waits for another lock of its group
	Ephemeral    bool      // ends with its gateway's session
	Asked        *Asked    // its holder was asked to release it
	Why          Why       // it waits; see Why
	Convoy       Convoy    // of a reader that waits
	Metadata     string
	Session      string        // of a foreign one's ZooKeeper session, "0x..."; "" when not known
	Kind         string        // of a foreign one: which recipe of its program
	Decoded      string        // what its data says, in a line; "" when that is not understood
	Data         string        // of a foreign one, printable; "" when not known
	DataBinary   bool          // Data is base64
	Break        string        // URL that ends it
	CanAsk       bool          // it holds, and can be asked to release it
	EndsAt       time.Time     // of a reservation; zero when it is none, or not known
	EndsSoon     bool          // EndsAt is near
	ReservedFor  time.Duration // what a reservation gets from its grant on; 0 when it is none, or ends at a time
	WhyURL       string        // of a waiter: the page that marks it, and shows its chain
	Marked       bool          // the page was asked for it
	Chain        *Chain        // of a marked one: what it waits for; nil: nothing, or not known
}

// Link is a name with the address of its page.
type Link struct{ Name, URL string }

// Asked is a holder's revocation.
type Asked struct {
	Reason string    // the asker's words
	Until  time.Time // when the lease is ended if it is not released; zero: never
	// Withdraw is the URL whose DELETE takes it back; "" where that cannot be done.
	Withdraw string
}

// Why says what a waiter waits for where its place in line does not show it. It is
// one of: the holders (For, Others, Readers), a lock delay (For, Delay), the one
// at a place in line (At, Writer), permits (Need). The zero value says nothing.
type Why struct {
	For      []Who     // some who hold
	Others   int       // more of them
	Readers  bool      // all who hold are readers
	Delay    bool      // For's lease has ended; its lock delay keeps the place
	Until    time.Time // of Delay; zero when another gateway knows
	At       int       // the place in line of the last one in the way
	Writer   bool      // that one is a writer
	Need     int       // permits
	Free     int       // of Of, that those ahead leave
	Of       int
	Together int // more readers behind it that go in with it
}

// Convoy is a reader's place among the readers that go in together.
type Convoy string

// The places. A reader alone has none.
const (
	ConvoyFirst  Convoy = "first"
	ConvoyMiddle Convoy = "middle"
	ConvoyLast   Convoy = "last"
)

// Permits is a semaphore as a bar.
type Permits struct {
	Limit  int
	Taken  int
	Shares []Share // of the first holders; Taken has the others, too
	// Next is what the first waiter needs: 0 when none waits for permits.
	Next    int
	NextWho Who
}

// Share is one holder's part of the permits.
type Share struct {
	Who
	Permits int
}

// Hazard is something about a lock that a person should know.
type Hazard struct{ Code, Detail string }

// Happening is one event of a lock's recent history.
type Happening struct {
	At    time.Time
	Event string // "lease.granted"
	Who
	FencingToken int64
	Reason       string
	Detail       string // given by the caller that asked for it or ended it
}

// NodeEvent is one change of a znode.
type NodeEvent struct {
	At    time.Time
	Event string // "node.created"
	Path  string
}

// Lock is a lock's page. Its fragments: "lock-head" (state, counts, hazards),
// "queue" (holders and waiters), "history", and on the ZooKeeper tab "nodes".
type Lock struct {
	Page
	NS, Name    string
	Dialect     string // of its namespace
	Tab         string // "queue" or "zookeeper"
	QueueURL    string // of the tabs
	NodesURL    string
	Overview    string // URL of the overview
	State       string
	Dir         string      // the lock's znode
	Holders     []Contender // the first of them
	HolderCount int
	Waiters     []Contender // one page of them
	QueueLength int         // all who wait
	First       string      // URL of the first page of waiters, "" when this is it
	Next        string      // URL of the next page of waiters, "" when this is the last
	Limit       int         // of its permits; 0 when it has none
	LimitAgreed bool        // the limit came with an acquire and goes with the idle lock
	Permits     *Permits    // nil unless it is a semaphore
	Revoke      string      // URLs of what can be done to the lock
	Force       bool        // leases may be ended when their holders do not release them in time
	MayTake     bool        // viewers may take the lock
	Reserve     string      // URL where they take it, or stand in its queue
	NoneToAsk   bool        // no holder can be asked to release it
	Reap        string
	Destroy     string
	Hazards     []Hazard
	Timeline    *Timeline // nil on the ZooKeeper tab
	API         string    // URLs in the API: of the lock, of its past, and of a request to release it
	APIPast     string
	APIRevoke   string
	Deadlocks   []Deadlock // that have one of its waits
	// MoreDeadlocks are not in Deadlocks.
	MoreDeadlocks int
	Gone          bool        // the contender that the page was asked for is not in the queue
	Unmarked      string      // URL of the page without a mark, "" when there is none
	History       []Happening // the newest first
	Nodes         []NodeEvent // the newest first
	Problem       string      // as in Overview
}

// Problem is the page for what went wrong: a lock's name that cannot be, a
// page that does not exist.
type Problem struct {
	Page
	Status int
	Title  string
	Detail string
	LogIn  string // URL; "": logging in would not help
}
