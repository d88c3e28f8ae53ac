// Package dashboard is the Go side of the live dashboard: the pages of locks
// and queues, and the socket that keeps them up to date. web/templates and web/static
// are the look of the pages; their content comes from a Locks
// (the lock manager) and from the hub of events.
//
// # What it promises
//
// A page here is a page with its parameters, normalised: a value of its own type behind one interface (page), with one row in the
// table of pages (page.go). All viewers of one page who may do the same (access.Rules.Key) share one topic: it is read and rendered
// once for all of them. On personal pages the viewer's name counts, too: those of webhooks show a viewer its own.
// A change reaches an idle page within some 25 ms, together with what else
// happened until then. A page that goes on changing is pushed after 100 ms
// (a lock) or 200 ms (the overview) at first, then every 300 ms, less often if it is expensive to render or much of it changes.
// A viewer always gets the latest state, and of it the fragments and rows that changed
// since its last message (fragment.go). A message is made and compressed once for all viewers that have seen the same; only the
// status with which a socket begins is one viewer's own.
// A slow reader skips states and makes nothing grow. A viewer that reads
// nothing for ten seconds is closed, and delays no other.
//
// Only the status fragment is sent without a change: every few seconds,
// with the gateway's clock, so that a page can tell a quiet socket from a dead one.
//
// The pages of webhooks and of gateways ask other gateways, once a second while they have
// viewers; the latter wait for no more than 300 ms, and show what was answered last (fleet.go). So do the pages of owners and hosts, every 3 s. Topics of pages that wait do not take turns at listing locks, so a gateway that hangs delays no other page.
//
// Nothing lists all locks. The overview asks for one page of them. Pages that show the wait-for graph share one look at it among
// all with the same rules, at most once a second (waits.go; kept as the history's answers are). The pages of owners and hosts and the search look at every lock, up to a
// bound of the lock manager's; two of them at a time.
//
// What was comes from the history (Options.History): a lock's timeline (timeline.go; lanes.go is its geometry, and pure), and what is usual
// (usual.go). Its answers are kept for all pages that ask the same, from 5 seconds to a minute (memory.go; answers.go bounds what is kept); at most two questions are asked at
// a time. Without a history a page says so. Rows of the overview have what is usual and a line of the queue's last hour from it, found in the
// background, once a minute for each lock that is shown (trend.go); without a history they have none. What the history lacks is drawn and said, too.
//
// A page shows, counts and offers what the API would give its viewer. Who that is comes with each request
// (auth.VisitorOf); a request without a visitor is shown nothing. The server refuses what a page does not offer, too. Nothing that
// depends on the viewer's name is in a fragment: the header is rendered for each page. The status says which rules a page is
// for (nameOf), and a page of other rules loads itself again.
//
// Users log in at /login (login.go); internal/auth has what a session is and how it ends. A login leads to a path of this gateway
// alone. When the request's context ends by an *auth.Error, its socket is closed with 4401, or with 1013 when the rules have changed.
//
// Nothing here changes a lock. Reservations, requests to release, breaking, reaping and
// destroying are requests of the page's own script (web/static/actions.js)
// to the JSON API; their result is pushed like any
// change. The lock manager says what a waiter waits for (locks.Wait).
//
// # What it refuses
//
// Viewers beyond MaxViewers, pages beyond MaxTopics and sets of rules beyond MaxSets get 503 with Retry-After
// before the upgrade; their pages poll /ui/fragments. A visitor that may read nothing is led to the login page, or gets 401
// where a script asks. Pages and polls are not
// bounded in number; those with a filter, which may have to search every lock,
// take turns, two at a time. A socket for another origin is 403. A viewer
// that sends anything is closed.
// Parameters that are unknown, repeated or wrong get a page that names them.
//
// A page is answered 200 although ZooKeeper has not been reached yet: the page
// is whole, says so, and updates itself later; a 503 would let a proxy put
// its own page in its place, which does not. /readyz has the readiness.
//
// Names, owners and data of others are shown as they are, but invisible
// characters and those that reverse the order of the text are made visible
// (visible.go). The templates escape HTML.
//
// # Goroutines and failure
//
// Run owns one goroutine per topic: it follows the hub, reads, renders, and
// ends some seconds after the last viewer left. A viewer is the goroutine of
// its request, which writes, and one that reads until the socket is closed.
// Without Run (before it and after it) pages and polling work and sockets are
// refused. Drain closes every socket (1001) and refuses new ones, because
// http.Server.Shutdown does not know them; Run does the same when it ends, and
// returns when all are gone.
//
// What needs attention is looked for on goroutines of the Dashboard, one at a time (attention.go), because the history and other gateways
// may answer late; pages show what was found last. Run waits for them.
//
// A subscription of the hub that gets Resync, or ends, is opened again,
// and the history begins again with what the hub remembers. Without one (the hub
// is full) a topic still reads every second.
package dashboard
