// Package interop has what is known of other programs that lock on the same ZooKeeper: the names of their contenders and
// the programs behind them, the names for which each program waits, what their data says, and the hazards that follow.
// docs/operate/interop.md has the rules in words; tests hold that page against these tables.
//
// Everything here is pure and immutable but Presence, which belongs to one queue and is not safe for concurrent use.
package interop
