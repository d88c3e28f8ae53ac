package record

import "lockkeeper/internal/locks"

// Once is what a lease's record says of the period that the lease is for.
type Once struct {
	Per    int64        `json:"per_ms"`
	Period string       `json:"period"`
	DoneOn locks.DoneOn `json:"done_on"`
}

// cut brings it within the bounds of the API; nil where another program wrote what cannot be.
func (o *Once) cut() *Once {
	if o == nil || locks.CheckPeriod(o.Period) != nil {
		return nil
	}
	o.Per = millis(o.Per, locks.MinOncePer, locks.MaxOncePer).Milliseconds()
	if o.DoneOn != locks.DoneOnRelease {
		o.DoneOn = locks.DoneOnGrant
	}
	return o
}
