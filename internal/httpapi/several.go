package httpapi

import (
	"fmt"
	"strings"

	"lockkeeper/internal/locks"
)

// severalForm is the fields of an acquire of several locks.
type severalForm struct{ terms }

func (f *severalForm) names() []string { return append([]string{"locks"}, f.terms.names()...) }

func (f *severalForm) take(name string, v value) (known bool, p *problem) {
	if name != "locks" {
		return f.terms.take(name, v)
	}
	f.more = name
	if v.source == fromQuery {
		return true, f.takeNames(v.text)
	}
	elements, ok := decodeArray(v)
	if !ok || len(elements) == 0 {
		return true, invalid(name, "it is an array of objects, such as [{\"lock\": \"a\"}, {\"lock\": \"b\", \"mode\": \"shared\"}]")
	}
	if len(elements) > locks.MaxGroup {
		return true, tooManyLocks()
	}
	f.req.Group = make([]locks.Want, len(elements))
	for i, element := range elements {
		if p := decodeWant(element, &f.req.Group[i]); p != nil {
			p.field = memberOf(i, p.field)
			return true, p
		}
	}
	return true, nil
}

// takeNames reads the locks of a query: names alone.
func (f *severalForm) takeNames(list string) *problem {
	if strings.Count(list, ",") >= locks.MaxGroup {
		return tooManyLocks()
	}
	for i, name := range strings.Split(list, ",") {
		if p := newLockName(name); p != nil {
			p.field = memberOf(i, "")
			return p
		}
		f.req.Group = append(f.req.Group, locks.Want{NS: locks.DefaultNamespace, Lock: name, Mode: locks.Exclusive})
	}
	return nil
}

func tooManyLocks() *problem {
	return invalid("locks", fmt.Sprintf("it has at most %d locks", locks.MaxGroup))
}

// memberOf names a member of one of the locks, or the lock itself.
func memberOf(i int, member string) string {
	name := fmt.Sprintf("locks[%d]", i)
	if member != "" {
		name += "." + member
	}
	return name
}

// wantForm is one object of locks.
type wantForm struct{ want *locks.Want }

func (wantForm) names() []string { return []string{"lock", "ns", "mode", "limit", "permits"} }

func (f wantForm) take(name string, v value) (known bool, p *problem) {
	return takeWant(f.want, name, v)
}

func decodeWant(element []byte, want *locks.Want) *problem {
	want.NS = locks.DefaultNamespace
	if element[0] != '{' {
		return invalid("", "it is an object, such as {\"lock\": \"a\"}")
	}
	d := decoder{form: wantForm{want}, what: "each of locks"}
	if p := decodeObject(element, d.take); p != nil {
		return p
	}
	if want.Lock == "" {
		return invalid("lock", "name the lock")
	}
	return completeWant(want)
}

// decode reads the whole request.
func (f *severalForm) decode(x *exchange) *problem {
	p := f.begin(x.r.Header)
	if p == nil {
		p = x.fields(f, maxBody)
	}
	if p != nil {
		return p
	}
	x.lock, x.owner = namesOf(f.req.Group), f.req.Owner
	if f.req.Token != "" {
		return invalid("Lease-Token", "this takes a lease that is not there yet: a hold is added at one of the locks of its lease, with POST /v1/locks/{lock}/leases")
	}
	if p = f.finish(x.r.Header); p != nil {
		return p
	}
	if len(f.req.Group) == 0 {
		return invalid("locks", "name the locks: locks=a,b in the query, or an array of objects in the body")
	}
	type key struct{ ns, lock string }
	first := make(map[key]int, len(f.req.Group))
	for i, want := range f.req.Group {
		if k, again := first[key{want.NS, want.Lock}]; again {
			return invalid(memberOf(i, "lock"), fmt.Sprintf("it is the same lock as locks[%d]: a lease has each of its locks once", k))
		}
		first[key{want.NS, want.Lock}] = i
	}
	return nil
}

// maxNames is how much of the names of several locks the log tells.
const maxNames = 256

func namesOf(group []locks.Want) string {
	var b strings.Builder
	for i, want := range group {
		if i > 0 {
			b.WriteByte(',')
		}
		if b.Len()+len(want.Lock) > maxNames {
			b.WriteString("...")
			break
		}
		b.WriteString(want.Lock)
	}
	return b.String()
}

func (x *exchange) acquireSeveral() {
	var form severalForm
	if p := form.decode(x); p != nil {
		x.problem(p)
		return
	}
	x.queue(&form.terms)
}
