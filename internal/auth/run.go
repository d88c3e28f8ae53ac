package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"
)

// lookEvery is how often the file is looked at.
const lookEvery = 5 * time.Second

// fileWatch sees changes of the file.
type fileWatch struct {
	seen state
}

// state tells one content of a file from another. A file that is replaced within the grain of its times has another content.
type state struct {
	digest  [sha256.Size]byte
	problem string // with which it could not be read
}

func (fileWatch) look(path string) (text []byte, now state, err error) {
	text, err = contentOf(path)
	if err != nil {
		now.problem = err.Error()
		return nil, now, err
	}
	now.digest = sha256.Sum256(text)
	return text, now, nil
}

// Run looks at the file and reads the issuers' keys until ctx ends. Its error is ctx's.
func (a *Authenticator) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	running := map[*source]context.CancelFunc{}
	defer func() {
		for _, stop := range running {
			stop()
		}
	}()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		a.keepReading(ctx, &all, running)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			a.reload()
		}
	}
}

// keepReading starts the goroutines of new issuers, and stops those of issuers that are not in the file any more.
func (a *Authenticator) keepReading(ctx context.Context, all *sync.WaitGroup, running map[*source]context.CancelFunc) {
	wanted, named := map[*source]bool{}, map[string]bool{}
	for _, s := range a.now.Load().sources {
		wanted[s], named[s.name] = true, true
		if running[s] == nil {
			reading, stop := context.WithCancel(ctx)
			running[s] = stop
			all.Go(func() { s.run(reading) })
		}
	}
	for s, stop := range running {
		if !wanted[s] {
			stop()
			delete(running, s)
			if !named[s.name] {
				a.opt.Metrics.IssuerGone(s.name)
			}
		}
	}
}

// reload puts a changed file in force, or says what is wrong with it.
func (a *Authenticator) reload() {
	text, seen, err := a.watch.look(a.opt.Path)
	if seen == a.watch.seen {
		return
	}
	a.watch.seen = seen
	var policy *Policy
	if err == nil && seen.digest == a.now.Load().digest {
		a.opt.Metrics.AuthFile(true)
		a.opt.Logger.Info("the rules in force are those of the file again", "file", a.opt.Path)
		a.opt.Loaded()
		return
	}
	if err == nil {
		policy, err = compile(a.opt.Path, text)
	}
	if err == nil {
		a.apply(policy)
		a.opt.Logger.Info("new rules are in force", "file", a.opt.Path, "roles", len(policy.roles), "entries", len(policy.who))
		a.opt.Loaded()
		return
	}
	wrong, ok := errors.AsType[*FileError](err)
	if !ok {
		wrong = &FileError{Path: a.opt.Path, Detail: err.Error()}
	}
	a.opt.Metrics.AuthFile(false)
	a.opt.Logger.Error("the file of rules is refused, and the rules from before stay in force: correct it as the error says", "err", wrong)
	a.opt.Refused(wrong)
}
