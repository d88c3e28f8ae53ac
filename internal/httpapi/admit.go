package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
)

// arriveWithin is how long a request that another gateway sent on waits for this one to know
// itself as the owner.
const arriveWithin = time.Second

// admit lets in what another gateway of the fleet has sent: a genuine seal stands in
// for the guard, for no page in a browser can make one. It reports whether the
// request may go on.
func (x *exchange) admit() bool {
	if x.s.fleet == nil {
		x.problem(sealRefused(errors.New("this gateway has no fleet")))
		return false
	}
	keys, err := x.s.fleet.Keys()
	if err != nil {
		x.problem(&problem{code: code(locks.CodeUnavailable), detail: "this gateway has not read the fleet's secret yet; nothing was done, repeat the request", cause: err})
		return false
	}
	body, p := x.sealedBody()
	if p != nil {
		x.problem(p)
		return false
	}
	seal, err := keys.Open(x.r, body)
	if err != nil {
		x.problem(sealRefused(err))
		return false
	}
	x.peer, x.keys = seal, keys
	x.requestID = seal.Request
	x.Header()["Lockkeeper-Request-Id"] = []string{x.requestID}
	x.r.Body, x.r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if seal.From == x.s.locks.GatewayID() {
		x.problem(&problem{code: code(locks.CodeNotOwner), detail: "a request for another gateway came back to this one: the address that the other one advertises (--advertise) leads here"})
		return false
	}
	if seal.Zxid == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), arriveWithin)
	defer cancel()
	if seal.Lease != "" {
		err = x.s.locks.Arrive(ctx, seal.Lease, seal.Zxid)
	} else {
		err = x.s.locks.Reached(ctx, seal.Zxid)
	}
	if err != nil {
		x.problem(problemOf(err))
		return false
	}
	return true
}

// sealedBody reads the body: a seal covers it, so it is read before anything is decoded.
func (x *exchange) sealedBody() ([]byte, *problem) {
	if x.r.ContentLength == 0 {
		return nil, nil
	}
	read, p := x.readBody(maxHeartbeatsBody)
	x.bodyRead = false
	return bytes.Clone(read), p // the decoder uses the same buffer
}

func sealRefused(cause error) *problem {
	return &problem{code: codeSealRefused, cause: cause, detail: "the " + fleet.Header + " header is for the gateways of this fleet; clients leave it out"}
}

// seal closes the answer to another gateway's request, which trusts nobody else.
func (x *exchange) seal(status int, body []byte) {
	x.keys.CloseAnswer(x.peer, status, x.Header(), body)
	x.keys = nil
}

// sealed reports whether the request claims to come from another gateway.
func sealed(r *http.Request) bool { return len(r.Header[fleet.Header]) > 0 }
