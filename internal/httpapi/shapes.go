package httpapi

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
)

// The domain's nouns as the specification has them. Members that do not apply are left out.

func leaseShape(l *locks.Lease) api.Lease {
	shape := api.Lease{
		LeaseID: l.ID, Token: l.Token, Lock: l.Lock, NS: l.NS, Znode: l.Znode,
		Mode: api.Mode(l.Mode), State: api.State(l.State), Reason: api.Reason(l.Reason),
		Position: l.Position, FencingToken: l.FencingToken,
		TTLMS: millis(l.TTL), FailoverSafe: l.FailoverSafe, Owner: l.Owner, Principal: l.Principal, Metadata: l.Metadata, Rev: l.Rev,
		Permits: l.Permits, Limit: l.Limit, Holds: l.Holds, Ephemeral: l.Ephemeral,
		RevokeRequested: revocation(l.Revoke), Warning: l.Warning, NotifyURL: l.NotifyURL, NotifySecret: l.NotifySecret,
		AcquireReason: l.Purpose, EndsAt: endsAt(l.EndsAt), ReservedForMS: millis(l.ReservedFor),
	}
	if l.LockDelay > 0 {
		shape.LockDelayMS, shape.LockDelayOn = millis(l.LockDelay), api.LockDelayOn(l.LockDelayOn)
	}
	if l.AtLeast > 0 {
		shape.AtLeastMS = millis(l.AtLeast)
	}
	if l.OncePer > 0 {
		shape.OncePerMS, shape.Period, shape.DoneOn = millis(l.OncePer), l.Period, api.DoneOn(l.DoneOn)
	}
	for i := range l.Locks {
		k := &l.Locks[i]
		shape.Locks = append(shape.Locks, api.LeaseLock{
			Lock: k.Lock, NS: k.NS, Mode: api.Mode(k.Mode), Permits: k.Permits, Limit: k.Limit,
			Position: k.Position, FencingToken: k.FencingToken, Znode: k.Znode,
		})
	}
	if l.State != locks.Ended {
		shape.QueueLength = &l.QueueLength
		shape.ExpiresInMS = new(millis(l.ExpiresIn))
	}
	shape.LastHeartbeatMS = lastHeartbeat(l.LastHeartbeat)
	if l.WaitedKnown {
		shape.WaitedMS = new(millis(l.Waited))
	}
	return shape
}

// lastHeartbeat is left out when none is known of.
func lastHeartbeat(ago time.Duration) *int64 {
	if ago <= 0 {
		return nil
	}
	return new(millis(ago))
}

func revocation(r *locks.Revocation) *api.RevokeRequested {
	if r == nil {
		return nil
	}
	shape := &api.RevokeRequested{Reason: r.Reason, By: r.By}
	if r.Forced {
		shape.ForceInMS = new(millis(r.ForceIn))
	}
	return shape
}

func heartbeatItem(r *locks.HeartbeatResult) api.HeartbeatItem {
	if r.Err != nil {
		doc := problemOf(r.Err).document()
		return api.HeartbeatItem{LeaseID: r.LeaseID, Problem: &doc}
	}
	h := &r.Heartbeat
	return api.HeartbeatItem{
		LeaseID: h.LeaseID, State: api.State(h.State), ExpiresInMS: new(millis(h.ExpiresIn)), TTLMS: millis(h.TTL),
		FencingToken: h.FencingToken, Position: h.Position, Waiters: &h.Waiters, RevokeRequested: revocation(h.Revoke),
	}
}

// each gives every one of a list its shape.
func each[T, S any](list []T, shape func(*T) S) []S {
	shapes := make([]S, len(list))
	for i := range list {
		shapes[i] = shape(&list[i])
	}
	return shapes
}

func contenders(list []locks.Contender) []api.Contender { return each(list, contender) }

func contender(c *locks.Contender) api.Contender {
	shape := api.Contender{
		LeaseID: c.LeaseID, Foreign: foreignShape(c.Foreign), Znode: c.Znode, Owner: c.Owner, Principal: c.Principal,
		Mode: api.Mode(c.Mode), Permits: c.Permits, Limit: c.Limit, Position: c.Position, FencingToken: c.FencingToken,
		ExpiresInMS: millis(c.ExpiresIn), LastHeartbeatMS: lastHeartbeat(c.LastHeartbeat), Unclaimed: c.Unclaimed, Metadata: c.Metadata,
		Delayed: c.Delayed, Reason: api.Reason(c.Reason), Holds: c.Holds, Group: c.Group, Ephemeral: c.Ephemeral,
		RevokeRequested: revocation(c.Revoke), AcquireReason: c.Purpose, EndsAt: endsAt(c.EndsAt), ReservedForMS: millis(c.ReservedFor),
	}
	if c.AgeKnown {
		shape.AgeMS = new(millis(c.Age))
	}
	if c.Position == 0 {
		shape.HeldMS, shape.HeldLonger, shape.HeldAtMostMS = millis(c.HeldFor), c.HeldLonger, millis(c.HeldAtMost)
	}
	return shape
}

func foreignShape(f *locks.Foreign) *api.Foreign {
	if f == nil {
		return nil
	}
	shape := &api.Foreign{Program: f.Program, Kind: f.Kind, Decoded: decoded(f.Decoded)}
	if f.Session != 0 {
		shape.Session = hexOf(f.Session)
	}
	if len(f.Data) > 0 {
		if isText := utf8.Valid(f.Data) && !strings.ContainsRune(string(f.Data), 0); isText {
			shape.Data = &api.ForeignData{Text: string(f.Data)}
		} else {
			shape.Data = &api.ForeignData{Base64: base64.StdEncoding.EncodeToString(f.Data)}
		}
	}
	return shape
}

func decoded(d *locks.Decoded) *api.ForeignDecoded {
	if d == nil {
		return nil
	}
	shape := &api.ForeignDecoded{Address: d.Address, Participant: d.Participant, Identifier: d.Identifier}
	if t := d.TableLock; t != nil {
		shape.TableLock = &api.TableLock{Table: t.Table, Owner: t.Owner, Thread: t.Thread, Shared: t.Shared, Purpose: t.Purpose}
		if !t.Created.IsZero() {
			shape.TableLock.Created = t.Created.Format(time.RFC3339Nano)
		}
	}
	return shape
}

// hexOf writes a session or zxid as ZooKeeper's own tools do.
func hexOf(n int64) string { return "0x" + strconv.FormatUint(uint64(n), 16) }

func lockShape(l *locks.Lock) api.Lock {
	shape := api.Lock{
		Lock: l.Name, NS: l.NS, State: api.LockState(l.State), Holders: contenders(l.Holders),
		QueueLength: l.QueueLength, Rev: l.Rev, NextCursor: l.NextCursor,
	}
	if l.HolderCount > len(l.Holders) {
		shape.HolderCount = l.HolderCount
	}
	if len(l.Waiters) > 0 {
		shape.Waiters = contenders(l.Waiters)
	}
	if l.Limit > 0 {
		shape.Settings = &api.Settings{Limit: l.Limit, Agreed: l.LimitAgreed}
	}
	for _, h := range l.Hazards {
		shape.Hazards = append(shape.Hazards, api.Hazard{Code: api.HazardCode(h.Code), Programs: h.Programs, Detail: h.Detail})
	}
	return shape
}

func infoShape(info *locks.Info, counts bool, version string, mode api.InfoMode, maxWaiting, maxStreams int, connections connlimit.Limits) api.Info {
	var bounds [quota.Bounds]int64
	for _, b := range info.Bounds {
		bounds[b.Bound] = b.Limit
	}
	shape := api.Info{
		Version: version, Mode: mode, GatewayID: info.GatewayID, FleetID: info.FleetID, Root: info.Root,
		PromiseWindowMS: millis(info.PromiseWindow),
		Namespaces:      append([]string{}, info.Namespaces...),
		Limits: api.Limits{
			MinTTLMS: millis(locks.MinTTL), MaxTTLMS: millis(locks.MaxTTL), DefaultTTLMS: millis(locks.DefaultTTL),
			MaxWaitMS: millis(locks.MaxWait), MaxPollWaitMS: millis(locks.MaxPollWait),
			MaxOwnerBytes: locks.MaxOwner, MaxMetadataBytes: locks.MaxMetadata, MaxLockNameBytes: recipe.MaxLockName,
			MaxBodyBytes: maxBody, MaxHeartbeats: locks.MaxHeartbeats,
			DefaultPage: locks.DefaultPage, MaxPage: locks.MaxPage, MaxWaitingRequests: maxWaiting, MaxStreams: maxStreams,
			MaxLocks: locks.MaxGroup, MaxLimit: locks.MaxLimit, MaxHolds: locks.MaxHolds,
			MaxLockDelayMS: millis(locks.MaxLockDelay), MaxAtLeastMS: millis(locks.MaxAtLeast), MaxOncePerMS: millis(locks.MaxOncePer), MaxForceAfterMS: millis(locks.MaxForceAfter), MaxReap: locks.MaxReap,
			MaxLeases: int(bounds[quota.Leases]), MaxTickets: int(bounds[quota.Tickets]), MaxMetadataTotalBytes: bounds[quota.MetadataBytes],
			MaxIdempotencyKeys: int(bounds[quota.Keys]), MaxLocksKnown: int(bounds[quota.Locks]), MaxSettings: int(bounds[quota.Settings]),
			MaxConnections: connections.Connections, MaxConnectionsPerAddress: connections.PerAddress,
		},
		Zookeeper: zooKeeperShape(&info.ZooKeeper),
	}
	if counts {
		shape.Locks, shape.Contenders = &info.Locks, &info.Contenders
		shape.Leases = &api.LeaseCounts{Waiting: info.Leases[locks.Waiting], Held: info.Leases[locks.Held]}
	}
	return shape
}

func zooKeeperShape(zk *locks.ZooKeeperInfo) api.ZooKeeperInfo {
	shape := api.ZooKeeperInfo{
		Servers: append([]string{}, zk.Servers...), State: api.ZooKeeperInfoState(zk.State),
		SessionTimeoutMS: millis(zk.SessionTimeout), FenceOpen: zk.Trusted, FenceMarginMS: millis(zk.TrustMargin),
		ReplicaCurrent: zk.ReplicaCurrent, LastZxid: hexOf(zk.LastZxid), SecretExposed: zk.SecretExposed,
	}
	if zk.SessionAge > 0 {
		shape.SessionAgeMS, shape.LagMS = new(millis(zk.SessionAge)), new(millis(zk.Lag))
	}
	return shape
}

// endsAt is the end of a reservation, rounded down; "": it has none, or it is not known.
func endsAt(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}

// millis is a span in whole milliseconds, rounded down: no client gets more time than there is.
func millis(d time.Duration) int64 { return max(d, 0).Milliseconds() }
