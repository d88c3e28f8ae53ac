package main

import (
	"cmp"

	"lockkeeper/internal/httpapi"
	"lockkeeper/internal/locks/quota"
)

// principalFlags bound what one principal may take of this gateway. 0 stands for a default.
type principalFlags struct {
	Rate     float64 `name:"max-rate-per-principal" default:"0" placeholder:"N" help:"With authentication: how many requests a principal may send to this gateway in a second, where its roles have no rate. Heartbeats and releases do not count. 0: 1000."`
	Active   int     `name:"max-requests-per-principal" default:"0" placeholder:"N" help:"With authentication: how many requests of one principal this gateway answers at the same time; those that wait, streams and heartbeats apart. 0: 256."`
	Waiting  int     `name:"max-waiting-per-principal" default:"0" placeholder:"N" help:"With authentication: how many requests of one principal may wait at this gateway. 0: half of those that may wait in all."`
	Streams  int     `name:"max-streams-per-principal" default:"0" placeholder:"N" help:"With authentication: how many streams, sockets and pages one principal may have open at this gateway. 0: half of the streams that there may be in all."`
	Leases   int64   `name:"max-leases-per-principal" default:"0" placeholder:"N" help:"With authentication: how many leases of one principal this gateway runs, where its roles have no bound. 0: half of --max-leases."`
	Metadata int64   `name:"max-metadata-per-principal" default:"0" placeholder:"BYTES" help:"With authentication: how many bytes owners, metadata, names of holds and notify_urls of one principal's leases may have at this gateway. 0: half of --max-metadata-total."`
}

// What one principal may ask of this gateway unless its roles or a flag say otherwise.
const (
	defaultRate   = 1000 // requests in a second
	defaultActive = 256  // requests that are being answered
)

func (l *principalFlags) check() error {
	if min(l.Leases, l.Metadata, int64(l.Active), int64(l.Waiting), int64(l.Streams)) < 0 || !(l.Rate >= 0) {
		return usage("leave it out for the default", "the flags --max-...-per-principal must be above 0, or 0 for the default")
	}
	return nil
}

// resolve fills in the defaults, which follow from what there may be in all.
func (l *principalFlags) resolve(all *inForce) (httpapi.PrincipalLimits, quota.PrincipalLimits) {
	return httpapi.PrincipalLimits{
			Rate: cmp.Or(l.Rate, defaultRate), Active: cmp.Or(l.Active, defaultActive),
			Waiting: cmp.Or(l.Waiting, max(all.waiting/2, 1)), Streams: cmp.Or(l.Streams, httpapi.DefaultMaxStreams/2),
		}, quota.PrincipalLimits{
			Leases: cmp.Or(l.Leases, max(all.quota[quota.Leases]/2, 1)), MetadataBytes: cmp.Or(l.Metadata, max(all.quota[quota.MetadataBytes]/2, 1)),
		}
}
