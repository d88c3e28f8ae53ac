package authtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// endsWithin is how long what a revoked token has begun may go on.
const endsWithin = 20 * time.Second

// long is one request that lives long: ended says how it has ended.
type long struct {
	what  string
	ended <-chan string
}

// begin begins everything that lives long, at one gateway. Of the two locks, which another caller holds at the first gateway, one is
// looked at, and one is waited for.
func begin(ctx context.Context, w *World, g *Gateway, c *Caller, looked api.Lease, waited string) (all []long) {
	add := func(what string, ended <-chan string) { all = append(all, long{g.name + ": " + what, ended}) }
	for _, format := range []string{"sse", "jsonl"} {
		_, rest := w.Open(ctx, g, c, "/v1/events?format="+format)
		ended := make(chan string, 1)
		go func() { <-rest; ended <- "end" }()
		add("stream of "+format, ended)
	}
	for what, path := range map[string]string{"socket": "/v1/events/ws", "socket of a page": "/ui/live?page=overview"} {
		conn, a := w.Socket(g, c, path)
		assert.Must(w.t, conn != nil, "%+v", a)
		closed := make(chan string, 1)
		go func() {
			defer conn.Close()
			for {
				_, _, err := conn.ReadMessage()
				if why, ok := errors.AsType[*websocket.CloseError](err); ok {
					closed <- fmt.Sprint("close ", why.Code)
				} else if err != nil {
					closed <- "cut"
				} else {
					continue
				}
				return
			}
		}()
		add(what, closed)
	}
	later := func(what, method, path string, options ...apitest.Option) {
		answer := w.Later(ctx, g, c, method, path, options...)
		ended := make(chan string, 1)
		go func() { a := <-answer; ended <- fmt.Sprint(a.Status, " ", a.Code()) }()
		add(what, ended)
	}
	rev := func(path string) string {
		a := w.Send(g, c, "GET", path)
		assert.Must(w.t, a.Status == http.StatusOK && a.Lease().Rev != "", "%+v", a)
		return path + "?wait=5m&since=" + a.Lease().Rev
	}
	later("long poll of a lock", "GET", rev("/v1/locks/"+looked.Lock))
	later("long poll of a lease", "GET", rev("/v1/leases/"+looked.LeaseID))
	later("acquire that waits", "POST", "/v1/locks/"+waited+"/leases?ttl=1m&wait=forever")
	later("acquire of several", "POST", "/v1/leases", apitest.JSON(fmt.Sprintf(`{"locks":[{"lock":%q},{"lock":%q}],"wait":"forever","ttl":"1m"}`, waited, waited+"-too")))
	return all
}

// endedAs is how what lives long must end when its caller is not let in any more.
func endedAs(what string) string {
	switch what[len("gw1: "):] {
	case "socket", "socket of a page":
		return "close 4401"
	case "stream of sse", "stream of jsonl":
		return "end"
	}
	return "401 unauthenticated"
}

func TestWhatLivesLongEndsWithin20SecondsOfTheEndOfItsCallersToken(t *testing.T) {
	for _, how := range []string{"revoked", "expired", "the JWT has expired", "its role is gone"} {
		synctest.Test(t, func(t *testing.T) {
			w := New(t, tableRules)
			root := w.Bearer("root", 0, true)
			var c *Caller
			switch how {
			case "the JWT has expired":
				c = w.JWT("jwt", w.Issuer, "shopper", Audience, time.Minute)
			case "expired":
				c = w.Bearer("acquire", time.Minute, false)
			default:
				c = w.Bearer("acquire", 0, false)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all []long
			for i, g := range w.Gateways {
				looked := w.Acquire(w.Gateways[0], root, fmt.Sprintf("shop:%d-looked", i), "ttl=1h")
				waited := w.Acquire(w.Gateways[0], root, fmt.Sprintf("shop:%d-waited", i), "ttl=1h")
				w.Settle()
				all = append(all, begin(ctx, w, g, c, looked, waited.Lock)...)
			}
			time.Sleep(5 * time.Second)
			var end time.Time
			switch how {
			case "revoked":
				w.Revoke(c)
				end = time.Now()
			case "its role is gone":
				w.Rule("roles: {}\n")
				end = time.Now().Add(5 * time.Second) // the file is looked at every 5 s
			case "expired":
				end = c.Token.Expires
			default:
				end = time.Now().Add(time.Minute + 25*time.Second) // clocks may differ by 30 s
			}
			time.Sleep(time.Until(end.Add(endsWithin)))
			synctest.Wait()
			for _, one := range all {
				select {
				case got := <-one.ended:
					want := endedAs(one.what)
					if how == "its role is gone" && want != "end" { // it is known, and may do nothing now
						want = map[bool]string{true: "close 1013", false: "503 authentication_unavailable"}[want == "close 4401"]
					}
					assert.Equal(t, got, want, "%s, %s", one.what, how)
				default:
					t.Errorf("%s goes on 20 s after its caller's token has ended (%s)", one.what, how)
				}
			}
			for _, g := range w.Gateways {
				list := w.Send(g, root, "GET", "/v1/leases?state=waiting")
				assert.That(t, list.Status == 200 && !strings.Contains(list.Body, "lease_id"), "%s: waiters are left in the queue: %s", how, list.Body)
			}
		})
	}
}

func TestAWaitWithAnIdempotencyKeyIsTakenUpWithANewCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, tableRules)
		root := w.Bearer("root", 0, true)
		held := w.Acquire(w.Gateways[0], root, "shop:busy", "ttl=1h")
		for i, g := range w.Gateways {
			first := w.Bearer("acquire", time.Minute, false)
			ask := func(by *Caller, at *Gateway) <-chan *Answer {
				return w.Later(t.Context(), at, by, "POST", "/v1/locks/shop:busy/leases?ttl=1h&wait=5m", apitest.Key(fmt.Sprint("the-key-of-the-attempt-", i)))
			}
			answer := ask(first, g)
			time.Sleep(5 * time.Second)
			waiting := func() []api.Lease {
				var list api.LeaseList
				assert.NoError(t, json.Unmarshal([]byte(w.Send(g, root, "GET", "/v1/leases?state=waiting").Body), &list))
				return list.Items
			}
			before := waiting()
			assert.Must(t, len(before) == 1, "%+v", before)
			a := <-answer
			assert.That(t, a.Status == 401 && a.Code() == "unauthenticated" && time.Since(first.Token.Expires) <= endsWithin, "%+v at %s", a, time.Now())
			time.Sleep(10 * time.Second)
			after := waiting()
			assert.Must(t, len(after) == 1 && after[0].LeaseID == before[0].LeaseID, "the place is gone: %+v", after)
			// Another token of the same name, at the other gateway; a stranger with the same key gets nothing of it.
			stranger := w.JWT("stranger", w.Issuer, "shopper", Audience, time.Hour)
			a = w.Send(g, stranger, "POST", "/v1/locks/shop:busy/leases?ttl=1m", apitest.Key(fmt.Sprint("the-key-of-the-attempt-", i)))
			assert.That(t, a.Status == 409 && !strings.Contains(a.Body, before[0].LeaseID), "%+v", a)
			answer = ask(w.Bearer("acquire", time.Hour, false), w.Gateways[1-i])
			time.Sleep(40 * time.Second) // it waits in a request, so its place is no ticket that runs out
			a = w.Send(g, root, "DELETE", "/v1/leases/self", apitest.Token(held.Token))
			assert.Must(t, a.Status == 204, "%+v", a)
			a = <-answer
			assert.Must(t, a.Status < 300 && a.Lease().LeaseID == before[0].LeaseID, "%+v", a)
			held = a.Lease()
		}
	})
}

func TestAnIssuerThatIsAwayEndsNothingThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, tableRules)
		root := w.Bearer("root", 0, true)
		job := w.JWT("job", w.Issuer, "shopper", Audience, 24*time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lease := w.Acquire(w.Gateways[0], job, "shop:long", "ttl=1m")
		var streams []<-chan string
		var waits []<-chan *Answer
		for _, g := range w.Gateways {
			a, rest := w.Open(ctx, g, job, "/v1/events?format=jsonl")
			assert.Must(t, a.Status == 200, "%+v", a)
			streams = append(streams, rest)
			waits = append(waits, w.Later(ctx, g, job, "POST", "/v1/locks/shop:long/leases?ttl=1m&wait=forever"))
		}
		w.Issuer.Away.Store(true)
		for begun, i := time.Now(), 0; time.Since(begun) < 3*time.Hour; i++ {
			time.Sleep(40 * time.Second)
			a := w.Send(w.Gateways[i%2], job, "POST", "/v1/leases/self/heartbeat", apitest.Token(lease.Token))
			assert.Must(t, a.Status == 200, "%+v", a)
			a = w.Send(w.Gateways[i%2], job, "GET", "/v1/locks/shop:long")
			assert.Must(t, a.Status == 200, "after %s: %+v", time.Since(begun), a)
		}
		// A JWT that no gateway has seen, of a key that all know.
		fresh := w.JWT("fresh", w.Issuer, "shopper", Audience, time.Hour)
		for i, g := range w.Gateways {
			a := w.Send(g, fresh, "GET", "/v1/locks/shop:long")
			assert.That(t, a.Status == 200, "%+v", a)
			testkit.Nothing(t, streams[i], "the stream at %s", g.name)
			testkit.Nothing(t, waits[i], "the wait at %s", g.name)
		}
		// A gateway that has never read the keys lets the caller in no more, and keeps its lease by the lease's token.
		late := w.Join("gw3")
		for _, c := range []*Caller{job, fresh} {
			a := w.Send(late, c, "GET", "/v1/locks/shop:long")
			assert.That(t, a.Status == 503 && a.Code() == "authentication_unavailable", "%+v", a)
			a = w.Send(late, c, "POST", "/v1/leases/self/heartbeat", apitest.Token(lease.Token))
			assert.That(t, a.Status == 200, "%+v", a)
		}
		a := w.Send(late, root, "GET", "/v1/locks/shop:long")
		assert.That(t, a.Status == 200, "an API token needs no issuer: %+v", a)
		a = w.Send(late, fresh, "DELETE", "/v1/leases/self", apitest.Token(lease.Token))
		assert.That(t, a.Status == 204, "%+v", a)
		synctest.Wait()
	})
}
