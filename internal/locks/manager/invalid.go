package manager

import (
	"strconv"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
)

// ceilingOf is the limit of a semaphore of Kazoo's, which the data of its directory is; 0
// for other data.
func ceilingOf(data []byte) int32 {
	n, err := strconv.ParseUint(string(data), 10, 31)
	if err != nil {
		return 0
	}
	return int32(n)
}

// invalidAmong is the first of the locks that is marked as being destroyed, or is such
// a marker.
func (m *Manager) invalidAmong(wants []locks.Want) *queues.Queue {
	for i := range wants {
		if s := m.replica.Namespaces[wants[i].NS]; s.Marked(wants[i].Lock) {
			return m.replica.Queue(s, wants[i].Lock, m.clock.Now().Boot())
		}
	}
	return nil
}
