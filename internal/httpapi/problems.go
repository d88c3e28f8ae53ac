package httpapi

import (
	"errors"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// code is a stable name of a way in which a request can fail.
type code = string

// The codes that begin here; those of the domain are in locks/errors.go.
const (
	codeMalformed        code = "malformed_request"
	codeUnknownField     code = "unknown_field"
	codeRepeatedField    code = "repeated_field"
	codeNeedsUnit        code = "duration_needs_unit"
	codeInvalidField          = code(locks.CodeInvalid)
	codeRouteNotFound    code = "route_not_found"
	codeMethodNotAllowed code = "method_not_allowed"
	codeBodyTooLarge     code = "body_too_large"
	codeUnsupportedType  code = "unsupported_media_type"
	codeTokenNeeded      code = "fencing_token_needed"
	codeTokenStale       code = "fencing_token_stale"
	codeCrossOrigin      code = "cross_origin"
	codeHostNotAllowed   code = "host_not_allowed"
	codeTooManyWaiting   code = "too_many_waiting"
	codeTooManyStreams   code = "too_many_streams"
	codeTooManyAnswers   code = "too_many_answers"
	codeUpgradeRequired  code = "upgrade_required"
	codeSealRefused      code = "fleet_seal_refused"
	codeOwnerUnreachable code = "owner_unreachable"
	codeDraining         code = "draining"
	codeNoWebhook        code = "webhook_not_found"
	codeTooManyWebhooks  code = "too_many_webhooks"
	codeNotReady         code = "not_ready"
	codeNotAlive         code = "not_alive"
	codeInternal         code = "internal"
)

// again says whether repeating the same request may help.
type again int

const (
	never again = iota
	atOnce
	afterAWhile // what the error says, at least a second
)

// kind is one line of the catalogue.
type kind struct {
	code   code
	status int
	title  string
	again  again
}

// catalogue is every problem that a client can get, ordered by status. The
// enumeration of codes in openapi.yaml is this list; a test compares them.
func catalogue() []kind {
	return []kind{
		{codeMalformed, 400, "The request is malformed", never},
		{code(locks.CodeTokenMissing), 403, "A lease token is needed", never},
		{code(locks.CodeTokenWrong), 403, "The lease token is not this lease's", never},
		{codeTokenNeeded, 403, "A fencing token is needed", never},
		{codeTokenStale, 403, "The fencing token is not current", never},
		{codeSealRefused, 403, "This is for the gateways of the fleet", never},
		{codeCrossOrigin, 403, "Cross-origin requests are refused", never},
		{codeRouteNotFound, 404, "There is nothing here", never},
		{code(locks.CodeNotFound), 404, "No such lease", never},
		{code(locks.CodeNamespaceUnknown), 404, "No such namespace", never},
		{code(locks.CodeNoContender), 404, "No such contender", never},
		{codeNoWebhook, 404, "No such webhook", never},
		{codeMethodNotAllowed, 405, "The path does not have this method", never},
		{code(locks.CodeCancelled), 408, "The client went away", never},
		{code(locks.CodeHeldByOther), 409, "Another client holds the lock", afterAWhile},
		{code(locks.CodeLockDelayed), 409, "The lock is kept for the lock delay of its last holder", afterAWhile},
		{code(locks.CodeForeignSemaphore), 409, "Another program's semaphore is in the lock's directory", never},
		{code(locks.CodeLockInvalid), 409, "Another program is destroying the lock", afterAWhile},
		{code(locks.CodeWaitElapsed), 409, "The wait is over and the lock was not granted", afterAWhile},
		{code(locks.CodeSettingsDiffer), 409, "The lock has other settings", never},
		{code(locks.CodeLockInUse), 409, "The lock is in use", afterAWhile},
		{code(locks.CodeHoldReleased), 409, "The hold was released before", never},
		{code(locks.CodeHolderChanged), 409, "A holder or waiter has changed; nothing was done", never},
		{code(locks.CodeNothingToAsk), 409, "No holder of the lock can be asked", never},
		{code(locks.CodeNotHeld), 409, "The lease is not held", never},
		{code(locks.CodeNotExclusive), 409, "The lease is not exclusive", never},
		{codeTooManyWebhooks, 409, "Too many webhooks", never},
		{code(locks.CodeEnded), 410, "The lease has ended", never},
		{code(locks.CodeChanged), 412, "It has changed since the version in If-Match", never},
		{codeBodyTooLarge, 413, "The body is too large", never},
		{codeUnsupportedType, 415, "The body is neither JSON nor a form", never},
		{codeHostNotAllowed, 421, "The Host is not a name of this gateway", never},
		{codeInvalidField, 422, "A field is invalid", never},
		{codeNeedsUnit, 422, "A duration needs a unit", never},
		{codeUnknownField, 422, "A field is not known", never},
		{codeRepeatedField, 422, "A field is given more than once", never},
		{code(locks.CodeKeyReused), 422, "The idempotency key came with other parameters before", never},
		{codeUpgradeRequired, 426, "A WebSocket handshake is needed", never},
		{code(locks.CodeTooManyWaiters), 429, "Too many leases", afterAWhile},
		{code(locks.CodeTooManyTickets), 429, "Too many tickets", afterAWhile},
		{code(locks.CodeTooManyKeys), 429, "Too many idempotency keys", afterAWhile},
		{code(locks.CodeTooManyLocks), 429, "Too many locks", afterAWhile},
		{code(locks.CodeTooManySettings), 429, "Too many locks with settings", afterAWhile},
		{code(locks.CodeTooMuchMetadata), 429, "Too much metadata", afterAWhile},
		{code(locks.CodeEphemeralCap), 429, "Too many ephemeral leases", afterAWhile},
		{codeTooManyWaiting, 429, "Too many requests wait", afterAWhile},
		{codeTooManyStreams, 429, "Too many streams", afterAWhile},
		{codeTooManyAnswers, 429, "Too many large answers are under way", afterAWhile},
		{codeInternal, 500, "The gateway has a defect", never},
		{code(locks.CodeUnavailable), 503, "ZooKeeper is not available; nothing was done", afterAWhile},
		{code(locks.CodeOutcomeUnknown), 503, "It is not known whether it was done", afterAWhile},
		{code(locks.CodeNotOwner), 503, "Another gateway runs this lease's clock", atOnce},
		{codeOwnerUnreachable, 503, "The gateway that runs this lease cannot be reached; nothing was done", afterAWhile},
		{codeDraining, 503, "The gateway drains", atOnce},
		{codeNotReady, 503, "The gateway is not ready", afterAWhile},
		{codeNotAlive, 503, "The gateway's loops do not turn", never},
	}
}

// kinds is the catalogue by code. It is never written to.
var kinds = func() map[code]*kind {
	list := catalogue()
	byCode := make(map[code]*kind, len(list))
	for i := range list {
		byCode[list[i].code] = &list[i]
	}
	return byCode
}()

// problem is a refusal on its way to the client.
type problem struct {
	code        code
	field       string
	detail      string
	retryAfter  time.Duration
	reason      locks.Reason
	holders     []locks.Contender
	queueLength int
	limit       int                // of a lock whose settings differ
	fence       *locks.FenceAnswer // why a fencing token is stale
	cause       error              // for the log
}

// Error implements error: a handler refuses by returning a problem.
func (p *problem) Error() string { return p.code + ": " + p.detail }

// problemOf is the one place where errors of the domain become problems.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	e, ok := errors.AsType[*locks.Error](err)
	if !ok || kinds[code(e.Code)] == nil {
		return internal(err)
	}
	return &problem{
		code: code(e.Code), field: e.Field, detail: e.Detail, retryAfter: e.RetryAfter, reason: e.Reason,
		holders: e.Holders, queueLength: e.QueueLength, limit: e.Limit, cause: e.Err,
	}
}

// document is the problem as the specification has it.
func (p *problem) document() api.Problem {
	k := kinds[p.code]
	doc := api.Problem{
		Type: "urn:lockkeeper:problem:" + p.code, Title: k.title, Status: k.status, Code: api.ProblemCode(p.code),
		Detail: p.detail, Field: p.field, Reason: api.Reason(p.reason), Limit: p.limit,
	}
	if p.fence != nil {
		doc.Fence = new(fenceShape(p.fence))
	}
	if wait, ok := p.retry(); ok {
		doc.RetryAfterMS = new(wait.Milliseconds())
	}
	switch locks.Code(p.code) {
	case locks.CodeLockInUse:
		if len(p.holders) == 0 {
			break
		}
		fallthrough
	case locks.CodeHeldByOther, locks.CodeLockDelayed, locks.CodeWaitElapsed, locks.CodeForeignSemaphore, locks.CodeLockInvalid, locks.CodeHolderChanged, locks.CodeNothingToAsk:
		doc.QueueLength = &p.queueLength
		doc.Holders = contenders(p.holders)
	}
	return doc
}

// retry is how long to wait before a repeat may help.
func (p *problem) retry() (wait time.Duration, ok bool) {
	switch kinds[p.code].again {
	case never:
		return 0, false
	case atOnce:
		return max(p.retryAfter, 0), true
	default:
		if p.retryAfter <= 0 {
			return time.Second, true
		}
		return p.retryAfter, true
	}
}

// retrySeconds is the Retry-After header's value: whole seconds, rounded up, so that no client comes back too early.
func retrySeconds(wait time.Duration) int64 {
	return int64((wait + time.Second - 1) / time.Second)
}

func invalid(field, detail string) error {
	return &problem{code: codeInvalidField, field: field, detail: detail}
}

func malformed(detail string) error { return &problem{code: codeMalformed, detail: detail} }

func draining() *problem {
	return &problem{code: codeDraining, detail: "repeat the request: another gateway, or this one's successor, goes on with it"}
}

// internal is the problem of an error that no code stands for.
func internal(cause error) *problem {
	return &problem{code: codeInternal, detail: "the gateway's log has the details under this request's id", cause: cause}
}
