package manager

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// A lease may have an address of its own that is told of it: that it was granted, and
// that it has ended. It is in the lease's record, so that whoever takes the lease over
// tells it, too.
//
//   - Its end is noted like any that somebody subscribed to, in the transaction that
//     ends it. A lease that only waited is noted there as well, but then no
//     subscription matters and none is checked: who subscribes is told of locks that were
//     let go.
//   - A lease that its client was never given (the wait was over, or the client went
//     away) tells nothing of having waited: nobody knows its id, or the secret to
//     verify the message with.
//   - Its grant is a write of its own, as well as it can be done: who holds is decided by
//     the names alone, and there is no transaction that makes it so. It checks that
//     the contender is there, and has not been written where it may say that the lease has ended, so it never comes behind the note of the end. A
//     successor that grants again tells again, under the same name.
//   - The secret that signs is derived from the fleet's and the lease's id: whoever
//     delivers makes it anew, and it is kept nowhere.
//
// The address is shown to the bearer of the lease's token alone: people put secrets into
// the query of such an address, whatever the documentation says. It is in no event, no list, no
// page and no log.

// notifySecretPrefix and notifySecretBytes are Standard Webhooks' form of a secret.
const (
	notifySecretPrefix = "whsec_"
	notifySecretBytes  = 32
)

// notifySecret is the secret that signs what is told to a lease's notify_url.
func notifySecret(key layout.TokenKey, id recipe.LeaseID) string {
	secret, err := hkdf.Key(sha256.New, key.Key, nil, "lockkeeper notify_url "+string(id), notifySecretBytes)
	if err != nil {
		panic("deriving a secret: " + err.Error()) // only of more bytes than there can be
	}
	return notifySecretPrefix + base64.StdEncoding.EncodeToString(secret)
}

// NotifySecrets are those that sign what a lease's notify_url is told: one for each key of
// the fleet, so that what was shown under an older one still verifies.
func (m *Manager) NotifySecrets(lease string) []string {
	select {
	case <-m.fleet.ready:
	default:
		return nil
	}
	secrets := make([]string, len(m.fleet.layout.Keys))
	for i, key := range m.fleet.layout.Keys {
		secrets[i] = notifySecret(key, recipe.LeaseID(lease))
	}
	return secrets
}

// check refuses an address that would never be told.
func (d *deliveries) check(r *locks.AcquireRequest) error {
	const field = "notify_url"
	switch {
	case r.NotifyURL == "":
		return nil
	case d.outbox == nil:
		return locks.Invalid(field, "this gateway delivers no notifications; leave it out")
	case r.Ephemeral:
		return locks.Invalid(field, "an ephemeral lease goes with its gateway's session, and its notify_url with it; leave one of them out")
	}
	if err := d.outbox.CheckURL(r.NotifyURL); err != nil {
		return locks.Invalid(field, err.Error())
	}
	return nil
}

// grant notes that a lease was granted, for its notify_url.
func (d *deliveries) grant(l *lease) {
	if d.outbox == nil || l.phase != held || l.term != d.port.Term() || d.port.Session() == nil || l.notifyURL() == "" {
		return
	}
	to := l.rareFields.telling
	if to.note == noteDone || to.note == noteSubmitted && to.term == l.term {
		return
	}
	e := d.ending(l)
	e.Granted, e.Reason = true, ""
	ops, entry := d.outbox.Notify(e)
	if ops == nil {
		to.note = noteDone // the outbox is full
		return
	}
	to.note, to.term = noteSubmitted, l.term
	term := l.term
	version := int32(-1)
	if l.lockDelay() > 0 {
		version = l.dataVersion() // its end may leave the contender where it is, and write it
	}
	w := &zk.Write{Ops: append([]zk.Op{{Kind: zk.OpCheck, Path: l.path(), Version: version}}, ops...)}
	d.port.Submit(w, func(res zk.Result) {
		d.outbox.Ended(entry, w.Ops, res)
		if to.note == noteSubmitted && to.term == term {
			to.note = noteNone
		}
		switch {
		case res.Outcome == zk.Done, errors.Is(res.Err, zk.ErrNodeExists):
			to.note = noteDone
			return
		case errors.Is(res.Err, zk.ErrNoAuth), errors.Is(res.Err, zk.ErrNoNode) && res.Culprit > 0:
			d.log.Warn("a lease's grant cannot be noted for its notify_url", "lease_id", l.id(), "err", res.Err)
			to.note = noteDone
			return
		}
		// Lost, or refused for now. Where its contender is gone, so is the lease in a moment; where it was replaced, it has
		// another name by then.
		time.AfterFunc(deleteRetry, func() {
			d.do(func() {
				if l.term == term {
					d.grant(l)
				}
			})
		})
	})
}

// own is the lease as its own client sees it; the monitor is held.
func (a *answers) own(l *lease) locks.Lease {
	v := a.lease(l)
	v.NotifyURL = l.notifyURL()
	return v
}
