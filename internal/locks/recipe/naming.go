package recipe

import (
	"errors"
	"fmt"
	"strings"
)

// Dialect is a namespace's choice of names. It decides which other programs respect its leases.
type Dialect string

// The dialects.
const (
	Native    Dialect = "native"
	CuratorRW Dialect = "curator-rw"
	Kazoo     Dialect = "kazoo"
	All       Dialect = "all"    // a lease has three contenders, one of each form
	Custom    Dialect = "custom" // the names of a home-made recipe; see ParseNaming
)

// Naming creates and reads the names of a namespace's contenders: its dialect, with the names of a custom one. It is
// immutable and safe for concurrent use. The zero value has the names of all dialects but the custom one.
type Naming struct {
	dialect Dialect
	forms   []Form
	custom  *custom // nil in all other dialects
}

var errNoDialect = errors.New("there is no such dialect; there are native, curator-rw, kazoo, all and custom")

// ParseNaming reads a dialect as it is configured and recorded: its name, which
// for the custom one is followed by its names and patterns, in any order:
//
//	custom exclusive={id}-W- shared={id}-R- foreign-shared=-R-$
//
// exclusive and shared are the names of our contenders: {id} stands for the id with
// all that a name carries, and the number follows. Without shared there are no
// shared leases. foreign-shared is a regular expression (RE2) for those of the
// names of others, without the number, that are shared; all others are exclusive.
// The default matches names like those of our shared contenders. An error is a
// sentence for the operator.
func ParseNaming(s string) (*Naming, error) {
	dialect, rest, _ := strings.Cut(s, " ")
	n := &Naming{dialect: Dialect(dialect)}
	switch n.dialect {
	case Native:
		n.forms = []Form{FormNative}
	case CuratorRW:
		n.forms = []Form{FormCurator}
	case Kazoo:
		n.forms = []Form{FormKazoo}
	case All:
		n.forms = []Form{FormNative, FormKazoo, FormCurator}
	case Custom:
		n.forms = []Form{FormCustom}
		var err error
		if n.custom, err = parseCustom(rest); err != nil {
			return nil, err
		}
		return n, nil
	default:
		return nil, errNoDialect
	}
	if s != dialect {
		return nil, fmt.Errorf("the dialect %s takes nothing behind its name", dialect)
	}
	return n, nil
}

// String is the canonical form of ParseNaming's argument: equal meanings have equal strings.
func (n *Naming) String() string {
	if n.custom == nil {
		return string(n.dialect)
	}
	return string(n.dialect) + " " + n.custom.String()
}

// Dialect is the dialect alone.
func (n *Naming) Dialect() Dialect { return n.dialect }

// Names returns the configured names of a custom dialect; "" for each that is missing, and for other dialects.
func (n *Naming) Names() (exclusive, shared, foreignShared string) {
	if n.custom == nil {
		return "", "", ""
	}
	return n.custom.words()
}

// Has reports whether leases of that mode have names. Only Native has permits, because no other program's semaphore
// knows such names. A custom dialect has shared leases only with a name for them.
func (n *Naming) Has(m Mode) bool {
	switch {
	case m == Permit:
		return n.dialect == Native
	case m == Shared && n.custom != nil:
		return n.custom.shared != template{}
	}
	return true
}

// Contenders are the contenders by which a lease like c stands in a queue, in
// the order in which one transaction creates them: c with Form, Member
// and Members filled in. There are none for a mode that it has not.
func (n *Naming) Contenders(c Contender) []Contender {
	if !n.Has(c.Mode) {
		return nil
	}
	out := make([]Contender, len(n.forms))
	for i, f := range n.forms {
		out[i] = c
		out[i].Form, out[i].Member, out[i].Members = f, uint8(i+1), uint8(len(n.forms))
	}
	return out
}

// Members is how many contenders Contenders makes.
func (n *Naming) Members() int { return len(n.forms) }

// Prefix is the name of a contender in this namespace without its number: the path
// that a sequential create gets. Name, Number, Ours and Version are not looked at. It
// panics for what has no name here.
func (n *Naming) Prefix(c *Contender) string {
	return string(n.appendPrefix(make([]byte, 0, 96), c))
}

// Format is the whole name: Prefix and Number as ZooKeeper would append it. A
// downgrade creates the replacement under this name, with the number of
// the contender that it replaces. It panics when Prefix does.
func (n *Naming) Format(c *Contender) string {
	return string(appendNumber(n.appendPrefix(make([]byte, 0, 96), c), c.Number))
}

func (n *Naming) appendPrefix(b []byte, c *Contender) []byte {
	why := c.unnameable()
	if why == "" && (c.Form == FormCustom) != (n.custom != nil) {
		why = "its form is another dialect's"
	}
	if why == "" && !n.Has(c.Mode) && n.custom != nil {
		why = "its dialect has no " + c.Mode.String() + " mode"
	}
	if why != "" {
		panic("recipe: no name for this contender: " + why)
	}
	if n.custom != nil {
		return c.appendPrefix(b, n.custom.template(c.Mode))
	}
	return c.appendPrefix(b, c.Form.around(c.Mode))
}

// Parse is the package's Parse in this namespace. In the custom dialect its own names are ours. Other names are shared
// when its pattern matches them, else exclusive. Names of Curator's SemaphoreV2 (lease-) are permits there too: our
// contenders must not wait among them.
func (n *Naming) Parse(fleet FleetID, name string) (c Contender, ok bool) {
	return parse(fleet, name, n.custom)
}
