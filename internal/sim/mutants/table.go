package mutants

// Edit replaces one text, which must occur once, in one file.
type Edit struct {
	File string // below the module's root
	Old  string
	New  string
}

// Mutant is a gateway without one protection.
type Mutant struct {
	Name string
	// Without says what is missing.
	Without string
	Edits   []Edit
	// Backed names the mutant in which what makes up for it is gone, too: nothing shows this one alone. Empty: a seed or a named
	// scenario must.
	Backed string
	// Hooks says that the plans have webhooks, and with them many more that listen.
	Hooks bool
	// Open says why no seed shows it as yet, where that is a gap of the simulation and not another protection's merit.
	Open string
}

const (
	zkBatch      = "internal/zk/writer_batch.go"
	zkWriter     = "internal/zk/writer.go"
	zkEpoch      = "internal/zk/writer_epoch.go"
	zkLine       = "internal/zk/writer_queue.go"
	zkFence      = "internal/zk/fence.go"
	zkCurrency   = "internal/zk/currency.go"
	zkLoop       = "internal/zk/observer_loop.go"
	zkReplies    = "internal/zk/observer_replies.go"
	adopting     = "internal/locks/adopt.go"
	creating     = "internal/locks/create.go"
	applying     = "internal/locks/apply.go"
	clocks       = "internal/locks/clock.go"
	leases       = "internal/locks/lease.go"
	ending       = "internal/locks/end.go"
	queues       = "internal/locks/queue.go"
	names        = "internal/locks/recipe/parse.go"
	places       = "internal/locks/slot.go"
	lowering     = "internal/locks/downgrade.go"
	limits       = "internal/locks/settings.go"
	holding      = "internal/locks/holds.go"
	fencing      = "internal/locks/fencecheck.go"
	revoking     = "internal/locks/revoke.go"
	delaying     = "internal/locks/delay.go"
	heartbeating = "internal/locks/heartbeat.go"
	deposing     = "internal/locks/depose.go"
	noting       = "internal/locks/outbox.go"
	following    = "internal/locks/fleet.go"
	outbox       = "internal/webhooks/outbox.go"
	messages     = "internal/webhooks/message.go"
	delivering   = "internal/webhooks/courier.go"
)

// The edits that stand in more than one mutant.
var (
	fenceOpen = Edit{zkFence, "return f.Margin(now) > 0 }", "return true }"}

	alwaysCurrent = Edit{zkCurrency, "return c.synced && !c.proven.IsZero() && now.Since(c.proven) < c.window", "return c.synced"}

	neverBehind = Edit{zkReplies, "c.currency.behind(h.Zxid, sent, grace) {", "c.currency.behind(h.Zxid, sent, grace) && false {"}

	grantOnReply = Edit{creating, "			s.named(path[len(s.q.path)+1:])\n", `			s.named(path[len(s.q.path)+1:])
			if parsed, ok := recipe.Parse(m.fleet, s.name()); ok && !s.seen {
				*s.contender = parsed
				s.seen = true
				m.addContender(s.q, s.contender, false)
			}
`}

	noGaps = Edit{queues, "} else if s.q.gap || !s.q.known {", "} else if false {"}

	absenceCounts = Edit{applying, "if c.Listed && (l.phase == creating && l.czxid == 0 || c.Zxid < l.born()) {", "if false {"}

	backInTime = Edit{zkLoop, "seen := max(o.lastZxid, o.writerZxid())", "seen := int64(0)"}

	noFleet = Edit{names, "at := findFleet(prefix, fleet)", `at := -1
	if i := strings.Index(prefix, Tag); i >= 0 && i+LeaseIDLen <= len(prefix) {
		at = i
	}
	_ = findFleet`}

	noEpochCheck = Edit{zkBatch, "ops = append(ops, &gozk.CheckVersionRequest{Path: registration, Version: b.epoch}, setGuard)",
		"ops = append(ops, &gozk.CheckVersionRequest{Path: registration, Version: -1}, setGuard)"}
)

// Table is every protection that the simulation must miss when it is gone.
var Table = []Mutant{
	{Name: "guard", Without: "transactions do not write the guard; the zxid of a create is what the session has last seen", Edits: []Edit{
		{zkBatch, "ops = append(ops, &gozk.CheckVersionRequest{Path: registration, Version: b.epoch}, setGuard)",
			"ops = append(ops, &gozk.CheckVersionRequest{Path: registration, Version: b.epoch}, &gozk.CheckVersionRequest{Path: guard, Version: -1})"},
		{zkBatch, "// fate of the items", "func madeUp(zxid int64, version int32) *gozk.Stat { return &gozk.Stat{Mzxid: zxid, Version: version} }\n\n// fate of the items"},
		{zkWriter, "	if guard == nil { // an answer", `	if guard == nil && b.kind != raiseBatch {
		guard = madeUp(s.conn.lastZxid.Load(), w.lost.highest)
	}
	if guard == nil { // an answer`},
	}},
	{Name: "epoch-check", Without: "transactions do not check the epoch, only that the registration is there", Edits: []Edit{noEpochCheck}},
	{Name: "epoch-raise", Without: "after a lost transaction the epoch stays; a bare guard write is all that comes before the next ones", Edits: []Edit{
		{zkEpoch, "w.mode, w.raise.tries = raising, 0\n	}\n}\n\n// onRaised", "w.mode = confirming\n	}\n}\n\n// onRaised"},
		{"internal/zk/writer_lost.go", "if b.epoch < w.epoch {", "if b.number < w.number-8 {"},
	}},
	{Name: "fence", Without: "the fence is always open", Edits: []Edit{fenceOpen}, Backed: "fence+currency"},
	{Name: "currency", Without: "a replica that has been read is current for ever", Edits: []Edit{alwaysCurrent}, Backed: "fence+currency"},
	{Name: "behind", Without: "the observer stays with a server that has fallen behind", Edits: []Edit{neverBehind}},
	{Name: "fence+currency", Without: "the fence is always open, and a replica that has been read is current for ever", Edits: []Edit{fenceOpen, alwaysCurrent}},
	{Name: "currency+behind", Without: "a replica is current for ever, and the observer stays with a server that has fallen behind", Edits: []Edit{alwaysCurrent, neverBehind}},
	{Name: "window", Without: "a successor does not wait W", Edits: []Edit{
		{adopting, "l.grace = m.takenAt(c.LeaseID.Gateway()) + m.layout.LargestWindow", "l.grace = m.takenAt(c.LeaseID.Gateway())"},
	}},
	{Name: "resync", Without: "the tree is read on the first connection alone", Edits: []Edit{
		{zkLoop, "	for _, root := range c.replica.roots {\n		c.readTree(root)\n	}\n	pace", `	for _, root := range c.replica.roots {
		if c.lastZxid == 0 {
			c.readTree(root)
		}
	}
	pace`},
	}},
	{Name: "created-event", Without: "a create's reply grants", Edits: []Edit{grantOnReply}},
	{Name: "early-end", Without: "an end that the writer was told of grants, though the replica does not show it", Edits: []Edit{
		{leases, "		if s.seen {\n			s.q.note().early", "		if false {\n			s.q.note().early"},
	}},
	{Name: "gap", Without: "a number that was never seen does not matter", Edits: []Edit{noGaps}},
	{Name: "created-event+gap", Without: "a create's reply grants, and a number that was never seen does not matter", Edits: []Edit{grantOnReply, noGaps}},
	{Name: "absence", Without: "what a listing lacks is gone, whatever its zxid", Edits: []Edit{absenceCounts}},
	{Name: "last-seen", Without: "the observer connects to servers that are behind what it has seen", Edits: []Edit{backInTime}},
	{Name: "absence+last-seen", Without: "what a listing lacks is gone, and the observer connects to servers that are behind", Edits: []Edit{absenceCounts, backInTime}},
	{Name: "creates-first", Without: "in a transaction deletes stand before creates", Edits: []Edit{
		{zkLine, "		case a.onlyDeletes:\n			return 1\n		case b.onlyDeletes:\n			return -1\n", "		case a.onlyDeletes:\n			return -1\n		case b.onlyDeletes:\n			return 1\n"},
		{lowering, "m.submit(&zk.Write{Ops: append(creates, deletes...)}", "m.submit(&zk.Write{Ops: append(deletes, creates...)}"},
	}},
	{Name: "downgrade-token", Without: "the token of a downgraded lease is that of its newest contender", Edits: []Edit{
		{adopting, "	if first := l.contender.FirstCzxid; first != 0 {", "	if first := l.contender.FirstCzxid; first < 0 {"},
	}},
	{Name: "group-turn", Without: "a lease of several locks is granted when it holds the first of them", Edits: []Edit{
		{places, "	if l.width() == 1 {\n		return l.q.contenders.LeaseHolds(l.name())", "	if true {\n		return l.q.contenders.LeaseHolds(l.name())"},
	}},
	{Name: "group-whole", Without: "a lease of several locks that has lost one of its contenders goes on", Edits: []Edit{
		{creating, "	default:\n		m.end(l, m.lossReason(l), now)\n", ""},
		{places, "		p.since = now // asked for; the events remove it\n		m.deleteParts(p)\n", ""},
	}},
	{Name: "limit-check", Without: "an acquire does not check that its limit is in force", Edits: []Edit{
		{limits, "		return []zk.Op{{Kind: zk.OpCheck, Path: m.limitPath(q, n), Version: -1}}, false\n", "		return nil, false\n"},
	}},
	{Name: "limit-name", Without: "the limit that counts is the lock's, not the one in a contender's name", Edits: []Edit{
		{applying, "	c := *parsed\n	return &c\n", `	c := *parsed
	if n, _ := q.limit(); n > 0 && c.Ours && c.Mode == recipe.Permit {
		c.Limit = int32(n)
	}
	return &c
`},
	}},
	{Name: "holds-named", Without: "a repeated release of a hold lets the next one go", Edits: []Edit{
		{holding, "		case slices.Contains(l.releasedNames(), hold):\n			return nil, nil\n		case at < 0:", `		case slices.Contains(l.releasedNames(), hold) && len(holds) > 1:
			return func(r *record) { r.Holds = holds[:len(holds)-1] }, nil
		case at < 0:`},
	}},
	{Name: "fence-memory", Without: "a fence check is answered from memory", Edits: []Edit{
		{fencing, "	basis, err := m.cross(ctx)\n", "	basis, err := Basis{m.current.Load()}, error(nil)\n"},
	}},
	{Name: "force-record", Without: "a revocation is not written into the record", Edits: []Edit{
		{revoking, "m.writeRecord(l, func(r *record) { r.Revoke, r.RevokeRound = next, round }, func(err error) {", "m.writeRecord(l, func(r *record) { _ = r }, func(err error) {"},
	}},
	{Name: "force-withdrawn", Without: "force does not name the version that was read, so it overtakes a withdrawal",
		Open: "a withdrawal must be written between the moment when force is due and the owner's news of it; TestForceDoesNotOvertakeAWithdrawalThatWasWritten in internal/locks shows it", Edits: []Edit{
			{ending, "	if l.timed() || l.forced() {\n", "	if l.timed() {\n"},
		}},
	{Name: "withdraw-round", Without: "what was asked after a withdrawal goes on with the old force",
		Open: "a withdrawal and what is asked next must fall between two reads of the record by its owner; TestNothingOfAWithdrawnRevocationGoesOnInTheNext in internal/locks shows it", Edits: []Edit{
			{revoking, "	if round != l.revokeRound() {\n", "	if round != l.revokeRound() && r == nil {\n"},
		}},
	{Name: "closed-first", Without: "a lease with a lock delay ends like any other", Edits: []Edit{
		{delaying, "	if l.lockDelay() == 0 || !l.wasHeld", "	if true || l.lockDelay() == 0 || !l.wasHeld"},
	}},
	{Name: "closed-read", Without: "a successor does not look whether a record says closed", Edits: []Edit{
		{adopting, "	if ok && r.Closed != nil {", "	if false {"},
	}},
	{Name: "read-first", Without: "a lease that was taken over is heartbeaten before its record was read", Edits: []Edit{
		{heartbeating, "	case !l.loaded || l.czxid == 0:\n", "	case false:\n"},
	}},
	{Name: "ephemeral", Without: "a successor runs ephemeral leases, too", Edits: []Edit{
		{adopting, "	if c.Ephemeral && !own {", "	if false {"},
	}},
	{Name: "tail-pieces", Without: "a queue that is destroyed goes from its head", Edits: []Edit{
		{"internal/locks/destroy.go", "	for i := q.contenders.Len() - 1; i >= 0; i-- {\n		t := &tree{", "	for i := range q.contenders.Len() {\n		t := &tree{"},
	}},
	{Name: "old-read", Without: "a record that is older than what was written counts", Edits: []Edit{
		{adopting, "	if stat.Czxid == l.born() && stat.Version < l.dataVersion() {", "	if false {"},
	}, Open: "a seed found it, and the others do not: an event has to come late, behind a second write. internal/locks has a test"},
	{Name: "knows-all", Without: "a takeover does not wait until every recorded namespace has been read", Edits: []Edit{
		{"internal/locks/namespaces.go", "func (m *Manager) knowsAll() bool { return len(m.arrivals) == 0 }", "func (m *Manager) knowsAll() bool { return true }"},
	}},
	{Name: "tail-first", Without: "of a queue's deletes in one transaction the earlier contender goes first", Edits: []Edit{
		{zkLine, "cmp.Compare(numberB, numberA)", "cmp.Compare(numberA, numberB)"},
	}},
	{Name: "fleet", Without: "whatever looks like a lease id is ours", Edits: []Edit{noFleet}},
	{Name: "blind-time", Without: "deadlines do not move when the fence opens", Edits: []Edit{
		{clocks, "		m.forgive(now, now-c.lastTrusted)\n", ""},
	}},
	{Name: "unclaimed-ends", Without: "a grant of which nobody knows is never passed on", Edits: []Edit{
		{clocks, "		m.end(l, ReasonUnclaimed, now)\n		return\n", "		l.deadline = now + clockTick\n"},
	}},
	{Name: "unclaimed-counts", Without: "a grant of which nobody knows counts as claimed", Edits: []Edit{
		{leases, "l.claimed = l.listeners > 0 || l.told", "l.claimed = true"},
	}},
	{Name: "bare-writes", Without: "an idle gateway does not write its guard", Edits: []Edit{
		{zkWriter, "if !w.bare && !time.Now().Before(s.guardDue()) {", "if false {"},
	}},
	{Name: "seen-version", Without: "what time decided deletes any version", Edits: []Edit{
		{ending, "		version = l.dataVersion()\n", "		version = -1\n"},
		{ending, "term, timed, closes := l.term, version != -1, l.closes()", "term, timed, closes := l.term, byTime(l.reason()), l.closes()"},
	}},
	{Name: "depose-polled", Without: "who deposes looks at the guard anew", Edits: []Edit{
		{deposing, "	guard := p.vigil.guard\n	m.takeOver(id, p, &guard)", "	m.takeOver(id, p, nil)"},
	}},
	{Name: "depose-blind", Without: "time counts against a silent gateway in which one's own fence was closed", Edits: []Edit{
		{deposing, "now-max(v.since, open) >= deafAfter*window", "now-v.since >= deafAfter*window"},
	}},
	{Name: "written-heard", Without: "an owner ignores the heartbeats that others write down", Edits: []Edit{
		{adopting, "		m.beaten(l, r, now)\n", ""},
	}},
	{Name: "written-over", Without: "a record that another program has written over had no heartbeats in it", Edits: []Edit{
		{adopting, "		m.beatenUnread(l, now)\n", "		_ = seen\n"},
	}},
	{Name: "hearsay", Without: "nobody waits for the word of the gateway that ran a lease", Edits: []Edit{
		{"internal/locks/hearsay.go", `if c.Ours && c.LeaseID != "" && !certain && m.hopes() {`, "if certain && false {"},
	}},
	{Name: "held-order", Without: "a lock's later events do not wait behind one that is held back", Edits: []Edit{
		{"internal/locks/heldback.go", "	if m.back.n == 0 || len(m.back.locks[e.Dir]) == 0 {", "	if true {"},
	}},

	{Name: "hooks-check", Hooks: true, Without: "an end does not check who wants to be told", Edits: []Edit{
		{outbox, "	ops = s.inForce.check\n", "	ops = nil\n"},
	}},
	{Name: "hooks-wait", Hooks: true, Without: "ends do not wait until it is known who wants to be told", Edits: []Edit{
		{outbox, "	if s.inForce == nil || s.stale {\n		signal(s.wake)\n		return nil, nil, false\n", "	if s.inForce == nil || s.stale {\n		signal(s.wake)\n		return nil, nil, true\n"},
	}},
	{Name: "hooks-after", Hooks: true, Without: "an end is noted when its transaction is done, not in it", Edits: []Edit{
		{outbox, "ops = append(ops[:len(ops):len(ops)], s.creation(entry))", "ops = ops[:len(ops):len(ops)]"},
		{outbox, "		if entry != nil {\n			entry.Order = res.Zxid\n", `		if entry != nil && len(ops) > 0 {
			s.mu.Lock()
			s.toRecord = append(s.toRecord, entry)
			s.mu.Unlock()
			signal(s.keep)
		} else if entry != nil {
			entry.Order = res.Zxid
`},
	}},
	{Name: "hooks-left", Hooks: true, Without: "nobody looks for what a dead gateway has left in the outbox", Edits: []Edit{
		{outbox, "	if len(names) == 0 {\n		return nil\n	}\n", "	if true {\n		return nil\n	}\n"},
	}},
	{Name: "hooks-id", Hooks: true, Without: "a message has another id each time", Edits: []Edit{
		{messages, `fmt.Appendf(nil, "%s %q %q %s", wholeOf(entry), e.NS, e.Lock, subscription)`, `fmt.Appendf(nil, "%s %q %q %s %d", wholeOf(entry), e.NS, e.Lock, subscription, time.Now().Unix())`},
	}},
	{Name: "hooks-done", Hooks: true, Without: "an entry goes when it is to be delivered, not when it is", Edits: []Edit{
		{outbox, "			s.added(1)\n			s.courier.Add(entry)\n", "			s.added(1)\n			s.courier.Add(entry)\n			(*outboxKeeper)(s).Done(entry)\n"},
	}},
	{Name: "hooks-tries", Hooks: true, Without: "what a receiver did not take is not sent again", Edits: []Edit{
		{delivering, "	wait, again := delay(l.tries, c.opt.Random)\n", "	wait, again := delay(l.tries, c.opt.Random)\n	again = false\n"},
	}},
	{Name: "hooks-fresh", Hooks: true, Without: "what a dead gateway has left is read with the subscriptions as they were known", Edits: []Edit{
		{outbox, "	if now, err := s.refresh(ctx); err != nil || now.unchecked {\n", "	if err := ctx.Err(); err != nil {\n"},
	}},
	{Name: "hooks-verdict", Hooks: true, Without: "the gateway of a lease that another one has broken tells its end, too", Edits: []Edit{
		{noting, "	if w := m.words[subject(l.id())]; w != nil && w.verdict != nil {\n		return // the gateway", "	if false {\n		return // the gateway"},
	}},
	{Name: "hooks-gone", Hooks: true, Without: "nobody looks through the outbox when a gateway is gone", Edits: []Edit{
		{following, "		m.adoptOutbox() // what it has left may be anybody's now\n", ""},
	}},
}
