package session

import "lockkeeper/internal/zk"

// maxEphemeralPaths bounds the bytes of paths of a session's ephemeral nodes.
// The transaction that closes a session lists them all; from about 2 MB on a
// server that reads it back from its log cannot start again.
const maxEphemeralPaths = 256 << 10

// sequenceDigits is what ZooKeeper appends to the name of a sequential node.
const sequenceDigits = 10

// ephemerals counts the paths of a session's ephemeral nodes, with those that
// are being created. A node that somebody else deletes stays counted until
// Forget is told: the cap may refuse early, never late.
type ephemerals struct {
	used  int
	nodes map[string]int // path -> bytes
}

// ephemeralSize is what an operation adds to the session's closing.
func (s *Session) ephemeralSize(op *zk.Op) int {
	if op.Kind != zk.OpCreate || !op.Ephemeral {
		return 0
	}
	n := 4 + len(s.cfg.Chroot) + len(op.Path)
	if op.Sequential {
		n += sequenceDigits
	}
	return n
}

func (e *ephemerals) reserve(n int) bool {
	if n > 0 && e.used+n > maxEphemeralPaths {
		return false
	}
	e.used += n
	return true
}

func (e *ephemerals) release(path string) {
	e.used -= e.nodes[path]
	delete(e.nodes, path)
}

// settle corrects the count by what became of a Write. After Unknown the paths
// stay counted: the nodes may exist.
func (e *ephemerals) account(s *Session, w *zk.Write, r zk.Result) {
	if r.Outcome == zk.Unknown {
		return
	}
	for i := range w.Ops {
		op := &w.Ops[i]
		switch n := s.ephemeralSize(op); {
		case n > 0 && r.Outcome != zk.Done:
			e.used -= n
		case n > 0 && r.Paths[i] == "": // created, and already gone again
			e.used -= n
		case n > 0:
			if e.nodes == nil {
				e.nodes = make(map[string]int)
			}
			e.nodes[r.Paths[i]] = n
		case op.Kind == zk.OpDelete && r.Outcome == zk.Done:
			e.release(op.Path)
		}
	}
}

// ForgetEphemeral takes a node off the session's count of ephemeral paths:
// for one that somebody else has deleted. Unknown paths are ignored.
func (s *Session) ForgetEphemeral(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ephemerals.release(path)
}
