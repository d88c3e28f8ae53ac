package authtest

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/layout"
)

// teamRules are those of two teams that share a gateway, and what both may use.
const teamRules = `
roles:
  shop:   [{ns: default, locks: "shop:*", verbs: [acquire, operate]}, {ns: vault, locks: "*", verbs: [acquire, operate]}]
  other:  [{ns: default, locks: ["other:*", "z:*"], verbs: [acquire, operate]}]
  common: [{ns: default, locks: "common:*", verbs: [acquire]}]
who:
  - {token: shop, roles: [shop, common]}
  - {token: other, roles: [other, common]}
`

// besieged is a fleet on which the team other attacks the lock shop:1 of the team shop.
type besieged struct {
	t           *testing.T
	w           *World
	shop, other *Caller
	root        *Caller
	s           *Scene
	mine        api.Lease // of other
	kept        time.Time
}

func besiege(t *testing.T) *besieged {
	w := New(t, teamRules)
	b := &besieged{t: t, w: w, root: w.Bearer("root", 0, true), shop: w.Bearer("shop", 0, false), other: w.Bearer("other", 0, false)}
	for _, c := range []*Caller{b.shop, b.other} { // the first use of a token is noted in its record within a minute
		w.Send(w.Gateways[0], c, "GET", "/v1/whoami")
	}
	time.Sleep(2 * time.Minute)
	b.s = w.NewScene(b.root, 1)
	b.mine = w.Acquire(w.Gateways[0], b.other, "other:1", "ttl=1h&owner=me")
	w.Settle()
	return b
}

// theirs is what the gateways and ZooKeeper have of the shop.
func (b *besieged) theirs() map[string]string {
	all := maps.Clone(b.w.Lists())
	maps.Copy(all, b.w.Tree.Snapshot())
	maps.DeleteFunc(all, func(name, value string) bool {
		return !strings.Contains(name, "shop:") && !strings.Contains(value, "shop:")
	})
	return all
}

// keep keeps the waiter's place, which a ticket loses after 30 s.
func (b *besieged) keep() {
	if time.Since(b.kept) > 10*time.Second {
		a := b.w.Send(b.w.Gateways[0], b.root, "POST", "/v1/leases/self/heartbeat", apitest.Token(b.s.Waiter.Token))
		assert.Must(b.t, a.Status == 200, "%+v", a)
		b.w.Settle()
		b.kept = time.Now()
	}
}

// untouched sends a request of the other team and checks that it neither sees nor changes anything of the shop.
func (b *besieged) untouched(g *Gateway, method, path string, options ...apitest.Option) *Answer {
	b.t.Helper()
	b.keep()
	before := b.theirs()
	a := b.w.Send(g, b.other, method, path, options...)
	about := fmt.Sprintf("%s %s at %s", method, path, g.name)
	assert.That(b.t, a.Err == nil && !strings.Contains(a.Body, "of-scene") && !strings.Contains(fmt.Sprint(a.Header), "of-scene"), "%s: %+v", about, a)
	b.w.Settle()
	same(b.t, about, before, b.theirs())
	return a
}

// spellings are names that a careless program takes for shop:1, or for what is above it.
var spellings = []string{"shop:1", "shop%3A1", "shop%3a1", "shop%253A1", "%73hop:1", "%2573hop:1", "other:%2e%2e", "other:..", "other:%2F..%2Fshop:1", "other:1%2F..%2Fshop:1",
	"other:1/../shop:1", "%2e%2e%2fshop:1", "..%2flocks%2fshop:1", "..;/shop:1", "other:1;shop:1", "shop:1;x", "other:1%00shop:1", "shop:1%00", "SHOP:1", "Shop:1", "shop:1/", "shop:1%20", "%20shop:1", "shop:1%0a",
	"ｓhop:1", "%EF%BD%93hop:1", "sho%CC%80p:1", "shop%EF%BC%9A1", "shop:1%E2%80%8B", "*", "shop:*", "sho?:1", "other:*", "%2A", "~shop:1", "", "%2e", "%2e%2e", "other:1%3Fns=default", "shop:1%23", "shop:01",
	"other:1%5c..%5cshop:1", "other:%C0%AF", "shop:1%2E", "shop:%31", "z:%2573hop:1"}

func TestNoSpellingOfANameReachesAnotherTeamsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := besiege(t)
		for i, name := range spellings {
			g := b.w.Gateways[i%2]
			for _, c := range []struct{ method, format string }{
				{"GET", "/v1/locks/%s"}, {"POST", "/v1/locks/%s/leases?ttl=1s"}, {"PUT", "/v1/locks/%s?limit=3"}, {"DELETE", "/v1/locks/%s"}, {"GET", "/v1/locks/%s/history"},
				{"GET", "/v1/locks/%s/fence?fencing_token=1"}, {"GET", "/v1/locks/%s/preview"}, {"POST", "/v1/locks/%s/revoke?reason=x"}, {"POST", "/v1/locks/%s/destroy?reason=x"},
				{"POST", "/v1/locks/%s/reap?older_than=1ms&reason=x"}, {"GET", "/v1/check-fence?fencing_token=1&lock=%s"}, {"GET", "/v1/events?lock=%s"}, {"GET", "/locks/%s"},
				{"POST", "/v1/locks/%s/contenders/" + path.Base(b.s.Held.Znode) + "/break?reason=x"},
			} {
				a := b.untouched(g, c.method, fmt.Sprintf(c.format, name))
				own := strings.HasPrefix(name, "other:") || strings.HasPrefix(name, "z:") || strings.HasPrefix(c.format, "/v1/events") || name == ""
				assert.That(t, own || a.Status >= 300, "%s %s: %+v", c.method, fmt.Sprintf(c.format, name), a)
			}
		}
	})
}

func TestNoRequestTargetReachesAnotherTeamsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := besiege(t)
		for _, g := range b.w.Gateways {
			for _, target := range []string{"/v1/locks/shop:1", "//v1/locks/shop:1", "/v1//locks/shop:1", "/v1/locks//shop:1", "/v1/./locks/shop:1", "/v1/locks/other:1/../shop:1", "/v1/locks/./shop:1",
				"/v1/locks/other:1/..%2fshop:1", "http://localhost/v1/locks/shop:1", "http://shop/v1/locks/shop:1", "/v1/locks/shop:1?", "/v1/locks/shop:1#", "/V1/locks/shop:1", "/v1/locks;x/shop:1", "/docs/../v1/locks/shop:1",
				"/healthz/../v1/locks/shop:1", "/healthz/..;/v1/locks/shop:1", "/static/../locks/shop:1", "/healthz%2f..%2fv1/locks/shop:1", "/v1/locks/%u0073hop:1", "/v1/locks/%"} {
				for _, line := range []string{"GET", "HEAD", "DELETE", "PUT", "get", "TRACE", "CONNECT"} {
					b.keep()
					before := b.theirs()
					answer := b.raw(g, line+" "+target+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: "+b.other.Authorization+"\r\nConnection: close\r\n\r\n")
					assert.That(t, !strings.HasPrefix(answer, "HTTP/1.1 2") && !strings.Contains(answer, "of-scene"), "%s %s: %s", line, target, answer)
					same(t, line+" "+target, before, b.theirs())
				}
			}
			// Two credentials, or one that is hidden in another: the refusal is that of no credential, or of a wrong one.
			for _, head := range []string{"Authorization: " + b.other.Authorization + "\r\nAuthorization: " + b.shop.Authorization, "Authorization: " + b.shop.Authorization + "x",
				"Authorization: " + b.shop.Authorization + ", " + b.other.Authorization, "Authorization : " + b.shop.Authorization, "Proxy-Authorization: " + b.shop.Authorization,
				"Cookie: Authorization=" + strings.ReplaceAll(b.shop.Authorization, " ", "%20"), "X-Authorization: " + b.shop.Authorization, "X-Forwarded-User: token:shop", "X-Remote-User: root"} {
				answer := b.raw(g, "GET /v1/locks/shop:1 HTTP/1.1\r\nHost: localhost\r\n"+head+"\r\nConnection: close\r\n\r\n")
				assert.That(t, strings.HasPrefix(answer, "HTTP/1.1 4") && !strings.Contains(answer, "of-scene"), "%s: %s", head, answer)
			}
		}
	})
}

// raw sends bytes, and reads the answer up to its end.
func (b *besieged) raw(g *Gateway, request string) string {
	b.t.Helper()
	conn := assert.Value(b.w.dial("raw", g.name))(b.t)
	defer conn.Close()
	_, err := io.WriteString(conn, request)
	assert.NoError(b.t, err)
	answer, _ := io.ReadAll(bufio.NewReader(conn)) // a reset ends it, too
	return string(answer)
}

func TestNoQueryHeaderOrBodyReachesAnotherTeamsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := besiege(t)
		form := func(text string) apitest.Option {
			return func(r *http.Request) {
				apitest.Body(text)(r)
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
		}
		for _, g := range b.w.Gateways {
			for _, c := range []struct {
				method, path string
				with         []apitest.Option
				status       int
			}{
				{"GET", "/v1/locks", nil, 200}, {"GET", "/v1/locks?prefix=shop:", nil, 200}, {"GET", "/v1/locks?prefix=sh%6Fp:1", nil, 200}, {"GET", "/v1/locks?owner=holder-of-scene", nil, 200},
				{"GET", "/v1/locks?prefix=other:&prefix=shop:", nil, 422}, {"GET", "/v1/locks?sort=waiting", nil, 0}, {"GET", "/v1/locks?ns=default;ns=vault", nil, 0},
				{"GET", "/v1/locks?ns=vault", nil, 403}, {"GET", "/v1/locks?ns=", nil, 0}, {"GET", "/v1/locks?ns=*", nil, 422}, {"GET", "/v1/leases?ns=vault", nil, 403}, {"GET", "/v1/leases?ns=*", nil, 422},
				{"GET", "/v1/leases", nil, 200}, {"GET", "/v1/leases?owner=holder-of-scene", nil, 200}, {"GET", "/v1/leases?state=waiting", nil, 200}, {"GET", "/v1/namespaces", nil, 200},
				{"GET", "/v1/check-fence?lock=other:1&lock=shop:1&fencing_token=1", nil, 0},
				{"GET", "/v1/check-fence?fencing_token=1", []apitest.Option{apitest.Header("Lockkeeper-Lock", "shop:1")}, 403},
				{"GET", "/v1/check-fence?lock=other:1&fencing_token=1", []apitest.Option{apitest.Header("Lockkeeper-Lock", "shop:1"), apitest.Header("Lockkeeper-Namespace", "vault")}, 0},
				{"GET", "/v1/check-fence?lock=shop:1&fencing_token=1", []apitest.Option{apitest.Header("Lockkeeper-Lock", "other:1")}, 422},
				{"POST", "/v1/locks/other:2/leases", []apitest.Option{apitest.JSON(`{"lock":"shop:1"}`)}, 422}, {"POST", "/v1/locks/other:2/leases?ns=vault", nil, 403},
				{"POST", "/v1/locks/other:2/leases?ns=vault", []apitest.Option{apitest.JSON(`{"ns":"default"}`)}, 422}, {"POST", "/v1/locks/other:2/leases", []apitest.Option{form("ns=vault")}, 403},
				{"POST", "/v1/locks/shop:1/leases", []apitest.Option{form("wait=1s&ttl=1m")}, 403}, {"POST", "/v1/locks/shop:1/leases?dry_run=true", nil, 0},
				{"GET", "/v1/locks/shop:1", []apitest.Option{apitest.Header("Accept", "text/plain")}, 403}, {"GET", "/v1/locks/shop:1?format=text", nil, 403}, {"GET", "/v1/locks/shop:1?consistent=true", nil, 403},
				{"GET", "/v1/locks?format=text", nil, 200}, {"POST", "/v1/locks/shop:1/leases?format=env", nil, 403},
				// Overrides of the method or the path, and marks of what only gateways or proxies send.
				{"GET", "/v1/locks/other:1", []apitest.Option{apitest.Header("X-Original-URL", "/v1/locks/shop:1"), apitest.Header("X-Rewrite-URL", "/v1/locks/shop:1")}, 200},
				{"POST", "/v1/locks/shop:1", []apitest.Option{apitest.Header("X-HTTP-Method-Override", "DELETE")}, 405}, {"GET", "/v1/locks/shop:1?_method=DELETE", nil, 0},
				{"POST", "/v1/leases/" + b.s.Held.LeaseID, []apitest.Option{apitest.Header("X-HTTP-Method-Override", "DELETE")}, 405},
				{"GET", "/v1/locks/shop:1", b.forged(""), 403}, {"GET", "/v1/locks/shop:1", b.forged("token:root"), 403}, {"DELETE", "/v1/leases/self", append(b.forged("token:root"), apitest.Token(b.mine.Token)), 403},
				{"GET", "/v1/locks/shop:1", []apitest.Option{apitest.Header(fleet.Header, "")}, 403}, {"GET", "/v1/locks/shop:1", []apitest.Option{apitest.Header(fleet.Header, "3 caller=dG9rZW46cm9vdA roles=* mac=")}, 403},
				{"GET", "/v1/locks/shop:1", []apitest.Option{apitest.Header("X-Forwarded-For", "127.0.0.1"), apitest.Header("Forwarded", "for=127.0.0.1")}, 403},
				{"OPTIONS", "/v1/locks/shop:1", nil, 204},
				// Leases by their ids.
				{"GET", "/v1/leases/" + b.s.Held.LeaseID, nil, 404}, {"GET", "/v1/leases/" + b.s.Held.LeaseID, []apitest.Option{apitest.Token(b.mine.Token)}, 403},
				{"GET", "/v1/leases/" + b.s.Held.LeaseID + "?verify=true", nil, 404}, {"GET", "/v1/leases/" + b.s.Held.LeaseID + "?wait=1s&until=ended", nil, 404},
				{"GET", "/v1/leases/" + strings.ToUpper(b.s.Held.LeaseID), nil, 404}, {"GET", "/v1/leases/" + b.s.Ended.LeaseID + "/postmortem", nil, 404},
				{"POST", "/v1/leases/" + b.s.Held.LeaseID + "/break?reason=x", []apitest.Option{apitest.Token(b.mine.Token)}, 404},
				{"POST", "/v1/leases/" + b.s.Held.LeaseID + "/heartbeat", []apitest.Option{apitest.Token(b.mine.Token)}, 403}, {"DELETE", "/v1/leases/" + b.s.Held.LeaseID, []apitest.Option{apitest.Token(b.mine.Token)}, 403},
				{"DELETE", "/v1/leases/self", []apitest.Option{apitest.Token(strings.Replace(b.mine.Token, b.mine.LeaseID, b.s.Held.LeaseID, 1))}, 403},
				{"POST", "/v1/heartbeats", []apitest.Option{apitest.JSON(fmt.Sprintf(`{"tokens":[%q]}`, strings.Replace(b.mine.Token, b.mine.LeaseID, b.s.Held.LeaseID, 1)))}, 200},
				{"POST", "/v1/locks/shop:1/leases?hold=x", []apitest.Option{apitest.Token(b.mine.Token)}, 0}, {"POST", "/v1/locks/other:1/leases?hold=x", []apitest.Option{apitest.Token(b.s.Held.Token)}, 0},
			} {
				a := b.untouched(g, c.method, c.path, c.with...)
				assert.That(t, c.status == 0 || a.Status == c.status, "%s %s at %s: %d, want %d: %s", c.method, c.path, g.name, a.Status, c.status, a.Body)
				assert.That(t, !strings.Contains(a.Body, "vault") || strings.Contains(c.path, "vault") || c.with != nil, "%s %s tells of another team's namespace: %s", c.method, c.path, a.Body)
			}
		}
	})
}

// forged is a seal as the fleet's gateways put it on requests that they send on, for a caller with the role of administrator, and
// under a key of the attacker. The ids of gateways are no secret.
func (b *besieged) forged(caller string) []apitest.Option {
	keys := assert.Value(fleet.NewKeys([]layout.TokenKey{{ID: strings.Split(b.mine.Token, ".")[2], Key: make([]byte, 32)}}))(b.t)
	return []apitest.Option{func(r *http.Request) {
		seal := &fleet.Seal{From: b.w.Gateways[0].manager.GatewayID(), To: b.w.Gateways[1].manager.GatewayID(), Sender: "attacker", Number: 1, Caller: caller, Roles: []string{"*"}}
		keys.Close(seal, r, nil)
	}}
}

func TestAnAcquireOfSeveralLocksTakesNoneWhereOneIsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := besiege(t)
		for _, g := range b.w.Gateways {
			for _, list := range []string{`{"lock":"other:2"},{"lock":"shop:1"}`, `{"lock":"shop:1"},{"lock":"other:2"}`, `{"lock":"other:2"},{"lock":"shop:9"},{"lock":"other:3"}`, `{"lock":"other:2"},{"lock":"x","ns":"vault"}`,
				`{"lock":"other:2"},{"lock":"other:2","ns":"vault"}`, `{"lock":"other:2"},{"lock":"*"}`, `{"lock":"other:2"},{"lock":"shop%3A1"}`} {
				for _, more := range []string{``, `,"wait":"1s"`, `,"async":true`, `,"dry_run":true`} {
					b.keep()
					nodes, lists := b.w.Tree.Snapshot(), b.w.Lists()
					a := b.untouched(g, "POST", "/v1/leases", apitest.JSON(`{"locks":[`+list+`],"ttl":"1m"`+more+`}`))
					assert.That(t, a.Status == 403 || a.Status == 422, "%s%s: %+v", list, more, a)
					same(t, list, nodes, b.w.Tree.Snapshot())
					same(t, list, lists, b.w.Lists())
				}
			}
		}
	})
}

func TestAnIdempotencyKeyIsItsCallersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := besiege(t)
		key := apitest.Key("a-key-that-both-teams-use")
		for _, path := range []string{"/v1/locks/common:1/leases?ttl=1m&owner=same", "/v1/leases?several"} {
			ask := func(c *Caller, g *Gateway) *Answer {
				if strings.HasSuffix(path, "several") {
					return b.w.Send(g, c, "POST", "/v1/leases", key, apitest.JSON(`{"locks":[{"lock":"common:1"},{"lock":"common:2"}],"ttl":"1m","owner":"same"}`))
				}
				return b.w.Send(g, c, "POST", path, key)
			}
			theirs := ask(b.shop, b.w.Gateways[0])
			assert.Must(t, theirs.Status == 201, "%+v", theirs)
			for _, g := range b.w.Gateways {
				a := ask(b.other, g)
				assert.That(t, a.Status == 409 && a.Header.Get("Idempotency-Replayed") == "" && !strings.Contains(a.Body, theirs.Lease().Token), "%+v", a)
				a = ask(b.shop, g)
				assert.That(t, a.Status == 200 && a.Lease().LeaseID == theirs.Lease().LeaseID, "%+v", a)
			}
			released := b.w.Send(b.w.Gateways[0], b.shop, "DELETE", "/v1/leases/self", apitest.Token(theirs.Lease().Token))
			assert.Must(t, released.Status == 204, "%+v", released)
			a := ask(b.other, b.w.Gateways[1])
			assert.That(t, a.Status == 201 && a.Lease().LeaseID != theirs.Lease().LeaseID, "%+v", a)
			b.w.Send(b.w.Gateways[0], b.other, "DELETE", "/v1/leases/self", apitest.Token(a.Lease().Token))
		}
	})
}

func TestACursorOfAnotherCallerShowsNothingOfItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := besiege(t)
		for i := range 5 {
			b.w.Acquire(b.w.Gateways[i%2], b.shop, fmt.Sprintf("shop:canary-%d", i), "ttl=1h&owner=shop-of-scene")
			b.w.Acquire(b.w.Gateways[i%2], b.other, fmt.Sprintf("z:%d", i), "ttl=1h&owner=me")
			a := b.w.Send(b.w.Gateways[0], b.shop, "POST", "/v1/locks/shop:canary-0/leases?ttl=1h&async=true")
			assert.Must(t, a.Status == 202, "%+v", a)
		}
		b.w.Settle()
		for _, list := range []string{"/v1/locks?limit=1", "/v1/locks?limit=1&prefix=", "/v1/leases?limit=1", "/v1/locks/shop:canary-0?limit=1", "/v1/locks?limit=1&sort=waiting"} {
			for _, g := range b.w.Gateways {
				seen := 0
				for at := list; ; seen++ { // each cursor of the shop, as far as its list goes
					a := b.w.Send(g, b.shop, "GET", at)
					next := nextCursor.FindStringSubmatch(a.Body)
					if a.Status != 200 || next == nil {
						break
					}
					at = list + "&cursor=" + next[1]
					b.untouched(g, "GET", at)
					b.untouched(g, "GET", strings.Replace(at, "shop:canary-0", "other:1", 1))
				}
				assert.That(t, seen > 0 || strings.Contains(list, "sort"), "%s has one page", list)
				for at := list; ; { // and the other team's own cursors, across the shop's locks
					a := b.untouched(g, "GET", at)
					next := nextCursor.FindStringSubmatch(a.Body)
					if next == nil {
						break
					}
					for _, text := range decodings(next[1]) {
						assert.That(t, !strings.Contains(text, "shop"), "the cursor %q says %q", next[1], text)
					}
					at = list + "&cursor=" + next[1]
				}
			}
		}
	})
}

var nextCursor = regexp.MustCompile(`"next_cursor":"([^"]+)"`)

func TestWhatIsHiddenAnswersAsWhatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := besiege(t)
		held, ended := b.s.Held, b.s.Ended
		last := map[bool]string{true: "b", false: "a"}[strings.HasSuffix(held.LeaseID, "a")]
		absent := held.LeaseID[:len(held.LeaseID)-1] + last // of the same gateway
		rev := b.w.Send(b.w.Gateways[0], b.shop, "GET", "/v1/locks/shop:1").Header.Get("ETag")
		match := func(name string) []apitest.Option { return []apitest.Option{apitest.Header(name, rev)} }
		own := []apitest.Option{apitest.Token(b.mine.Token)}
		forged := func(id string) []apitest.Option {
			return []apitest.Option{apitest.Token(strings.Replace(b.mine.Token, b.mine.LeaseID, id, 1))}
		}
		twins := [][2]string{{"shop:1", "shop:7"}, {held.LeaseID, absent}, {ended.LeaseID, absent}, {"ns=vault", "ns=cairn"}, {b.s.Hook, b.s.Hook[:len(b.s.Hook)-1] + map[bool]string{true: "b", false: "a"}[strings.HasSuffix(b.s.Hook, "a")]}}
		for _, c := range []struct {
			twin         int
			method, path string
			with         func(string) []apitest.Option
		}{
			{0, "GET", "/v1/locks/%s", nil}, {0, "HEAD", "/v1/locks/%s", nil}, {0, "OPTIONS", "/v1/locks/%s", nil}, {0, "GET", "/v1/locks/%s?wait=1s&since=x", nil}, {0, "GET", "/v1/locks/%s/history", nil},
			{0, "GET", "/v1/locks/%s/preview", nil}, {0, "GET", "/v1/locks/%s/fence?fencing_token=" + fmt.Sprint(held.FencingToken), nil}, {0, "POST", "/v1/locks/%s/leases?wait=1s", nil}, {0, "DELETE", "/v1/locks/%s", nil},
			{0, "GET", "/v1/check-fence?lock=%s&fencing_token=1", nil}, {0, "POST", "/v1/locks/%s/revoke?reason=x", nil}, {0, "DELETE", "/v1/locks/%s/revoke", nil}, {0, "POST", "/v1/locks/%s/destroy?reason=x", nil},
			{0, "GET", "/v1/locks/%s", func(string) []apitest.Option { return match("If-None-Match") }}, {0, "PUT", "/v1/locks/%s?limit=2", func(string) []apitest.Option { return match("If-Match") }},
			{0, "PUT", "/v1/locks/%s?limit=2", func(string) []apitest.Option { return []apitest.Option{apitest.Header("If-Match", `"wrong"`)} }},
			{0, "POST", "/v1/locks/%s/contenders/" + path.Base(held.Znode) + "/break?reason=x", nil}, {0, "GET", "/locks/%s", nil}, {0, "GET", "/v1/locks/%s?cursor=x", nil},
			{1, "GET", "/v1/leases/%s", nil}, {1, "HEAD", "/v1/leases/%s", nil}, {1, "GET", "/v1/leases/%s/postmortem", nil}, {1, "POST", "/v1/leases/%s/break?reason=x", nil}, {1, "GET", "/v1/leases/%s?verify=true", nil},
			{1, "GET", "/v1/leases/%s?wait=1s&until=ended", nil}, {1, "DELETE", "/v1/leases/%s", func(string) []apitest.Option { return own }}, {1, "GET", "/v1/leases/%s", func(string) []apitest.Option { return own }},
			{1, "POST", "/v1/leases/%s/heartbeat", forged}, {1, "PATCH", "/v1/leases/%s?metadata=x", forged}, {1, "POST", "/v1/leases/%s/downgrade", forged}, {1, "GET", "/v1/leases/%s", forged},
			{2, "GET", "/v1/leases/%s", nil}, {2, "GET", "/v1/leases/%s/postmortem", nil}, {2, "POST", "/v1/leases/%s/break?reason=x", nil}, {2, "GET", "/v1/leases/%s", forged},
			{4, "GET", "/v1/webhooks/%s", nil}, {4, "PATCH", "/v1/webhooks/%s?description=x", nil}, {4, "DELETE", "/v1/webhooks/%s", nil}, {4, "POST", "/v1/webhooks/%s/rotate", nil}, {4, "POST", "/v1/webhooks/%s/test", nil},
			{4, "POST", "/v1/webhooks/%s/replay", nil}, {4, "GET", "/v1/webhooks/%s/attempts", nil}, {4, "GET", "/v1/webhooks/%s/dead-letters", nil}, {4, "GET", "/webhooks/%s", nil},
			{4, "DELETE", "/v1/webhooks/%s", func(string) []apitest.Option { return []apitest.Option{apitest.Header("If-Match", `"1"`)} }},
			{3, "GET", "/v1/locks?%s", nil}, {3, "GET", "/v1/leases?%s", nil}, {3, "GET", "/v1/events?%s", nil}, {3, "POST", "/v1/locks/other:1/leases?%s", nil}, {3, "GET", "/v1/locks/other:1?%s", nil},
			{3, "GET", "/v1/locks/other:1/history?%s", nil}, {3, "PUT", "/v1/locks/other:1?limit=2&%s", nil}, {3, "GET", "/v1/check-fence?lock=other:1&fencing_token=1&%s", nil}, {3, "GET", "/v1/locks/other:1/preview?%s", nil},
		} {
			for _, g := range b.w.Gateways {
				var answers [2]string
				for i, name := range twins[c.twin] {
					var options []apitest.Option
					if c.with != nil {
						options = c.with(name)
					}
					begun := time.Now()
					a := b.untouched(g, c.method, fmt.Sprintf(c.path, name), options...)
					// To a tenth of a second: messages take up to a millisecond each.
					answers[i] = fmt.Sprint(time.Since(begun).Round(100*time.Millisecond), " ", plain(a, name))
				}
				assert.That(t, answers[0] == answers[1], "%s %s at %s: what is hidden is answered\n%s\nand what is not there\n%s", c.method, c.path, g.name, answers[0], answers[1])
			}
		}
	})
}

var clockOfPage = regexp.MustCompile(` data-now="\d+"`)

// plain is an answer without what is different in each, and without the name that was asked for.
func plain(a *Answer, name string) string {
	id := a.Header.Get("Lockkeeper-Request-Id")
	_, value, _ := strings.Cut(name, "=")
	var head []string
	for key, values := range a.Header {
		if key != "Date" && key != "Lockkeeper-Request-Id" {
			head = append(head, key+"="+strings.Join(values, ","))
		}
	}
	slices.Sort(head)
	text := strings.ReplaceAll(fmt.Sprint(a.Status, " ", head, " ", clockOfPage.ReplaceAllString(a.Body, "")), id, "REQUEST")
	text = strings.ReplaceAll(text, name, "NAME")
	if value != "" {
		text = strings.ReplaceAll(text, value, "NAME")
	}
	return text
}

// A browser sends the cookie of a session with requests that pages of other sites make, too.
func TestAPageOfAnotherSiteDoesNothingByTheSessionOfABrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := besiege(t)
		browser := b.w.Browser("browser", b.w.Gateways[0], b.shop)
		page := &Caller{Name: "page"}
		for _, g := range b.w.Gateways {
			a := b.w.Send(g, browser, "POST", "/v1/locks/shop:1/revoke?reason=from+the+page")
			assert.Must(t, a.Status == 200, "the session does not work: %+v", a)
			a = b.w.Send(g, browser, "DELETE", "/v1/locks/shop:1/revoke")
			assert.Must(t, a.Status == 200, "%+v", a)
			b.w.Settle() // the owner has read it
			for _, head := range []map[string]string{{}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:9999"}, {"Sec-Fetch-Site": "cross-site"},
				{"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"}, {"Referer": "http://localhost/"}, {"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"}, {"Origin": "http://localhost.evil.example"}} {
				with := []apitest.Option{apitest.Header("Cookie", browser.Cookie)}
				for name, value := range head {
					with = append(with, apitest.Header(name, value))
				}
				for _, c := range []struct{ method, path string }{{"POST", "/v1/locks/shop:2/leases?ttl=1m"}, {"PUT", "/v1/locks/shop:1?limit=3"}, {"DELETE", "/v1/locks/shop:1"}, {"POST", "/v1/locks/shop:1/destroy?reason=x"},
					{"POST", "/v1/locks/shop:1/revoke?reason=x&force_after=1s"}, {"POST", "/v1/leases/" + b.s.Held.LeaseID + "/break?reason=x"}, {"POST", "/v1/webhooks?url=https://evil.example/"}} {
					b.keep()
					before := b.theirs()
					a := b.w.Send(g, page, c.method, c.path, with...)
					assert.That(t, a.Status == 403, "%s %s with %v: %+v", c.method, c.path, head, a)
					b.w.Settle()
					same(t, c.path, before, b.theirs())
				}
				if head["Origin"] == "" { // a browser always says the origin of a socket's page
					continue
				}
				for _, path := range []string{"/v1/events/ws", "/ui/live?page=overview"} {
					conn, a := b.w.Socket(g, page, path, with...)
					assert.That(t, conn == nil && a.Status == 403, "%s with %v: %+v", path, head, a)
				}
			}
		}
	})
}
