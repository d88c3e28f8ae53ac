// Package token keeps the fleet's API tokens: secrets that clients send in Authorization: Bearer, and by which the gateway
// knows them under a name.
//
// # Form
//
//	lkt_<8: id>_<43: secret>_<6: checksum>
//
// All three are base62. The prefix lets scanners of repositories and logs find a token that leaked. The checksum (CRC-32) refuses
// typing errors without a look-up, and lets a scanner tell a token from text that resembles one. The secret has 256 bits.
//
// # Promises
//
// ZooKeeper holds a record for each token, at <root>/auth/tokens/<id>. The record has the SHA-256 of the token and never the token
// itself: no record, log line, list or error has a secret. Only the fleet's ZooKeeper identity reads and writes records. Where the
// directory was ever open to others, layout.Open removes records that another program may have made.
//
// A Store has all records in memory and follows ZooKeeper's events. Authenticate reads no node, waits for nothing, and
// allocates nothing. It compares in constant time, and does the same work for an unknown id as for a wrong secret. Both, and a token
// that has expired or was revoked, get one answer (ErrRefused). A revocation is in force at a gateway when the event has arrived there,
// as a rule within a second. A gateway that is cut off from ZooKeeper knows nothing newer. It grants nothing once its promise window
// is over, and its lists are as old as what it knows.
//
// # Tokens with the role admin
//
// Record.Admin gives the built-in role admin, whatever the rules say, so that rules cannot lock their author out. Who creates such a
// token needs the administration's socket (mode 0600, in the data directory) or the fleet's ZooKeeper identity. Each of
// them can change every lock already, so the token grants nothing new. No route of the API creates tokens. Each
// creation stands in the audit log of every gateway, also when it was done by a command that no gateway served.
//
// # Last use
//
// A record tells the day of the last use. A gateway notes the day in memory, and writes it in the background: at most writesAtOnce
// records a minute, each at the version that the gateway has read. So of several gateways one writes it, once a day. A write that
// fails is tried again a minute later. The day of uses in the minute before a crash may be missing.
//
// # What goes when
//
// A revoked record stays without its hash, and an expired one as it is, for keepEnded, so that gateway token list tells which user
// revoked it. Then any gateway deletes it.
//
// # Bounds
//
// MaxTokens records; creating more is refused. A record that a later release wrote, or that is damaged, lets no client in; it is listed
// as unreadable, and can be revoked.
//
// # Ownership
//
// Store.Run owns two goroutines, and returns when both have ended: one reads what has changed, one writes last uses. All other methods may be called at
// any time, from any goroutine.
package token
