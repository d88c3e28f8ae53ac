package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
)

// sealedWithin is how long the body of a request with a seal may take. Only with the body is it known whether the seal is
// genuine, and gateways send both at once.
const sealedWithin = 5 * time.Second

// arriveWithin is how long a request that another gateway sent on waits for this one to know itself as the owner.
const arriveWithin = time.Second

// admit lets in what another gateway of the fleet has sent to this one, once: a genuine seal stands in
// for the guard, for no page in a browser can make one. Its error is why it does not.
//
// The answer to a request that is for another gateway, or comes from this one, is sealed: it was not acted upon here and never will be, so the
// sender may look up again where it belongs. The refusal of a repeated request is not sealed: the first one may have been done.
func (x *exchange) admit() error {
	f := &x.s.forwarder
	if f.fleet == nil {
		return sealRefused(errors.New("this gateway has no fleet"))
	}
	keys, err := f.fleet.Keys()
	if err != nil {
		return &problem{code: code(locks.CodeUnavailable), detail: "this gateway has not read the fleet's secret yet; nothing was done, repeat the request", cause: err}
	}
	body, err := x.sealedBody()
	if err != nil {
		return err
	}
	x.r.Body = http.NoBody // it is read: a refusal need not linger for it
	proof, err := keys.Open(x.r, body)
	if err != nil {
		return sealRefused(err)
	}
	self := f.locks.GatewayID()
	here := self != "" && proof.To == self && proof.From != self
	if here {
		if err := f.takeOnce(x.r.Context(), proof); err != nil {
			return sealRefused(err)
		}
	}
	x.peer, x.seal = proof, &seal{keys, proof}
	x.forwardedCaller(proof)
	x.requestID = proof.Request
	x.Header()["Lockkeeper-Request-Id"] = []string{x.requestID}
	x.r.Body, x.r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if !here {
		return notForThis(proof, self)
	}
	if proof.Zxid == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), arriveWithin)
	defer cancel()
	if proof.Lease != "" {
		return f.locks.Arrive(ctx, proof.Lease, proof.Zxid)
	}
	return f.locks.Reached(ctx, proof.Zxid)
}

// takeOnce lets a request for this gateway pass if it comes for the first time. A sender that the replica does not show yet has perhaps
// just been started: the request waits until the replica is behind its registration.
func (f *forwarder) takeOnce(ctx context.Context, proof *fleet.Seal) error {
	err := f.fleet.Admit(proof, f.locks.Registered)
	if !errors.Is(err, fleet.ErrUnknownSender) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, arriveWithin)
	defer cancel()
	if lags := f.locks.Reached(ctx, proof.Registered); lags != nil {
		return fmt.Errorf("%w: %w", err, lags)
	}
	return f.fleet.Admit(proof, f.locks.Registered)
}

// errNotForThis: the seal names another gateway.
var errNotForThis = errors.New("the seal is for another gateway")

// notForThis is the problem of a request that names another gateway, or that comes from this one.
func notForThis(seal *fleet.Seal, self string) *problem {
	p := &problem{code: code(locks.CodeNotOwner), retryAfter: time.Second, cause: errNotForThis,
		detail: "the request is for another gateway, which had this address before or has another one; nothing was done, repeat the request"}
	if seal.From == self {
		p.detail = "a request for another gateway came back to this one: the address that the other one advertises (--advertise) leads here"
	}
	return p
}

// sealedBody reads the body: a seal covers it, so it is read before anything is decoded.
func (x *exchange) sealedBody() ([]byte, error) {
	if x.r.ContentLength == 0 {
		return nil, nil
	}
	control := http.NewResponseController(x.w)
	_ = control.SetReadDeadline(x.started.Add(sealedWithin)) // a recorder in a test has none
	read, err := x.readBody(largeBody)
	if err == nil {
		_ = control.SetReadDeadline(x.started.Add(readTimeout))
	}
	x.bodyRead = false
	return bytes.Clone(read), err // the decoder uses the same buffer
}

func sealRefused(cause error) *problem {
	return &problem{code: codeSealRefused, cause: cause, detail: "the " + fleet.Header + " header is for the gateways of this fleet; clients leave it out"}
}

// sealed reports whether the request claims to come from another gateway.
func sealed(r *http.Request) bool { return len(r.Header[fleet.Header]) > 0 }
