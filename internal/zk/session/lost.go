package session

import "slices"

// lost is what is known about transactions whose answers were lost.
type lost struct {
	batches   []*batch       // of unknown outcome
	highest   int32          // guard version that an answer has told
	missing   map[int32]bool // versions below it that no answer has told
	sealed    int32          // guard version of the first commit of the present epoch
	bumps     int            // lost bumps that are known to have committed
	resolving bool           // an earlier lot is being investigated
}

// told notes the guard version of a committed transaction. Each adds one. The version is a signed 32-bit number that
// wraps, after some days of full load: versions are compared by their distance.
func (l *lost) told(version int32) {
	if version-l.highest <= 0 {
		delete(l.missing, version)
		return
	}
	for v := l.highest + 1; v != version; v++ {
		if l.missing == nil {
			l.missing = make(map[int32]bool)
		}
		l.missing[v] = true
	}
	l.highest = version
}

// uncounted stands for a number of commits that is not known.
const uncounted = -1

// collect removes the batches in question, with the number of them that committed according to the guard's version, or
// uncounted: -1 means "any version" to ZooKeeper, so later servers skip it where earlier ones count it. When it is
// missing, which of the two happened is not known.
func (l *lost) collect() (batches []*batch, commits int) {
	batches, l.batches = l.batches, nil
	skipped := false
	for v := range l.missing {
		if v-l.sealed < 0 {
			commits++
			skipped = skipped || v == -1
			delete(l.missing, v)
		}
	}
	commits -= l.bumps
	l.bumps = 0
	if skipped && commits > 0 {
		commits = uncounted
	}
	return batches, commits
}

// assumption is what is known about whether a lost transaction committed.
type assumption uint8

const (
	noIdea    assumption = iota
	traceless            // it would leave nothing behind: a guard-only write
	likelyNot
	likelyYes
	surelyNot
	surelyYes
)

// conclude decides with the evidence for each transaction and the number of them that committed. What stays undecided
// is noIdea. A number that the evidence contradicts (another program wrote the guard), or uncounted, is not used.
//
// Hints decide when they explain the whole number: as many likelyYes as there are commits, and nothing beside them of
// which there is no idea. Absence of what should have been created never puts a commit down to a traceless transaction:
// another program may have removed the node.
func conclude(assumed []assumption, commits int) []assumption {
	out := slices.Clone(assumed)
	count := func(b assumption) (n int) {
		for _, x := range out {
			if x == b {
				n++
			}
		}
		return n
	}
	open := len(out) - count(surelyYes) - count(surelyNot)
	left := commits - count(surelyYes)
	settle := func(to assumption, from ...assumption) {
		for i := range out {
			if slices.Contains(from, out[i]) {
				out[i] = to
			}
		}
	}
	all := []assumption{noIdea, traceless, likelyNot, likelyYes}
	switch {
	case left < 0 || left > open:
		settle(noIdea, all...)
	case left == 0:
		settle(surelyNot, all...)
	case left == open:
		settle(surelyYes, all...)
	case left == count(likelyYes) && count(noIdea) == 0:
		settle(surelyYes, likelyYes)
		settle(surelyNot, likelyNot, traceless)
	default:
		settle(noIdea, all...)
	}
	return out
}
