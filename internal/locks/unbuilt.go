package locks

import "context"

// What is declared and not built yet. Each line leaves with its feature.

func unbuilt() error {
	return &Error{Code: CodeUnavailable, Detail: "not built yet"}
}

// Reap ends what is old in a queue.
func (m *Manager) Reap(ctx context.Context, req ReapRequest) (ReapAnswer, error) {
	return ReapAnswer{}, unbuilt()
}

// Destroy ends everybody in a queue, from the tail, and removes the lock.
func (m *Manager) Destroy(ctx context.Context, req DestroyRequest) (DestroyAnswer, error) {
	return DestroyAnswer{}, unbuilt()
}
