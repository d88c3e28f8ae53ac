package recipe

import (
	"math"
	"strings"

	"lockkeeper/internal/fault"
)

// Parse reads a child's name. ok is false for a child without a sequence
// number: it is no contender. A name that carries the tag and the id of this
// fleet is Ours: in full when it is exactly what Format writes, else Unknown.
// Any other is foreign and has a mode alone:
//
//	ends in lease- before the number          Permit, 1 of an unknown limit (Curator's SemaphoreV2)
//	32 hex digits and nothing else            Permit, 1 of an unknown limit (Kazoo's Semaphore)
//	ends in __READ__ or __rlock__, or starts with read-   Shared (Curator, Kazoo, HBase)
//	anything else                             Exclusive
//
// In a namespace of the custom dialect Naming.Parse reads names instead. Parse does
// not allocate; the result shares the memory of name.
func Parse(fleet FleetID, name string) (c Contender, ok bool) {
	return parse(fleet, name, nil)
}

// parse reads a name, in the custom dialect if there is one.
func parse(fleet FleetID, name string, custom *custom) (c Contender, ok bool) {
	prefix, n, ok := split(name)
	if !ok {
		return Contender{}, false
	}
	at := findFleet(prefix, fleet)
	if at < 0 {
		c = Contender{Name: name, Number: n, Member: 1, Members: 1, Group: 1, Groups: 1}
		switch {
		case prefix == name:
			c.Mode, c.Permits = Permit, 1
		case custom != nil:
			c.Mode, c.Permits = custom.foreignMode(prefix)
		default:
			c.Mode, c.Permits = foreignMode(prefix)
		}
		return c, true
	}
	if custom != nil {
		c, ok = custom.parseOurs(prefix)
	} else {
		c, ok = parseOurs(prefix)
	}
	if ok && exactNumber(name[len(prefix):], n) {
		c.Name, c.Number = name, n
		return c, true
	}
	c = Contender{Name: name, Number: n, Ours: true, Unknown: true, Version: versionBefore(prefix[:at])}
	if end := at + LeaseIDLen; end <= len(prefix) && (end == len(prefix) || !isBase32(prefix[end])) {
		if id, err := ParseLeaseID(prefix[at:end]); err == nil {
			c.LeaseID = id
		}
	}
	return c, true
}

// findFleet returns where the tag and the fleet id are in a name, -1 for nowhere. No character of an id may precede
// them, so the random bits of another fleet's id never count as ours.
func findFleet(prefix string, fleet FleetID) int {
	if len(fleet) != fleetLen {
		return -1
	}
	if fault.On("fleet") {
		return strings.Index(prefix, Tag)
	}
	for from := 0; ; {
		i := strings.Index(prefix[from:], string(fleet))
		if i < 0 {
			return -1
		}
		at := from + i - len(Tag)
		if at >= 0 && prefix[at:at+len(Tag)] == Tag && (at == 0 || !isBase32(prefix[at-1])) {
			return at
		}
		from += i + 1
	}
}

// semaphoreBase ends the names of Curator's SemaphoreV2, before the number.
const semaphoreBase = "lease-"

func foreignMode(prefix string) (mode Mode, permits int32) {
	switch {
	case strings.HasSuffix(prefix, semaphoreBase):
		return Permit, 1
	case strings.HasSuffix(prefix, "__READ__"), strings.HasSuffix(prefix, "__rlock__"), strings.HasPrefix(prefix, "read-"):
		return Shared, 0
	}
	return Exclusive, 0
}

// parseOurs reads a prefix that Prefix wrote. It refuses everything else.
func parseOurs(prefix string) (c Contender, ok bool) {
	c = Contender{Ours: true, Version: version, Member: 1, Members: 1, Group: 1, Groups: 1}
	var id string
	switch s := prefix; {
	case cut(&s, "write-", "-lock-"):
		id = s
	case cut(&s, "read-", "-lock-"):
		id, c.Mode = s, Shared
	case cut(&s, "permit-", "-lock-"):
		c.Mode = Permit
		var count string
		if id, count, ok = strings.Cut(s, "-"); !ok {
			return c, false
		}
		permits, limit, ok := strings.Cut(count, "of")
		p, okP := decimal(permits, MaxPermits)
		l, okL := decimal(limit, MaxPermits)
		if !ok || !okP || !okL || p > l {
			return c, false
		}
		c.Permits, c.Limit = int32(p), int32(l)
	case cut(&s, "write-", "-__WRIT__"):
		id, c.Form = s, FormCurator
	case cut(&s, "read-", "-__READ__"):
		id, c.Form, c.Mode = s, FormCurator, Shared
	case cut(&s, "", "__lock__"):
		id, c.Form = s, FormKazoo
	case cut(&s, "", "__rlock__"):
		id, c.Form, c.Mode = s, FormKazoo, Shared
	default:
		return c, false
	}
	return c, c.parseID(id)
}

func cut(s *string, start, end string) bool {
	if len(*s) < len(start)+len(end) || !strings.HasPrefix(*s, start) || !strings.HasSuffix(*s, end) {
		return false
	}
	*s = (*s)[len(start) : len(*s)-len(end)]
	return true
}

func (c *Contender) parseID(s string) bool {
	if !cut(&s, "v1.", "") || len(s) < LeaseIDLen {
		return false
	}
	id, err := ParseLeaseID(s[:LeaseIDLen])
	if err != nil {
		return false
	}
	c.LeaseID, s = id, s[LeaseIDLen:]
	if s == ".e" || strings.HasPrefix(s, ".e.") {
		c.Ephemeral, s = true, s[len(".e"):]
	}
	if len(s) >= 6 && s[:2] == ".m" && s[3:5] == "of" {
		k, n := s[2]-'0', s[5]-'0'
		if k < 1 || k > n || n < 2 || n > maxMembers {
			return false
		}
		c.Member, c.Members, s = k, n, s[6:]
	}
	if strings.HasPrefix(s, ".g") {
		attribute := s[2:]
		if i := strings.IndexByte(attribute, '.'); i >= 0 {
			attribute = attribute[:i]
		}
		s = s[len(".g")+len(attribute):]
		group, groups, ok := strings.Cut(attribute, "of")
		k, okK := decimal(group, MaxGroup)
		n, okN := decimal(groups, MaxGroup)
		if !ok || !okK || !okN || k > n || n < 2 {
			return false
		}
		c.Group, c.Groups = uint8(k), uint8(n)
	}
	if strings.HasPrefix(s, ".f") {
		czxid, ok := decimal(s[2:], math.MaxInt64)
		if !ok {
			return false
		}
		c.FirstCzxid, s = czxid, ""
	}
	return s == ""
}

// decimal reads a number from 1 to limit without leading zeros.
func decimal(s string, limit int64) (v int64, ok bool) {
	if s == "" || s[0] == '0' {
		return 0, false
	}
	for i := range len(s) {
		d := s[i] - '0'
		if d > 9 || v > (limit-int64(d))/10 {
			return 0, false
		}
		v = v*10 + int64(d)
	}
	return v, true
}

// exactNumber reports whether digits is n as ZooKeeper prints it.
func exactNumber(digits string, n int32) bool {
	var b [numberWidth + 1]byte
	return digits == string(appendNumber(b[:0], n))
}

// versionBefore reads the v<version>. that stands before a lease id, 0 when
// there is none.
func versionBefore(s string) uint8 {
	if !strings.HasSuffix(s, ".") {
		return 0
	}
	s = s[:len(s)-1]
	v, ok := decimal(s[strings.LastIndexByte(s, 'v')+1:], math.MaxUint8)
	if !ok || !strings.Contains(s, "v") {
		return 0
	}
	return uint8(v)
}
