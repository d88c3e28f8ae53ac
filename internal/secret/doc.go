// Package secret replaces the fleet's secret while its gateways run.
//
// # What the secret makes
//
// The node <root>/secret has the fleet's id, its keys (the first one signs, and all are accepted) and the key of names.
//
//   - Lease tokens (internal/locks/record): HMAC over the lease's id. A token names its key. It lives as long as its lease, which
//     heartbeats prolong without end.
//   - Seals of requests, answers and streams between gateways (internal/fleet): a key by HKDF. A seal names its key, and lives for one
//     request: a minute after every gateway signs with the new key (SignedAt) none of the old one is accepted. A stream ends when its key
//     is not accepted any more.
//   - The secret that signs messages to a notify_url (internal/locks/manager): by HKDF from a key and the lease's id. A message is signed
//     with those of all keys, so a client that was given one of an old key can check it until that key is dropped.
//   - Cookies of the dashboard (internal/auth/session): by HKDF. A cookie names its key, and lives 12 h: after that time none of the old
//     key is accepted.
//
// The key of names is no part of a rotation. It names the nodes of idempotency keys, so a repeated acquire finds its lease after each
// rotation. Who has it can try guesses of idempotency keys, and forge nothing. These are not made of the secret: cursors of lists, the
// signing secrets of webhooks (each is random, and has a rotation of its own), API tokens (random; their hashes are kept), and the
// passwords of the embedded store's sessions and of its own user (made of the store's identity; only processes that can read the store's
// file reach them).
//
// # Phases
//
// Each step writes the secret's node at the version that was read, so of two that take it one does, and a step whose answer was lost is
// seen to be done. Every gateway takes steps, and so do commands without a gateway: a rotation needs no particular process to live.
//
//	Accepting  The new key stands behind the old one. Each registered gateway reads it, and says so below <root>/auth/rotation. It goes on
//	           when all have said so.
//	Signing    The new key stands in front. Each registered gateway signs with it, and says so.
//	Retiring   Cut is a zxid: a lease that was created later has a token of the new key, and one of the old key is refused for it. It goes
//	           on when every registered gateway has said that it runs no lease from before.
//	Dropping   No living lease needs the old key. It is dropped after a time that the operator has chosen: for messages to a notify_url
//	           that are still tried again, and for cookies.
//
// # Promises
//
//  1. No gateway meets a key that it does not know. A gateway that is registered has said that it knows the key before any signs with it.
//     One that registers later has read the secret before: each step also writes the fence base, whose version a registration checks
//     (session.Open), and term.ZooKeeper reads the layout anew when that fails. A gateway without a session answers nothing that counts; a
//     token by a key that it does not know is 503 there, and not 403.
//  2. A token of the old key is for a lease from before Cut. A gateway says Signing when it makes no token of the old key any more, and Cut
//     is at or above the zxid at which each has said it, and at or above the end of every registration.
//  3. No living lease is lost by the drop. The number of leases that need the old key only falls: nothing makes a token of it. Each gateway
//     counts those that it runs, in a replica that shows every registration and takeover until the zxid that it names, and those of
//     gateways that are gone and have no successor yet. When all registered gateways have named the present zxid and none has such a lease,
//     there is none in the fleet; what is taken over later was counted as another gateway's.
//  4. Drop --now breaks the third promise and no other, and says what it breaks.
//
// # What it costs
//
// A lease that never ends keeps the old key in use. While it does, the old key signs nothing, and is accepted for leases from before Cut, and
// for as long as they live for seals and cookies. A client cannot be given another token for a lease that it has: there is no answer that every client would
// notice, such as a script that beats in a loop with the token it was given. Status names such leases; to end the rotation their clients
// acquire anew, or the operator drops the old key. Rejected: a verifier in each lease's record, which is one write for each lease and
// keeps forged tokens of a leaked key good just as long.
//
// Without a rotation nothing is read. During one each gateway reads some small nodes every pollEvery, and whenever one has said something.
//
// # Failure
//
// A gateway that is registered and cannot reach ZooKeeper, or that is of an earlier release, holds the first two phases up and is named. When
// its registration goes, the rotation goes on. A second rotation is refused until the first one is over.
//
// # Ownership
//
// Keeper.Run owns one goroutine's work, on the caller's goroutine. Look may be called from any goroutine and returns at once. Tree keeps nothing.
package secret
