package supervise

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// Keeper is the process that Watch started, as itself sees it.
type Keeper struct {
	link     *link
	killBy   sharedTime
	terminal *terminal // nil when there is none
	watchers int       // the watcher's process group: the one that the shell knows
	signals  chan syscall.Signal
	tree     *tree

	mu      sync.Mutex
	process *Process
	resumed chan struct{} // closed unless the watcher is suspended
}

// Keep makes the keeper ready. It is called once, when IsKeeper says so.
func Keep() (*Keeper, error) {
	if part != partKeeper {
		return nil, errors.New("supervise: this process was not started by Watch")
	}
	link, err := newLink(os.NewFile(uintptr(fdLink), "watcher"))
	if err != nil {
		return nil, err
	}
	memory := os.NewFile(uintptr(fdMemory), "memory")
	defer memory.Close()
	killBy, err := newSharedTime(memory)
	if err != nil {
		return nil, err
	}
	if err := becomeSubreaper(); err != nil {
		return nil, err
	}
	group, err := syscall.Getpgid(os.Getppid())
	if err != nil {
		return nil, os.NewSyscallError("getpgid", err)
	}
	k := &Keeper{
		link: link, killBy: killBy, watchers: group, tree: newTree(),
		signals: make(chan syscall.Signal, 16), resumed: closedChannel(),
	}
	k.terminal, _ = openTerminal()
	ignoreSignals()
	messages := make(chan message)
	go link.receive(messages)
	go k.obey(messages)
	return k, nil
}

// Signals are those that the watcher passes on. The channel is closed when the watcher has died.
func (k *Keeper) Signals() <-chan syscall.Signal { return k.signals }

// KillBy is when, by Now, the watcher kills this process and all its descendants, should they still be there.
func (k *Keeper) KillBy(at time.Duration) { k.killBy.set(at) }

// NoKill takes KillBy back: there is nothing to kill.
func (k *Keeper) NoKill() { k.killBy.set(never) }

// Done is the last thing that a keeper says. Without it the watcher takes the keeper's end for a failure.
func (k *Keeper) Done() {
	m := message{Done: true}
	k.mu.Lock()
	if k.process != nil {
		m.DieOf = k.process.dieOf
	}
	k.mu.Unlock()
	k.link.send(m)
}

// Resumed returns at once, or, while the user has suspended the program (Ctrl-Z), when it goes on.
func (k *Keeper) Resumed(ctx context.Context) error {
	k.mu.Lock()
	resumed := k.resumed
	k.mu.Unlock()
	select {
	case <-resumed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// obey does what the watcher says, and ends with it.
func (k *Keeper) obey(messages <-chan message) {
	defer close(k.signals)
	for m := range messages {
		switch {
		case m.Continue:
			k.resume()
		case m.Signal == syscall.SIGTSTP:
			if p := k.running(); p != nil {
				p.Signal(m.Signal) // the watcher follows when the command has stopped
			} else {
				k.suspend()
			}
		case m.Signal != 0:
			select {
			case k.signals <- m.Signal:
			default: // sixteen wait: one more says nothing new
			}
		}
	}
}

// running is the command, unless it has ended.
func (k *Keeper) running() *Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.process == nil || isClosed(k.process.ended) {
		return nil
	}
	return k.process
}

// suspend has the watcher stop, so that the shell takes over. The keeper itself goes on: the lease is kept. The watcher answers
// each message once, with Continue.
func (k *Keeper) suspend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if isClosed(k.resumed) {
		k.resumed = make(chan struct{})
		k.link.send(message{Suspend: true})
	}
}

func (k *Keeper) resume() {
	k.mu.Lock()
	if !isClosed(k.resumed) {
		close(k.resumed)
	}
	k.mu.Unlock()
	if p := k.running(); p != nil {
		p.goOn()
	}
}

func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
