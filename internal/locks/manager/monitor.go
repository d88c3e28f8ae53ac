package manager

import (
	"context"
	"sync"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/zk"
)

// monitor is the one lock of the manager's state. do, locked and locked2 take it, and outside and sleep release it in
// between; no other code does. A function queues what it may not do under the lock, such as I/O, as an effect. Effects
// begin in order once the monitor is free.
type monitor struct {
	mu      sync.Mutex
	effects []func()
	wakes   []chan struct{} // closed when the monitor is free, because their waiters lock it
}

// do runs f under the lock, then the effects that f queued.
func (m *monitor) do(f func()) {
	m.mu.Lock()
	defer m.unlock()
	f()
}

// locked is do with a result.
func locked[T any](m *Manager, f func() T) T {
	m.mu.Lock()
	defer m.unlock()
	return f()
}

// locked2 is do with two results.
func locked2[T, U any](m *Manager, f func() (T, U)) (T, U) {
	m.mu.Lock()
	defer m.unlock()
	return f()
}

// unlock releases the lock and runs the effects.
func (m *monitor) unlock() {
	effects, wakes := m.effects, m.wakes
	m.effects, m.wakes = nil, nil
	m.mu.Unlock()
	for _, wake := range wakes {
		close(wake)
	}
	for _, act := range effects {
		act()
	}
}

// outside runs f without the lock: the effects first, then f. What the caller has read under the lock before may have
// changed afterwards.
func (m *monitor) outside(f func()) {
	m.unlock()
	defer m.mu.Lock()
	f()
}

// sleep releases the lock until wake is closed, for at most atMost; its error is CodeCancelled, when ctx has ended.
func (m *monitor) sleep(ctx context.Context, wake <-chan struct{}, atMost time.Duration) *locks.Error {
	m.unlock()
	defer m.mu.Lock()
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-ctx.Done():
		return cancelled(ctx)
	}
	return nil
}

// effect queues act until the monitor is free.
func (m *monitor) effect(act func()) { m.effects = append(m.effects, act) }

// wake closes the channel when the monitor is free.
func (m *monitor) wake(ch chan struct{}) { m.wakes = append(m.wakes, ch) }

// outcomes is the monitor as the port to ZooKeeper uses it.
type outcomes struct{ *monitor }

func (o outcomes) Do(f func())     { o.do(f) }
func (o outcomes) Effect(f func()) { o.effect(f) }

func (o outcomes) Deliver(res zk.Result, done func(zk.Result)) { o.do(func() { done(res) }) }
