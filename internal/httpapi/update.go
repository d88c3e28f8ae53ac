package httpapi

import (
	"net/http"

	"lockkeeper/internal/locks"
)

// updateForm is the fields of a change of a lease.
type updateForm struct{ req locks.UpdateRequest }

func (*updateForm) names() []string { return []string{"owner", "metadata", "ttl"} }

func (f *updateForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "owner":
		var owner string
		owner, p = text(name, v, locks.MaxOwner)
		f.req.Owner = &owner
	case "metadata":
		var metadata string
		metadata, p = text(name, v, locks.MaxMetadata)
		f.req.Metadata = &metadata
	case "ttl":
		f.req.TTL, p = duration(name, v, locks.MinTTL, locks.MaxTTL)
	default:
		return false, nil
	}
	return true, p
}

func (x *exchange) updateLease() {
	id, p := x.leaseFromPath()
	var token string
	if p == nil {
		token, p = neededToken(x.r.Header)
	}
	form := updateForm{req: locks.UpdateRequest{Principal: locks.Anonymous, ID: id, Token: token}}
	if p == nil {
		p = x.fields(&form, maxBody)
	}
	if p != nil {
		x.problem(p)
		return
	}
	lease, err := x.s.locks.Update(x.r.Context(), form.req)
	x.tell(token, err)
	if err != nil {
		x.fail(err)
		return
	}
	x.show(&lease)
}

func (x *exchange) downgrade() {
	id, p := x.leaseFromPath()
	var token string
	if p == nil {
		token, p = neededToken(x.r.Header)
	}
	if p == nil {
		p = x.fields(nothing{}, 0)
	}
	if p != nil {
		x.problem(p)
		return
	}
	lease, err := x.s.locks.Downgrade(x.r.Context(), locks.Anonymous, id, token)
	x.tell(token, err)
	if err != nil {
		x.fail(err)
		return
	}
	x.show(&lease)
}

// show answers with a lease as it is, to whom it belongs or not.
func (x *exchange) show(lease *locks.Lease) {
	x.leaseID, x.lock, x.ns, x.owner = lease.ID, lease.Lock, lease.NS, lease.Owner
	lease.Token = "" // whatever the manager says
	x.Header()["Etag"] = []string{`"` + lease.Rev + `"`}
	shape := leaseShape(lease)
	x.encode(&shape)
	// Who waits, and brings its token, counts on its place for as long as it is told.
	waits := lease.State == locks.Waiting && len(x.r.Header["Lease-Token"]) > 0
	if lease.State == locks.Held || waits {
		x.confirmed(lease.Term, http.StatusOK, typeJSON)
		return
	}
	x.send(http.StatusOK, typeJSON)
}

func (x *exchange) getPostmortem() {
	id, p := x.leaseFromPath()
	if p == nil && id == "" {
		// Whether the token is genuine does not matter: a postmortem needs no token.
		var token string
		if token, p = neededToken(x.r.Header); p == nil {
			if id = leaseOf(token); id == "" {
				p = &problem{code: string(locks.CodeTokenWrong), detail: "this is not a lease token"}
			}
			x.leaseID = id
		}
	}
	if p != nil {
		x.problem(p)
		return
	}
	if !x.bare() {
		return
	}
	postmortem, err := x.s.locks.Postmortem(x.r.Context(), locks.Anonymous, id)
	if err != nil {
		x.fail(err)
		return
	}
	x.lock, x.ns, x.owner = postmortem.Lock, postmortem.NS, postmortem.Owner
	x.answer(http.StatusOK, postmortemShape(&postmortem))
}
