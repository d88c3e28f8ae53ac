package difftest

import (
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"lockkeeper/internal/zk/wire"
)

// What the embedded server does otherwise on purpose, as its documentation lists it, is kept out of the comparison here.

// disarm keeps a step away from a difference: an attempt to take over a session with a wrong password closes the session's
// connection in ZooKeeper, but not here. So the connection is dropped before.
func (p *player) disarm(s Step) {
	if a, ok := s.Action.(Attach); ok && (a.WrongPasswd || a.ShortPasswd) {
		for client, c := range p.conns {
			if n, attached := p.owner[c]; attached && n == a.Session {
				p.drop(client)
			}
		}
	}
}

// inAnyOrder sorts a list whose order no client may rely on: ZooKeeper keeps children, ephemerals and identities in hash
// tables. An ACL gets the identities for "auth" in that order, too.
func inAnyOrder(list []string) []string {
	slices.Sort(list)
	return list
}

// endInAnyOrder sorts the events of a step that ends a session, because the session's ephemerals go in such an order. It
// sorts those of each connection, and none across a reply.
func endInAnyOrder(s Step, lines []string) {
	if !endsSession(s.Action) {
		return
	}
	for len(lines) > 0 {
		n := 0
		for n < len(lines) && isEventOf(lines[0][:3], lines[n]) {
			n++
		}
		inAnyOrder(lines[:n])
		lines = lines[max(n, 1):]
	}
}

func endsSession(a Action) bool {
	switch a := a.(type) {
	case Expire:
		return true
	case Send:
		return slices.ContainsFunc(a, func(r Request) bool { return r.Op == wire.OpCloseSession })
	}
	return false
}

func isEventOf(client, line string) bool { return strings.HasPrefix(line, client+"event ") }

// inUTF8 writes characters above U+FFFF as UTF-8. ZooKeeper sends each as two surrogates of three bytes, which is no UTF-8.
func inUTF8(s string) string {
	var out []byte
	for i := 0; i < len(s); {
		if r := utf16.DecodeRune(surrogate(s[i:]), surrogate(s[min(i+3, len(s)):])); r != utf8.RuneError {
			out = utf8.AppendRune(out, r)
			i += 6
			continue
		}
		out = append(out, s[i])
		i++
	}
	return string(out)
}

// surrogate decodes three bytes; 0 when they are no surrogate.
func surrogate(s string) rune {
	if len(s) < 3 || s[0] != 0xed || s[1] < 0xa0 || s[1] > 0xbf || s[2]&0xc0 != 0x80 {
		return 0
	}
	return 0xd000 | rune(s[1]&0x3f)<<6 | rune(s[2]&0x3f)
}
