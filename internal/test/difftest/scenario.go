package difftest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"lockkeeper/internal/zk/wire"
)

// Scenario is what the clients do, step by step. A step that makes no sense (a request on a connection that is closed,
// a session that was never opened) does nothing; so any part of a scenario is a scenario.
type Scenario struct {
	Name  string
	Steps []Step
}

// Step is one action. Client is the number of the connection that acts.
type Step struct {
	Client int
	Action Action
}

// Action is one of Open, Attach, Drop, Send, Raw, Expire and Await.
type Action interface{ String() string }

// Open connects and asks for a new session. A connection that the client still has is dropped first.
type Open struct {
	TimeoutMs  int32
	NoReadOnly bool // the 44-byte form of old clients
	// LastSeen is the last zxid that the client claims to have seen, from the scenario's start; 0 claims none.
	LastSeen int64
}

// Attach connects and asks for a session that was opened before, from any connection.
type Attach struct {
	Session     int // by the order of creation, from 0
	TimeoutMs   int32
	LastSeen    int64
	WrongPasswd bool
	ShortPasswd bool // three bytes instead of sixteen
	WrongID     bool // an id that no server gave out
}

// Drop closes the connection and leaves the session behind.
type Drop struct{}

// Send sends requests in one go where ZooKeeper answers that in one way only (inTurn); their replies are read afterwards.
type Send []Request

// Raw sends bytes as they are: frames that are none.
type Raw []byte

// Expire says nothing for a session until the server has expired it. Another connection must be there to see it.
type Expire struct{ Session int }

// Await sends requests and waits until after them the server has made so many transactions by itself.
type Await struct {
	After        Send
	Transactions int64
}

// Request is one request.
type Request struct {
	Op     wire.Op
	Xid    int32       // 0: the next one
	Record wire.Record // nil: no body
	Cut    int         // so many bytes are cut off the body's end
	Extra  []byte      // and these follow
}

func (a Open) String() string   { return fmt.Sprintf("open %+v", a.plain()) }
func (a Attach) String() string { return fmt.Sprintf("attach %+v", a.plain()) }
func (Drop) String() string     { return "drop the connection" }
func (a Raw) String() string    { return fmt.Sprintf("raw bytes %x", []byte(a)) }
func (a Await) String() string {
	return fmt.Sprintf("%v; await %d transactions", a.After, a.Transactions)
}
func (a Expire) String() string { return fmt.Sprintf("await the expiry of S%d", a.Session) }

func (a Send) String() string {
	var parts []string
	for _, r := range a {
		parts = append(parts, r.String())
	}
	return strings.Join(parts, "; ")
}

// plain strips the String method, for printing with %+v.
func (a Open) plain() any   { type plain Open; return plain(a) }
func (a Attach) plain() any { type plain Attach; return plain(a) }

func (r Request) String() string {
	var b strings.Builder
	b.WriteString(opName(r.Op))
	if r.Xid != 0 {
		fmt.Fprintf(&b, " xid=%d", r.Xid)
	}
	switch rec := r.Record.(type) {
	case nil:
	case *wire.MultiRequest:
		b.WriteString(" {")
		for i, op := range rec.Ops {
			if i > 0 {
				b.WriteString("; ")
			}
			fmt.Fprintf(&b, "%s %#v", opName(op.Op), op.Record)
		}
		b.WriteString("}")
	default:
		fmt.Fprintf(&b, " %#v", rec)
	}
	if r.Cut != 0 {
		fmt.Fprintf(&b, " without the last %d bytes", r.Cut)
	}
	if r.Extra != nil {
		fmt.Fprintf(&b, " and %x", r.Extra)
	}
	text := bytesInGo.ReplaceAllStringFunc(b.String(), func(list string) string {
		var text []byte
		for _, m := range byteInGo.FindAllStringSubmatch(list, -1) {
			n, _ := strconv.ParseUint(m[1], 16, 8) // the expression asks for one or two digits
			text = append(text, byte(n))
		}
		if len(text) > 100 {
			return fmt.Sprintf("[]byte(%q... %d bytes)", text[:20], len(text))
		}
		return fmt.Sprintf("[]byte(%q)", text)
	})
	return shorter.Replace(text)
}

var shorter = strings.NewReplacer(
	`[]wire.ACL{wire.ACL{Perms:31, Scheme:"world", ID:"anyone"}}`, "worldOpen", "&wire.", "", "wire.", "", "&difftest.", "")

// How %#v writes bytes.
var (
	bytesInGo = regexp.MustCompile(`\[\]uint8\{[^}]*\}`)
	byteInGo  = regexp.MustCompile(`0x([0-9a-f]{1,2})`)
)

func (s Step) String() string { return fmt.Sprintf("c%d %v", s.Client, s.Action) }

// String is the scenario as a numbered list.
func (s Scenario) String() string {
	var b strings.Builder
	for i, step := range s.Steps {
		fmt.Fprintf(&b, "%3d  %v\n", i, step)
	}
	return b.String()
}

var opNames = map[wire.Op]string{
	wire.OpCreate: "create", wire.OpDelete: "delete", wire.OpExists: "exists", wire.OpGetData: "getData", wire.OpSetData: "setData",
	wire.OpGetACL: "getACL", wire.OpSetACL: "setACL", wire.OpGetChildren: "getChildren", wire.OpSync: "sync", wire.OpPing: "ping",
	wire.OpGetChildren2: "getChildren2", wire.OpCheck: "check", wire.OpMulti: "multi", wire.OpCreate2: "create2",
	wire.OpReconfig: "reconfig", wire.OpCheckWatches: "checkWatches", wire.OpRemoveWatches: "removeWatches",
	wire.OpCreateContainer: "createContainer", wire.OpDeleteContainer: "deleteContainer", wire.OpCreateTTL: "createTTL",
	wire.OpMultiRead: "multiRead", wire.OpAuth: "auth", wire.OpSetWatches: "setWatches", wire.OpSASL: "sasl",
	wire.OpGetEphemerals: "getEphemerals", wire.OpCountChildren: "getAllChildrenNumber", wire.OpSetWatches2: "setWatches2",
	wire.OpAddWatch: "addWatch", wire.OpWhoAmI: "whoAmI", wire.OpCreateSession: "createSession", wire.OpCloseSession: "closeSession",
	wire.OpError: "error",
}

func opName(op wire.Op) string {
	if name := opNames[op]; name != "" {
		return name
	}
	return fmt.Sprintf("operation(%d)", op)
}
