package session

import "lockkeeper/internal/zk"

// maxEphemeralPaths bounds the bytes of paths of a session's ephemeral nodes. The transaction that closes a session
// lists them all; from about 2 MB on a server that reads it back from its log cannot start again.
const maxEphemeralPaths = 256 << 10

// ephemerals counts the paths of a session's ephemeral nodes, with those that are being created. A node that another
// program deletes stays counted until ForgetEphemeral is called: the cap may refuse early, never late.
type ephemerals struct {
	chroot int // bytes of it
	used   int
	nodes  map[string]int // path -> bytes
}

// size is what an operation adds to the session's closing.
func (e *ephemerals) size(op *zk.Op) int {
	if op.Kind != zk.OpCreate || !op.Ephemeral {
		return 0
	}
	n := 4 + e.chroot + len(op.Path)
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

// account corrects the count by what became of a Write. After Unknown the paths stay counted: the nodes may exist.
func (e *ephemerals) account(w *zk.Write, r zk.Result) {
	if r.Outcome == zk.Unknown {
		return
	}
	for i := range w.Ops {
		op := &w.Ops[i]
		switch n := e.size(op); {
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
