package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// askTimeout is how long the others have. A gateway that hangs is in the list of the registered ones until its session is
// over.
const askTimeout = 3 * time.Second

// asker is the client for which other gateways are asked.
type asker struct {
	request, client string
	caller          *auth.Caller // nil: none
	trace           string       // the traceparent for what they are asked; "" for none
	alone           bool         // only this gateway answers
}

// sealFor is the seal for what a gateway is asked on the asker's behalf.
func (a *asker) sealFor(gateway string) fleet.Seal {
	s := fleet.Seal{To: gateway, Request: a.request, Client: a.client}
	if a.caller != nil {
		s.Caller, s.Roles = a.caller.Principal.Name, a.caller.Roles
	}
	return s
}

// askedBy is the asker for a request. Another gateway's is not passed on.
func askedBy(x *exchange) asker {
	a := asker{request: x.requestID, client: x.client(), trace: x.tracedBy(), alone: x.peer != nil}
	if x.s.auth != nil {
		a.caller = &x.caller
	}
	return a
}

// askOthers asks every other gateway of the fleet the same. take is called with each answer, in the order of their ids.
func askOthers[T any](ctx context.Context, f *fleet.Fleet, own Ownership, a asker, method, uri string, take func(*T)) (unreached []api.UnreachedGateway) {
	if a.alone || f == nil {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(own.Peers()), func(p locks.Peer) bool { return !p.Registered || p.Self })
	slices.SortFunc(others, func(a, b locks.Peer) int { return cmp.Compare(a.Gateway, b.Gateway) })
	answers := make([]T, len(others))
	failures := make([]string, len(others))
	together(maxAsked, others, func(i int, peer locks.Peer) {
		if peer.Address == "" {
			failures[i] = "it has not said where it can be reached"
			return
		}
		answer, err := f.Send(ctx, &fleet.Request{Address: peer.Address, Seals: peer.Seals, Method: method, URI: uri, Trace: a.trace, Timeout: askTimeout, Seal: a.sealFor(peer.Gateway)})
		switch {
		case err != nil:
			failures[i] = "it does not answer"
		case answer.Status != http.StatusOK:
			failures[i] = fmt.Sprintf("it answers %d %s", answer.Status, problemIn(answer))
		case json.Unmarshal(answer.Body, &answers[i]) != nil:
			failures[i] = "its answer cannot be read"
		}
	})
	for i := range others {
		if failures[i] != "" {
			unreached = append(unreached, api.UnreachedGateway{GatewayID: others[i].Gateway, Detail: failures[i]})
			continue
		}
		take(&answers[i])
	}
	return unreached
}
