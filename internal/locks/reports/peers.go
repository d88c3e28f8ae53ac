package reports

import (
	"time"

	"lockkeeper/internal/locks/recipe"
)

// Which gateways may still report.

// Follow sets whether another gateway's feed is followed now.
func (x *Exchange) Follow(id recipe.GatewayID, followed bool, now time.Duration) {
	if p := x.peers[id]; p != nil {
		p.followed, p.since = followed, now
	}
}

// Joined records a registration.
func (x *Exchange) Joined(id recipe.GatewayID, now time.Duration) {
	if x.opt.Follows {
		x.peers[id] = &peerFeed{since: now}
		x.PeersChanged()
	}
}

// Left records that a registration is gone.
func (x *Exchange) Left(id recipe.GatewayID) {
	if x.peers[id] != nil {
		delete(x.peers, id)
		x.PeersChanged()
	}
}

// PeersChanged wakes those that wait for a change of the peers or of their addresses.
func (x *Exchange) PeersChanged() { x.wake(&x.peersWake) }

// AwaitPeers returns a channel that is closed at the next PeersChanged.
func (x *Exchange) AwaitPeers() <-chan struct{} {
	if x.peersWake == nil {
		x.peersWake = make(chan struct{})
	}
	return x.peersWake
}

// PeerMayExplain reports whether another gateway may still report something.
func (x *Exchange) PeerMayExplain(now time.Duration) bool {
	for id := range x.peers {
		if x.mayExplain(id, now) {
			return true
		}
	}
	return false
}

func (x *Exchange) mayExplain(id recipe.GatewayID, now time.Duration) bool {
	p := x.peers[id]
	return p != nil && !x.opt.Members.IsOwn(id) && (p.followed || now-p.since < ConnectWithin)
}
