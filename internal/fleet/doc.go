// Package fleet is how the gateways of one fleet talk to each other: over the
// same HTTP interface that clients use, with a seal on each request and on each
// answer. internal/httpapi forwards a request about another gateway's lease, and passes the answer
// on unchanged. Gateways also follow each other's ends of leases this way.
//
// # What it promises
//
// A request that Open accepts was sent by a gateway that has one of the cluster
// secret's keys. Its method, path, query, covered headers and body are unchanged, and so are sender, addressee and the
// last zxid that the sender had seen. Open removes the other headers. An answer that Send returns was made by such a gateway for this
// very request. So no other program at a dead gateway's address, no other fleet's gateway and no proxy's error page is taken for an owner.
//
// Only the gateway that the seal names (Seal.To) acts upon a request, and it does so once. Admit accepts each
// number of a sender once, and a gateway id ends with its ZooKeeper session. So a captured request is refused when
// it is sent again: for its number while its gateway lives, and afterwards for the gateway that it names.
//
// An error of Send says whether the request can have been done: it has not when no
// connection was made.
//
// # What it refuses
//
// More than one hop: a request that came with a seal is never forwarded.
// Redirects, proxies of the environment, compressed answers, answers that are larger
// than MaxAnswer. A seal by a key that is not the fleet's. A request whose number was accepted before, or is older than
// the window (window.go); a new sender that is not a registered gateway. Sending before the first
// session, or to this gateway's own address.
//
// # What it does not do
//
// It does not encrypt. Over plain HTTP lease tokens are visible on the network, as they are between client and
// gateway, and a program at a dead gateway's address receives them. With https:// addresses nothing is sent
// before the certificate was checked.
//
// It does not guarantee delivery. A program between two gateways that sends a copy first has the original refused; that
// refusal has no seal, and the sender reports an unknown outcome. The answer "for another gateway" holds for
// the gateway that gave it alone. A request that was delayed on its way is accepted when it comes first,
// until the session of its gateway ends or windowSize later numbers have come. TLS prevents both.
//
// # Numbers
//
// Each process numbers what it sends, under a random name, from 1 on; no clock and no disk is needed. A request gets
// its number and its seal when it has a connection, and another one when net/http sends it over a second connection:
// requests that overtake it do not push it out of the receiver's window. A receiver keeps a window for each
// sender, at most maxSenders. At the bound it forgets the least recent sender among those that are
// not registered any more. No request of that one is accepted again, because a new sender must be registered in the
// receiver's replica, and a gateway id never comes back. A gateway that has just started may not be in
// the replica yet: its seal says which zxid to wait for.
//
// # Keys
//
// A key for seals is derived from each key of the cluster secret (HKDF, RFC 5869), so that a seal is
// never a lease token nor the other way round. The newest key seals; any of them opens.
//
// # Streams
//
// A gateway follows each other one (stream.go): a sealed request whose answer has no end, with a seal on each line.
// Listener keeps one to each registered gateway, and continues behind the last line when one breaks. The lines are
// JSON; internal/locks writes and reads them.
//
// # Ownership
//
// Listener.Run owns a goroutine for each followed gateway, and returns when all of
// them have ended. All other work is done on the caller's goroutine and those of
// net/http's transport. Connections are kept for the next request, and closed after an idle time.
// There are at most maxConns of them to one gateway for requests that wait, and as many for all others; further
// requests wait for one. So long polls delay no heartbeat and no stream.
package fleet
