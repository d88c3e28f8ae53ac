package session

import (
	"errors"
	"fmt"
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// Every row of the policy about writes is met for real, as package conn's own test does for the others.
func TestEveryRowOfThePolicyAboutWrites(t *testing.T) {
	meet := map[conn.Request]func(*testing.T, conn.Rule, fixture.Try){
		conn.ReqDelete: meetInWrite, conn.ReqSet: meetInWrite, conn.ReqCheck: meetInWrite, conn.ReqGuard: meetGuard, conn.ReqMulti: meetRegistering,
	}
	for _, row := range conn.Policy() {
		for _, how := range fixture.Tries {
			if meet[row.Request] == nil {
				continue
			}
			t.Run(fmt.Sprintf("%d %v %s", row.Request, row.Err, how), func(t *testing.T) {
				t.Parallel()
				meet[row.Request](t, row, how)
			})
		}
	}
}

// meetInWrite makes an operation of a Write fail. What was lost before is a
// transaction that would have been refused, or was refused, just the same.
func meetInWrite(t *testing.T, row conn.Rule, how fixture.Try) {
	direct, through, proxy := fixture.Faulty(t)
	layout := openLayout(t, direct)
	p := fixture.NewProbe(t, direct)
	dir := fixture.LocksDir(t, p, "l")
	s := openSession(t, through, layout, 1)
	op := zk.Op{Kind: zk.OpDelete, Path: dir + "/n"}
	switch row.Request {
	case conn.ReqSet:
		op.Kind = zk.OpSetData
	case conn.ReqCheck:
		op.Kind = zk.OpCheck
	}
	if row.Err != zk.ErrNoNode {
		p.Create(op.Path, "")
	}
	switch row.Err {
	case zk.ErrBadVersion:
		op.Version = 7
	case zk.ErrNotEmpty:
		p.Create(op.Path+"/child", "")
	case zk.ErrNoAuth:
		guarded := op.Path
		if row.Request == conn.ReqDelete {
			guarded = dir
		}
		p.SetACL(guarded, gozk.WorldACL(gozk.PermRead))
	}
	if how != fixture.First {
		how.Lose(proxy, fixture.About("/n"))
		r := write(t, s, op)
		assert.Must(t, r.Outcome == zk.NotDone && errors.Is(r.Err, zk.ErrNotApplied), "lost: %+v, want NotDone(ErrNotApplied)", r)
	}
	r := write(t, s, op)
	want := zk.NotDone
	if row.First == conn.DecideAgain {
		want = zk.Conflict
	}
	assert.That(t, r.Outcome == want && errors.Is(r.Err, row.Err), "%+v, want outcome %d with %v", r, want, row.Err)
}

// meetGuard makes the guarding operations fail.
func meetGuard(t *testing.T, row conn.Rule, how fixture.Try) {
	direct, through, proxy := fixture.Faulty(t)
	auth := &zk.DigestAuth{User: "fleet", Password: "secret"}
	direct.Auth, through.Auth = auth, auth
	layout := openLayout(t, direct)
	p := fixture.NewProbe(t, direct)
	dir := fixture.LocksDir(t, p, "l")
	var a fixture.Assassin
	through.Dial = a.Dial
	s := openSession(t, through, layout, 1)
	switch row.Err {
	case zk.ErrNoNode:
		p.Delete(s.registration)
	case zk.ErrBadVersion:
		p.Set(s.registration, "meddled")
	case zk.ErrNoAuth:
		for _, path := range []string{s.registration, s.guard} {
			p.SetACL(path, gozk.WorldACL(gozk.PermRead))
		}
	case zk.ErrSessionGone:
		a.Strike(t)
	}
	how.Lose(proxy, fixture.About("/n"))
	result := make(chan zk.Result, 1)
	err := s.Submit(&zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/n"}}, Done: func(r zk.Result) { result <- r }})
	if row.Err == zk.ErrBadVersion {
		r := fixture.Await(t, result)
		if how == fixture.First && r.Outcome != zk.Done || how != fixture.First && (r.Outcome != zk.NotDone || !errors.Is(r.Err, zk.ErrNotApplied)) {
			t.Errorf("%+v", r)
		}
		mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/m"}))
		return
	}
	if err == nil {
		r := fixture.Await(t, result)
		assert.That(t, r.Outcome != zk.Done, "%+v", r)
	}
	fixture.Await(t, s.Done())
	switch {
	case row.Err == zk.ErrNoNode && !errors.Is(s.Err(), zk.ErrDeposed), row.Err == zk.ErrSessionGone && !errors.Is(s.Err(), zk.ErrSessionGone):
		t.Errorf("the session's end is %v", s.Err())
	case row.Err == zk.ErrNoAuth:
		fixture.MustBeFatal(t, "writing", s.Err(), zk.KindAuth)
	}
	assert.That(t, p.Stat(dir+"/n") == nil, "it was created")
}

// meetRegistering meets the errors of a transaction as a whole where one is
// repeated: when the gateway registers.
func meetRegistering(t *testing.T, row conn.Rule, how fixture.Try) {
	direct, through, proxy := fixture.Faulty(t)
	auth := &zk.DigestAuth{User: "fleet", Password: "secret"}
	direct.Auth, through.Auth = auth, auth
	layout := openLayout(t, direct)
	p := fixture.NewProbe(t, direct)
	id := fixture.GatewayID(1)
	want := row.Err
	switch row.Err {
	case zk.ErrUnavailable:
		if how == fixture.First {
			how = fixture.AfterFailed
		}
		want = nil
	case zk.ErrNodeExists:
		if how == fixture.AfterPersisted {
			want = nil // it is our own
		} else {
			p.Create(zk.DefaultRoot+"/gateways/"+id, "another's")
		}
	case zk.ErrBadVersion:
		p.Set(zk.DefaultRoot+zk.NodeFenceBase, "0")
	case zk.ErrNoNode:
		p.Delete(zk.DefaultRoot + "/guards")
	case zk.ErrNoAuth:
		through.Auth = nil
	case zk.ErrSessionGone:
		var a fixture.Assassin
		through.Dial = a.Dial
		cfg, err := through.WithDefaults()
		assert.NoError(t, err)
		c := assert.Value(conn.Open(fixture.Context(t), &cfg, func() {}))(t)
		a.Strike(t)
		fixture.Await(t, c.Over())
		s := &Session{facts: facts{cfg: &cfg, conn: c, registration: zk.DefaultRoot + "/gateways/" + id, guard: zk.DefaultRoot + "/guards/" + id}}
		how.Lose(proxy, fixture.About("/gateways/"))
		_, err = s.register(fixture.Context(t), layout)
		assert.That(t, errors.Is(err, zk.ErrSessionGone), "registering: %v, want ErrSessionGone", err)
		return
	}
	how.Lose(proxy, fixture.About("/gateways/"))
	s, err := Open(fixture.Context(t), through, layout, id, nil)
	if err == nil {
		t.Cleanup(func() { closeSession(t, s) })
	}
	assert.That(t, errors.Is(err, want), "registering: %v, want %v", err, want)
	assert.Equal(t, p.Stat(zk.DefaultRoot+"/guards/"+id) != nil, want == nil, "the guard is there")
	if row.Err == zk.ErrNoAuth {
		fixture.MustBeFatal(t, "registering", err, zk.KindAuth)
	}
}
