// Package dashboard is the Go side of the live dashboard: the pages of locks
// and queues, and the socket that keeps them up to date. What the pages look
// like is web/templates' and web/static's; what they show comes from a Locks
// (the lock manager) and from the hub of events.
//
// # What it promises
//
// A view is a page with its parameters, normalised. All who look at one view
// share one topic: what the view shows is read and rendered once, however many
// look. A change reaches an idle page within some 25 ms, together with what else
// happened until then; a page that changes all the time is pushed every 100 ms
// (a lock) or 200 ms (the overview), less often if it is expensive to render.
// A viewer is always sent the latest state, and of it the fragments that changed
// since what it was sent before; a fragment that did not change is not sent.
// Whoever reads slowly skips states and makes nothing grow. Whoever does not
// read at all for ten seconds is closed, and delays nobody.
//
// Only the status fragment is sent though nothing changed: every few seconds,
// with the gateway's clock, so that a page can tell a quiet socket from a dead one.
//
// What the pages of webhooks show other gateways are asked for, once a second while
// somebody looks; their topics take no turn at listing locks, so who hangs holds up nobody else.
//
// Nothing lists all locks. The overview asks for one page of them.
//
// Nothing here changes a lock. Asking holders to let go, breaking, reaping and
// destroying are requests that the page's own script (web/static/actions.js)
// makes to the JSON API, under its rules; what came of them is pushed like any
// change. What a waiter waits for is told by the lock manager (locks.Wait).
//
// # What it refuses
//
// Viewers beyond MaxViewers and views beyond MaxTopics get 503 with Retry-After
// before the upgrade; their pages poll /ui/fragments. Pages and polls are not
// bounded in number; those with a filter, which may have to look at every lock,
// take turns, two at a time. A socket for another origin is 403. A viewer
// that says anything is closed: there is nothing to say.
// Parameters that are unknown, repeated or wrong get a page that names them.
//
// A page is answered 200 although ZooKeeper has not been reached yet: the page
// is whole, says so, and comes to life by itself; a 503 would let a proxy put
// its own page in its place, which does not. Readiness is told by /readyz.
//
// Names, owners and data of others are shown as they are, except that what
// nobody can see, or what turns the order of the text around, is made visible
// (visible.go). Escaping HTML is the templates'.
//
// # Goroutines and failure
//
// Run owns one goroutine per topic: it follows the hub, reads, renders, and
// ends some seconds after the last viewer left. A viewer is the goroutine of
// its request, which writes, and one that reads until the socket is closed.
// Without Run (before it and after it) pages and polling work and sockets are
// refused. Drain closes every socket (1001) and refuses new ones, for
// http.Server.Shutdown does not know them; Run does the same when it ends, and
// returns when all are gone.
//
// A subscription of the hub that is told to resync, or ends, is opened again,
// and the history begins anew with what the hub remembers. Without one (the hub
// is full) a topic still looks every second.
package dashboard
