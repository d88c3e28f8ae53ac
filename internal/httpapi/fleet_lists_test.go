package httpapi

import (
	"slices"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// Lists that are made of what several gateways answer.

func TestD9LeasesOfAllGatewaysAreOneList(t *testing.T) {
	page := func(next string, ids ...string) api.LeaseList {
		list := api.LeaseList{NextCursor: next}
		for _, id := range ids {
			list.Items = append(list.Items, api.Lease{LeaseID: id})
		}
		return list
	}
	for _, c := range []struct {
		pages []api.LeaseList
		limit int
		want  string
		after string // the lease behind which the next page begins
	}{
		{[]api.LeaseList{page("", "b", "d"), page("", "a", "c")}, 10, "abcd", ""},
		{[]api.LeaseList{page("", "b", "d"), page("", "a", "c")}, 3, "abc", "c"},
		{[]api.LeaseList{page("x", "b", "d"), page("", "a", "c", "e")}, 10, "abcd", "d"}, // there may be more before e
		{[]api.LeaseList{page("x", "b"), page("x", "a", "c")}, 10, "ab", "b"},
		{[]api.LeaseList{page("", "b"), page("", "b", "c")}, 10, "bc", ""},
		{[]api.LeaseList{page(""), page("")}, 10, "", ""},
	} {
		items, next := oneLeasePage(c.pages, c.limit)
		got, want := "", ""
		for _, l := range items {
			got += l.LeaseID
		}
		if c.after != "" {
			want = locks.LeaseCursor(c.after)
		}
		assert.That(t, got == c.want && next == want, "%+v: %q, then %q, want %q and %q", c.pages, got, next, c.want, want)
	}
}

func TestD9AGatewayThatDoesNotAnswerIsNamed(t *testing.T) {
	asked, other := pair(t)
	other.leases = func(f locks.LeaseFilter) (locks.LeasePage, error) {
		l := held()
		l.ID, l.Owner = "zz", f.Owner
		return locks.LeasePage{Items: []locks.Lease{l}}, nil
	}
	asked.leases = func(locks.LeaseFilter) (locks.LeasePage, error) {
		return locks.LeasePage{Items: []locks.Lease{held()}}, nil
	}
	asked.peers = []locks.Peer{{Gateway: "asked", Self: true, Registered: true}, {Gateway: other.id, Address: other.address(), Registered: true},
		{Gateway: "gone", Address: "127.0.0.1:1", Registered: true}}
	list, a, err := asked.client.Leases(asked.ctx, apitest.Query("owner=her"))
	if err != nil || len(list.Items) != 2 || list.Items[1].LeaseID != "zz" || list.Items[1].Owner != "her" || len(list.Unreached) != 1 || list.Unreached[0].GatewayID != "gone" {
		t.Errorf("%v %s", err, a.Body)
	}
}

// A list by owner or host asks every gateway: each gives what it knows, and the asked one makes the page.
func TestALockOfAnOwnerIsFoundAtEveryGateway(t *testing.T) {
	asked, other := pair(t)
	var given, passed locks.LockFilter
	other.locks = func(f locks.LockFilter) (locks.LockPage, error) {
		passed = f
		lock := queue()
		lock.Name, lock.Holders[0].Owner = "there", "her"
		return locks.LockPage{Items: []locks.Lock{lock}, NextCursor: "more"}, nil
	}
	asked.locks = func(f locks.LockFilter) (locks.LockPage, error) {
		given = f
		here, there := queue(), queue()
		here.Name, there.Name = "here", "there"
		there.Holders[0].Owner = ""
		return locks.LockPage{Items: []locks.Lock{here, there}}, nil
	}
	asked.peers = []locks.Peer{{Gateway: "asked", Self: true, Registered: true}, {Gateway: other.id, Address: other.address(), Registered: true},
		{Gateway: "gone", Address: "127.0.0.1:1", Registered: true}}
	list, a, err := asked.client.Locks(asked.ctx, apitest.Query("owner=her&mode=shared"))
	assert.Must(t, err == nil && len(list.Items) == 2 && list.Items[1].Holders[0].Owner == "her" && len(list.Unreached) == 1 && list.Unreached[0].GatewayID == "gone", "%v %s", err, a.Body)
	assert.That(t, passed.Owner == "her" && passed.Mode == locks.Shared && given.Elsewhere != nil && slices.Equal(given.Elsewhere.Names, []string{"there"}) && given.Elsewhere.To == "there", "%+v, then %+v", passed, given.Elsewhere)
	_, _, err = asked.client.Locks(asked.ctx, apitest.Query("host=h&sort=-held&cursor=abc"))
	assert.That(t, err == nil && passed.Host == "h" && passed.Sort == "" && passed.Cursor == "" && passed.Limit == locks.MaxPage && given.Elsewhere.To == "" && given.Sort == locks.SortHeld, "%v: %+v, then %+v", err, passed, given)
	passed = locks.LockFilter{}
	_, _, err = asked.client.Locks(asked.ctx, apitest.Query("sort=-held"))
	assert.That(t, err == nil && passed.NS == "" && given.Elsewhere == nil, "without an owner others are asked: %+v", passed)
}

// A list that lacks what a gateway could not be asked for is another list: a client that has it must not be told that nothing has changed.
func TestAListWithoutAGatewayHasATagOfItsOwn(t *testing.T) {
	asked, other := pair(t)
	asked.leases = func(locks.LeaseFilter) (locks.LeasePage, error) {
		return locks.LeasePage{Items: []locks.Lease{held()}}, nil
	}
	asked.locks = func(locks.LockFilter) (locks.LockPage, error) {
		return locks.LockPage{Items: []locks.Lock{queue()}}, nil
	}
	other.leases = func(locks.LeaseFilter) (locks.LeasePage, error) { return locks.LeasePage{}, nil }
	other.locks = func(locks.LockFilter) (locks.LockPage, error) { return locks.LockPage{}, nil }
	both := []locks.Peer{{Gateway: "asked", Self: true, Registered: true}, {Gateway: other.id, Address: other.address(), Registered: true}}
	for _, path := range []string{"/v1/leases?owner=her", "/v1/locks?owner=her"} {
		asked.peers = both
		whole := asked.send(t, "GET", path)
		assert.Equal(t, asked.send(t, "GET", path, apitest.Header("If-None-Match", whole.Header.Get("Etag"))).Status, 304, "%s again", path)
		asked.peers = append(both[:2:2], locks.Peer{Gateway: "gone", Address: "127.0.0.1:1", Registered: true})
		part := asked.send(t, "GET", path, apitest.Header("If-None-Match", whole.Header.Get("Etag")))
		assert.Equal(t, part.Status, 200, "%s without a gateway", path)
		asked.peers = both
		assert.Equal(t, asked.send(t, "GET", path, apitest.Header("If-None-Match", part.Header.Get("Etag"))).Status, 200, "%s with it again", path)
	}
}

// A semicolon in a value is one, and url.Values would leave the field out: of the question to other gateways, and of the link.
func TestASemicolonInAQueryIsAValue(t *testing.T) {
	asked, other := pair(t)
	var passed locks.LockFilter
	other.locks = func(f locks.LockFilter) (locks.LockPage, error) {
		passed = f
		return locks.LockPage{}, nil
	}
	asked.locks = func(f locks.LockFilter) (locks.LockPage, error) {
		return locks.LockPage{Items: []locks.Lock{queue()}, NextCursor: "c2"}, nil
	}
	asked.peers = []locks.Peer{{Gateway: "asked", Self: true, Registered: true}, {Gateway: other.id, Address: other.address(), Registered: true}}
	a := asked.send(t, "GET", "/v1/locks?owner=x;y&limit=1")
	assert.That(t, a.Status == 200 && passed.Owner == "x;y" && passed.Limit == 1, "%d, and the other gateway was asked for %+v", a.Status, passed)
	assert.Equal(t, a.Header.Get("Link"), `</v1/locks?cursor=c2&limit=1&owner=x%3By>; rel="next"`, "Link")
}

// A script with an unset variable does not mean all locks.
func TestAnEmptyOwnerOrHostIsRefused(t *testing.T) {
	g := serve(t)
	for _, path := range []string{"/v1/locks?host=", "/v1/locks?owner=", "/v1/leases?host=", "/v1/graph?owner="} {
		g.expect(t, 422, "invalid_field", "GET", path)
	}
}
