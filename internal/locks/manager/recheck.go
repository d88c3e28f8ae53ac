package manager

import (
	"maps"
	"slices"

	"lockkeeper/internal/locks/queues"

	"lockkeeper/internal/zk/wire"
)

// recheck has the records of this gateway's leases read again after a tree read
// that may follow a gap in the stream: it lists names, and another gateway may
// have written a record meanwhile, to ask the lease's holder to release it. Until
// one is read the lease goes on as it was; what time decides names the version
// that was seen, so that nothing is swallowed.
func (st *stream) recheck(m *Manager) {
	st.again = nil
	if m.port.Session() == nil {
		return // the adoption by the next session reads them all
	}
	for _, ns := range slices.Sorted(maps.Keys(m.replica.Namespaces)) {
		m.replica.Namespaces[ns].Queues.Scan(func(q *queues.Queue) bool {
			for _, c := range q.Contenders.All() {
				if l := m.leases.byID[c.LeaseID]; c.Ours && l != nil && l.contender == c && l.recordState.loaded() {
					st.again = append(st.again, l)
				}
			}
			return true
		})
	}
	m.port.PumpReads()
}

// recheckNext puts the next lease that is to be read again into the line.
func (st *stream) recheckNext(m *Manager) {
	for len(st.again) > 0 {
		l := st.again[0]
		st.again[0] = nil
		if st.again = st.again[1:]; len(st.again) == 0 {
			st.again = nil
		}
		if l.phase == ended || !l.recordState.loaded() || l.term != m.port.Term() {
			continue
		}
		term, path := l.term, l.path()
		m.port.Read(path, 0, func(data []byte, stat wire.Stat, err error) {
			switch {
			case err != nil || l.term != term || l.path() != path || !l.recordState.loaded() || l.phase == ended || stat.Version <= l.dataVersion():
			default:
				l.loaded(m, term, data, stat, nil)
			}
		})
		return
	}
}
