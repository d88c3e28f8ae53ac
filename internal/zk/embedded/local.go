package embedded

// The first byte of a session's id is the number of the server that opened it. ZooKeeper's go from 1 to 254; ids stay positive
// with both of these.
const (
	remoteServer = 1
	localServer  = 0x7e
)

// maxLocalConns bounds the connections that a process has to its own server.
const maxLocalConns = 64

// isLocal says whether a session was opened by the process that the server was in.
func isLocal(id int64) bool { return id>>56 == localServer }

// newestIDs are the highest ids of each kind.
type newestIDs struct{ remote, local int64 }

// endLocal ends the local sessions that are left from a process that is gone, and stores it.
func (k *core) endLocal() error {
	if !k.s.cfg.EndLocalSessions {
		return nil
	}
	k.now = k.s.cfg.Clock()
	var left []int64
	for id := range k.state.Sessions() {
		if isLocal(id) {
			left = append(left, id)
		}
	}
	for _, id := range left {
		k.sessions.remove(k.sessions.byID[id])
		k.txns = append(k.txns, k.state.CloseSession(k.now, id))
	}
	return k.commit()
}
