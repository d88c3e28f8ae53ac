package httpapi

import (
	"net/http"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// Periods of locks whose work runs once in each.

// doneBefore answers an acquire for a period that was done: a success without a lease, so that the line of a crontab ends well.
func doneBefore(x *exchange, d *locks.Done, env bool) error {
	if env {
		return x.send(x.encodeShell(&shellLines{state: "done", status: http.StatusOK}), typeText)
	}
	return x.answer(&api.DoneAnswer{Done: true, NS: d.NS, Lock: d.Lock, Period: d.Period, By: d.By, At: d.At})
}

var listPeriods = operation[locks.PeriodsRequest]{fields: ofLock(
	func(p *locks.PeriodsRequest) *string { return &p.Lock }, func(p *locks.PeriodsRequest) *string { return &p.NS },
)}

func (a *admin) listPeriods(x *exchange) error {
	req := locks.PeriodsRequest{Principal: x.principal()}
	if err := decode(x, &listPeriods, &req); err != nil {
		return err
	}
	list, err := a.locks.Periods(x.r.Context(), req)
	if err != nil {
		return err
	}
	answer := api.Periods{NS: req.NS, Lock: req.Lock, Periods: make([]api.Period, len(list))}
	for i, p := range list {
		answer.Periods[i] = api.Period{Period: p.Name, LeaseID: p.LeaseID, Owner: p.Owner, Principal: p.Principal, DoneOn: api.DoneOn(p.DoneOn), Done: p.Done,
			At: p.At, KeptUntil: p.KeptUntil}
	}
	return x.answer(&answer)
}

var forgetPeriod = operation[locks.PeriodsRequest]{fields: ofLock(
	func(p *locks.PeriodsRequest) *string { return &p.Lock }, func(p *locks.PeriodsRequest) *string { return &p.NS },
	field[locks.PeriodsRequest]{name: "period", in: inPath, to: func(p *locks.PeriodsRequest) any { return &p.Period }},
)}

func (a *admin) forgetPeriod(x *exchange) error {
	req := locks.PeriodsRequest{Principal: x.principal()}
	if err := decode(x, &forgetPeriod, &req); err != nil {
		return err
	}
	return x.done(a.locks.ForgetPeriod(x.r.Context(), req))
}
