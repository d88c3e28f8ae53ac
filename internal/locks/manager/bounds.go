package manager

import (
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// What a request is refused for, and how: bounds of waits, errors, and the bounds of package quota.

// Bounds of waits, and of what is remembered.
const (
	// answerWithin bounds how long a request waits while ZooKeeper answers no request at all.
	// The request then fails with CodeUnavailable or CodeOutcomeUnknown.
	answerWithin = term.AnswerWithin
	// settleWithin bounds how long a request waits for what ZooKeeper refuses or does not report while it answers
	// other requests.
	settleWithin = 5 * time.Second
	// retryAfter is the Retry-After of answers given while ZooKeeper is unavailable.
	retryAfter = time.Second
	keyLife    = 10 * time.Minute // of an idempotency key, after its lease ended
	endedLife  = time.Hour        // how long the reason and postmortem of an ended lease are kept
)

// leaseTerms numbers what a lease's record may ask of any gateway that runs the lease. 1: at_least, a lock delay of more than an
// hour, and reservations. 2: once_per. A gateway of a release that knows less would end such a lease too early after a takeover.
const leaseTerms = 2

// oldLockDelay is the longest lock delay that every release keeps.
const oldLockDelay = time.Hour

// keepsTerms refuses an acquire whose terms a registered gateway does not keep: it may have to run the lease one day.
func (m *Manager) keepsTerms(req *locks.AcquireRequest) *locks.Error {
	if req.AtLeast == 0 && req.OncePer == 0 && req.LockDelay <= oldLockDelay && !req.Reserves() {
		return nil
	}
	id, release, lacks := m.members.Lacks(leaseTerms)
	switch {
	case !lacks:
		return nil
	case release == "":
		return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter, Detail: "the registration of the gateway " + string(id) + " has not been read yet; nothing was done, repeat the request"}
	}
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: maxUpgradePause,
		Detail: "the gateway " + string(id) + " is of the release " + release + ", which does not keep once_per, at_least, a lock_delay of more than 1h, or the end of a reservation (for, until): upgrade it, or leave them out; nothing was done"}
}

// maxUpgradePause is the Retry-After while an older gateway is registered.
const maxUpgradePause = time.Minute

func unavailable() *locks.Error {
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
		Detail: "ZooKeeper cannot be reached or does not confirm this gateway's writes; nothing was done, repeat the request"}
}

// unavailableFor is unavailable with a cause for the log.
func unavailableFor(cause error) *locks.Error {
	e := unavailable()
	e.Err = cause
	return e
}

func outcomeUnknown() *locks.Error {
	return &locks.Error{Code: locks.CodeOutcomeUnknown, RetryAfter: retryAfter,
		Detail: "ZooKeeper has not confirmed it yet: it may have been done; repeat the request (an acquire with the same Idempotency-Key)"}
}

func notFound() *locks.Error {
	return &locks.Error{Code: locks.CodeNotFound, Detail: "there is no lease with that id"}
}

func endedError(reason locks.Reason) *locks.Error {
	return &locks.Error{Code: locks.CodeEnded, Reason: reason, Detail: "the lease has ended: " + string(reason)}
}

func atBound(code locks.Code, after time.Duration, detail string, args ...any) *locks.Error {
	return &locks.Error{Code: code, RetryAfter: after, Detail: fmt.Sprintf(detail, args...)}
}

func isNoNode(err error) bool { return errors.Is(err, zk.ErrNoNode) }

// The manager checks the bounds of package quota before it creates anything, once for each acquire.
// A refused request leaves no node, no key and no directory behind. The counts change with the leases.

// keysRetryAfter is the Retry-After at a bound of things that stay for minutes.
const keysRetryAfter = 10 * time.Second

// requestedText is the textBytes of a requested lease.
func requestedText(r *locks.AcquireRequest) int64 {
	return int64(len(r.Owner) + len(r.Metadata) + len(r.Purpose) + len(r.NotifyURL) + len(r.Hold))
}

// recountKept recounts leases with their delays, keys and locks.
func (m *Manager) recountKept() {
	m.leases.quota.Set(quota.Leases, m.leases.counts.slots+m.delays.slots)
	m.leases.quota.Set(quota.Keys, m.keys.Len())
	n := 0
	for _, space := range m.replica.Namespaces {
		n += space.Queues.Len()
	}
	m.leases.quota.Set(quota.Locks, n)
}

// room returns nil if this gateway may run the requested lease. waits: the lease would have to wait.
func (m *Manager) room(req *locks.AcquireRequest, wants []locks.Want, waits bool) *locks.Error {
	m.recountKept()
	takes := m.replica.Members(wants)
	switch q := &m.leases.quota; {
	case !q.Fits(quota.Leases, takes):
		return atBound(locks.CodeTooManyWaiters, retryAfter, "the leases of this gateway count %d of at most %d, a lease of several locks once for each of them, and this one would count %d: repeat later, or ask another gateway",
			q.Used(quota.Leases), q.Limit(quota.Leases), takes)
	case !q.Fits(quota.Locks, m.replica.Unknown(wants)):
		return atBound(locks.CodeTooManyLocks, keysRetryAfter, "this gateway knows %d locks, as many as it may, and keeps each for a minute after its last use: take one that it knows, or repeat later", q.Used(quota.Locks))
	case req.Async && waits && !q.Fits(quota.Tickets, 1):
		return atBound(locks.CodeTooManyTickets, retryAfter, "this gateway keeps %d tickets, as many as it may: wait with the request open (wait=30s in place of async), repeat later, or ask another gateway",
			q.Used(quota.Tickets))
	case req.IdempotencyKey != "" && !q.Fits(quota.Keys, 1):
		return atBound(locks.CodeTooManyKeys, keysRetryAfter, "this gateway keeps %d idempotency keys, as many as it may, each until %v after its lease has ended: repeat later, leave Idempotency-Key out, or ask another gateway",
			q.Used(quota.Keys), keyLife)
	case !mayAgree(&m.leases.quota, m.replica, wants):
		return tooManySettings(q)
	}
	account := m.leases.accounts.Look(req.Principal.Account())
	if err := req.Principal.CheckLeases(wants, takes, account, m.leases.accounts.Limits().Leases); err != nil {
		return err
	}
	return m.leases.roomForText(account, requestedText(req))
}

// roomForText returns nil if the texts of this gateway's leases, and of the account, may grow by so many bytes.
func (t *leaseTable) roomForText(account *quota.Account, more int64) *locks.Error {
	most := t.accounts.Limits().MetadataBytes
	if _, used := account.Used(); account != nil && most > 0 && more > 0 && used+more > most {
		return atBound(locks.CodePrincipalLimit, retryAfter, "owners, metadata, names of holds and notify_urls of the leases of %s take %d of at most %d bytes at this gateway (--max-metadata-per-principal): send shorter ones, or release leases",
			account.Name, used, most)
	}
	q := &t.quota
	if q.Fits(quota.MetadataBytes, more) {
		return nil
	}
	return atBound(locks.CodeTooMuchMetadata, retryAfter, "owners, metadata, names of holds and notify_urls of this gateway's leases take %d of %d bytes: send shorter ones, or none, repeat later, or ask another gateway",
		q.Used(quota.MetadataBytes), q.Limit(quota.MetadataBytes))
}

// mayAgree reports whether the request may create settings for its semaphores. Such settings are deleted with their
// last user, so they have a bound of their own, as large as that for PUTs: PUTs alone cannot use it up.
func mayAgree(q *quota.Quota, replica *queues.Replica, wants []locks.Want) bool {
	n := int64(0)
	for i := range wants {
		if wants[i].Mode != locks.Semaphore {
			continue
		}
		if q := replica.FindWant(&wants[i]); q == nil || !q.HasSettings() {
			n++
		}
	}
	return q.FitsTimes(quota.Settings, n, 2)
}

func tooManySettings(q *quota.Quota) *locks.Error {
	return atBound(locks.CodeTooManySettings, time.Minute, "%d locks have settings, of %d: delete those that are not needed (DELETE /v1/locks/{lock}), then repeat",
		q.Used(quota.Settings), q.Limit(quota.Settings))
}
