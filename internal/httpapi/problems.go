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
	codeUnauthenticated  code = "unauthenticated"
	codeAuthUnavailable  code = "authentication_unavailable"
	codeForbidden        code = "forbidden"
	codeCrossOrigin      code = "cross_origin"
	codeHostNotAllowed   code = "host_not_allowed"
	codeTooManyWaiting   code = "too_many_waiting"
	codeTooManyStreams   code = "too_many_streams"
	codeTooManyAnswers   code = "too_many_answers"
	codeRateLimited      code = "rate_limited"
	codePrincipalLimit        = code(locks.CodePrincipalLimit)
	codeUpgradeRequired  code = "upgrade_required"
	codeSealRefused      code = "fleet_seal_refused"
	codeOwnerUnreachable code = "owner_unreachable"
	codeNoHistory        code = "history_unavailable"
	codeDraining         code = "draining"
	codeNoWebhook        code = "webhook_not_found"
	codeNoLeader         code = "no_leader"
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
	by          string // who ended the lease
	holders     []locks.Contender
	queueLength int
	limit       int                // of a lock whose settings differ
	fence       *locks.FenceAnswer // why a fencing token is stale
	cycle       *locks.Cycle       // that a wait would close
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
		code: code(e.Code), field: e.Field, detail: e.Detail, retryAfter: e.RetryAfter, reason: e.Reason, by: e.By,
		holders: e.Holders, queueLength: e.QueueLength, limit: e.Limit, cycle: e.Cycle, cause: e.Err,
	}
}

// document is the problem as the specification has it.
func (p *problem) document() api.Problem {
	k := kinds[p.code]
	doc := api.Problem{
		Type: problemPath + p.code, Title: k.title, Status: k.status, Code: api.ProblemCode(p.code),
		Detail: p.detail, Field: p.field, Reason: api.Reason(p.reason), By: p.by, Limit: p.limit,
	}
	if p.fence != nil {
		doc.Fence = new(fenceShape(p.fence))
	}
	if p.cycle != nil {
		doc.Cycle = new(cycleShape(p.cycle))
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
