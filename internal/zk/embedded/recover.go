package embedded

import "lockkeeper/internal/zk/embedded/state"

// Recover is the state that a storage has, for work on it while no server runs. The storage may be appended to then.
func Recover(s Storage) (*state.State, error) { return load(s, state.Config{MaxData: defaultMaxFrame}) }

// NextLocalSession is an id for a session of one's own in a state that no server has.
func NextLocalSession(s *state.State) int64 {
	return max(firstSession(localServer, 0), s.NewestSession(localServer)) + 1
}
