package locks

import (
	"cmp"
)

// DefaultFound and MaxFound bound what an answer to a FindRequest has of each kind.
const (
	DefaultFound = 20
	MaxFound     = 200
)

// FindRequest looks for locks, owners and contenders in all namespaces. One of Text, Owner and Host is given.
type FindRequest struct {
	Principal Principal
	// Text is a part of a lock's, an owner's or a host's name, the end of a lease's id, a fencing token, or the path of a znode.
	Text  string
	Owner string // only the contenders of that owner
	Host  string // the same, of all owners with this behind their last @
	Limit int    // of each kind; 0: DefaultFound
	// Owners are those of leases that other gateways run, as these say, by the leases' ids. This gateway may not have read them.
	Owners map[string]string
}

// Check fills in defaults and refuses invalid requests.
func (r *FindRequest) Check() error {
	r.Limit = cmp.Or(r.Limit, DefaultFound)
	if r.Limit < 0 || r.Limit > MaxFound {
		return Invalid("limit", "limit must be between 1 and 200")
	}
	for _, text := range []struct{ field, text string }{{"q", r.Text}, {"owner", r.Owner}, {"host", r.Host}} {
		if err := CheckText(text.field, text.text, MaxFindText); err != nil {
			return err
		}
	}
	return nil
}

// MaxFindText is how long the text of a FindRequest may be, in bytes: a znode's path.
const MaxFindText = 1024

// Found is what was found. Of each kind those that begin with the text come first.
type Found struct {
	Locks      []FoundLock
	Owners     []FoundOwner
	Hosts      []FoundOwner
	Contenders []FoundContender // holders first, then by lock
	More       bool             // there are more than the limit
	Stopped    bool             // not everything was looked at
}

// FoundLock is a lock in a few words.
type FoundLock struct {
	NS, Name string
	Holders  int // contenders that hold or are at the front
	Waiting  int
}

// FoundOwner is an owner, or a host, with its contenders.
type FoundOwner struct {
	Name           string
	Holds, Waiting int
}

// FoundContender is a contender with its lock.
type FoundContender struct {
	NS, Lock string
	Contender
}
