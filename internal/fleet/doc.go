// Package fleet is how the gateways of one fleet talk to each other: over the
// same HTTP interface that clients use, with a seal on each request and on each
// answer. A request about a lease that another gateway runs is sent there and its
// answer given to the client as it is (internal/httpapi does so); what gateways tell
// each other besides goes the same way.
//
// # What it promises
//
// A request that Open accepts was sent by a gateway that has one of the cluster
// secret's keys, and nothing that is acted upon has been changed on the way:
// method, path and query, the headers that are acted upon, the body, who sent it
// to whom, and how far the sender had seen. Headers that the seal does not cover are
// taken off. An answer that Send returns was made by such a gateway, for this
// very request. So neither a program that has come to stand at a dead gateway's
// address, nor another fleet's gateway, nor a proxy's error page is taken for an owner.
//
// A gateway acts upon a request once, and only the gateway that its seal names (Seal.To) does. Admit takes each
// number of a sender once, and a gateway id ends with its ZooKeeper session. So a captured request is refused,
// whenever and from wherever it is sent again: while its gateway lives, for its number; afterwards, for the gateway
// that it names.
//
// An error of Send says whether the request can have been done: it has not when no
// connection was made.
//
// # What it refuses
//
// To go further than one hop: a request that came with a seal is never sent on.
// Redirects, proxies of the environment, compressed answers, answers that are larger
// than MaxAnswer. A seal by a key that is not the fleet's. A request whose number was taken before, or is older than
// the window (window.go); a sender that is new here and is not a registered gateway. To send while there has never
// been a session, or to this gateway's own address.
//
// # What it does not do
//
// It hides nothing: over plain HTTP whoever sees the network sees lease tokens, as he does on
// the way from the client, and whoever has come to stand at a dead gateway's address is sent them, though not
// believed. Addresses with https:// are for that: there nothing is sent before the certificate was checked.
//
// It forces nothing through. A program between two gateways that sends a copy first has the original refused; that
// refusal has no seal, and the sender says that the outcome is unknown. The answer "for another gateway" is true of
// the gateway that gave it, and of no other. A request that was held back on its way comes for the first time, and is
// acted upon: until the session of its gateway ends, or windowSize later numbers have come. TLS prevents both.
//
// # Numbers
//
// Each process numbers what it sends, under a random name, from 1 on; no clock and no disk is needed. A request gets
// its number and its seal when it has a connection, and another one when net/http sends it over a second connection:
// the requests that overtake it do not push it out of the receiver's window. A receiver keeps a window for each
// sender, at most maxSenders. At the bound it forgets the sender that was heard least recently among those that are
// not registered any more. Nothing of that one passes again, because a new sender must be registered in the
// receiver's replica, and a gateway id that is gone does not come back. A sender that was just started may not be in
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
// Listener keeps one to each gateway that is registered, from where it was when the last one broke. What is told and
// heard are lines of JSON here; internal/locks makes them and judges them.
//
// # Who owns what
//
// Listener.Run owns a goroutine for each gateway that is followed, and returns when all of
// them have ended. Nothing else runs here: a call does its work on its caller's goroutine and those of
// net/http's transport. Connections are kept for the next request, and closed when they have been idle for
// a while; there are at most maxConns of them to one gateway for requests that wait, and as many for all else, and who
// comes after them waits. So long polls, which anybody may begin, hold up no heartbeat and no stream.
package fleet
