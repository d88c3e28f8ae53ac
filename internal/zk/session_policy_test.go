package zk

import (
	"errors"
	"fmt"
	"testing"

	gozk "github.com/go-zookeeper/zk"
)

// Every row of the policy about writes is met for real, as package conn's own test does for the others.
func TestEveryRowOfThePolicyAboutWrites(t *testing.T) {
	meet := map[reqKind]func(*testing.T, rule, Try){
		reqDelete: meetInWrite, reqSet: meetInWrite, reqCheck: meetInWrite, reqGuard: meetGuard, reqMulti: meetRegistering,
	}
	for _, row := range policy() {
		for _, how := range Tries {
			if meet[row.request] == nil {
				continue
			}
			t.Run(fmt.Sprintf("%d %v %s", row.request, row.err, how), func(t *testing.T) {
				t.Parallel()
				meet[row.request](t, row, how)
			})
		}
	}
}

// meetInWrite makes an operation of a Write fail. What was lost before is a
// transaction that would have been refused, or was refused, just the same.
func meetInWrite(t *testing.T, row rule, how Try) {
	direct, through, proxy := faulty(t)
	layout := openLayout(t, direct)
	p := newProbe(t, direct)
	dir := locksDir(t, p, "l")
	s := openSession(t, through, layout, 1)
	op := Op{Kind: OpDelete, Path: dir + "/n"}
	switch row.request {
	case reqSet:
		op.Kind = OpSetData
	case reqCheck:
		op.Kind = OpCheck
	}
	if row.err != ErrNoNode {
		p.create(op.Path, "")
	}
	switch row.err {
	case ErrBadVersion:
		op.Version = 7
	case ErrNotEmpty:
		p.create(op.Path+"/child", "")
	case ErrNoAuth:
		guarded := op.Path
		if row.request == reqDelete {
			guarded = dir
		}
		p.setACL(guarded, gozk.WorldACL(gozk.PermRead))
	}
	if how != First {
		how.Lose(proxy, about("/n"))
		if r := write(t, s, op); r.Outcome != NotDone || !errors.Is(r.Err, ErrNotApplied) {
			t.Fatalf("lost: %+v, want NotDone(ErrNotApplied)", r)
		}
	}
	r := write(t, s, op)
	want := NotDone
	if row.first == decideAgain {
		want = Redecide
	}
	if r.Outcome != want || !errors.Is(r.Err, row.err) {
		t.Errorf("%+v, want outcome %d with %v", r, want, row.err)
	}
}

// meetGuard makes the guarding operations fail.
func meetGuard(t *testing.T, row rule, how Try) {
	direct, through, proxy := faulty(t)
	auth := &DigestAuth{User: "fleet", Password: "secret"}
	direct.Auth, through.Auth = auth, auth
	layout := openLayout(t, direct)
	p := newProbe(t, direct)
	dir := locksDir(t, p, "l")
	var a Assassin
	through.Dial = a.Dial
	s := openSession(t, through, layout, 1)
	switch row.err {
	case ErrNoNode:
		p.delete(s.registration)
	case ErrBadVersion:
		p.set(s.registration, "meddled")
	case ErrNoAuth:
		for _, path := range []string{s.registration, s.guard} {
			p.setACL(path, gozk.WorldACL(gozk.PermRead))
		}
	case ErrSessionGone:
		a.Strike(t)
	}
	how.Lose(proxy, about("/n"))
	result := make(chan Result, 1)
	err := s.Submit(&Write{Ops: []Op{{Kind: OpCreate, Path: dir + "/n"}}, Done: func(r Result) { result <- r }})
	if row.err == ErrBadVersion {
		r := await(t, result)
		if how == First && r.Outcome != Done || how != First && (r.Outcome != NotDone || !errors.Is(r.Err, ErrNotApplied)) {
			t.Errorf("%+v", r)
		}
		mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir + "/m"}))
		return
	}
	if err == nil {
		if r := await(t, result); r.Outcome == Done {
			t.Errorf("%+v", r)
		}
	}
	await(t, s.Done())
	switch {
	case row.err == ErrNoNode && !errors.Is(s.Err(), ErrDeposed), row.err == ErrSessionGone && !errors.Is(s.Err(), ErrSessionGone):
		t.Errorf("the session's end is %v", s.Err())
	case row.err == ErrNoAuth:
		mustBeFatal(t, "writing", s.Err(), KindAuth)
	}
	if p.stat(dir+"/n") != nil {
		t.Error("it was created")
	}
}

// meetRegistering meets the errors of a transaction as a whole where one is
// repeated: when the gateway registers.
func meetRegistering(t *testing.T, row rule, how Try) {
	direct, through, proxy := faulty(t)
	auth := &DigestAuth{User: "fleet", Password: "secret"}
	direct.Auth, through.Auth = auth, auth
	layout := openLayout(t, direct)
	p := newProbe(t, direct)
	id := gatewayID(1)
	want := row.err
	switch row.err {
	case ErrUnavailable:
		if how == First {
			how = AfterFailed
		}
		want = nil
	case ErrNodeExists:
		if how == AfterPersisted {
			want = nil // it is our own
		} else {
			p.create(DefaultRoot+"/gateways/"+id, "somebody's")
		}
	case ErrBadVersion:
		p.set(DefaultRoot+NodeFenceBase, "0")
	case ErrNoNode:
		p.delete(DefaultRoot + "/guards")
	case ErrNoAuth:
		through.Auth = nil
	case ErrSessionGone:
		var a Assassin
		through.Dial = a.Dial
		cfg, err := through.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		c, err := connect(testContext(t), &cfg, func() {})
		if err != nil {
			t.Fatal(err)
		}
		a.Strike(t)
		await(t, c.over())
		s := &Session{cfg: &cfg, conn: c, registration: DefaultRoot + "/gateways/" + id, guard: DefaultRoot + "/guards/" + id}
		how.Lose(proxy, about("/gateways/"))
		if _, err := s.register(testContext(t), layout); !errors.Is(err, ErrSessionGone) {
			t.Errorf("registering: %v, want ErrSessionGone", err)
		}
		return
	}
	how.Lose(proxy, about("/gateways/"))
	s, err := OpenSession(testContext(t), through, layout, id, nil)
	if err == nil {
		t.Cleanup(func() { closeSession(t, s) })
	}
	if !errors.Is(err, want) {
		t.Errorf("registering: %v, want %v", err, want)
	}
	if there := p.stat(DefaultRoot+"/guards/"+id) != nil; there != (want == nil) {
		t.Errorf("the guard is there: %v", there)
	}
	if row.err == ErrNoAuth {
		mustBeFatal(t, "registering", err, KindAuth)
	}
}
