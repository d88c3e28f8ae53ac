package manager

import "lockkeeper/internal/locks/recipe"

// TokenOf is the token of a lease, for protocols whose clients keep none. It does not ask who wants it: that the caller may act
// for the lease is to be made sure before. It must never be sent to a client.
func (m *Manager) TokenOf(id string) (string, error) {
	select {
	case <-m.fleet.ready:
	default:
		return "", unavailable()
	}
	lease, err := recipe.ParseLeaseID(id)
	if err != nil {
		return "", notFound()
	}
	return m.fleet.ring.Tokens().Make(lease), nil
}
