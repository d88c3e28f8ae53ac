package templates

import (
	"fmt"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestWhyAWaiterWaitsIsASentence(t *testing.T) {
	a, b := Who{Owner: "alice"}, Who{Owner: "bob"}
	for _, c := range []struct {
		why  Why
		want string
	}{
		{Why{}, ""},
		{Why{For: []Who{a}}, "waits for alice"},
		{Why{For: []Who{a, b}}, "waits for alice and bob"},
		{Why{For: []Who{a, b}, Others: 1}, "waits for alice, bob and 1 other"},
		{Why{For: []Who{a, b}, Others: 1200, Readers: true}, "waits for 1,202 readers"},
		{Why{For: []Who{a}, Delay: true}, "waits for the end of alice's lock delay"},
		{Why{For: []Who{a}, Delay: true, Until: noon}, "waits for the end of alice's lock delay:"},
		{Why{At: 3, Writer: true, Together: 2}, "waits for the writer at 3; is granted with the next 2 readers"},
		{Why{At: 3}, "waits for the one at 3"},
		{Why{Together: 1}, "is granted with the next reader"},
		{Why{Need: 4, Free: 2, Of: 10}, "needs 4 permits; those ahead leave 2 of 10"},
		{Why{Need: 1, Of: 10}, "needs 1 permit; those ahead leave none of 10"},
	} {
		assert.Equal(t, c.why.text(), c.want, "%+v", c.why)
	}
}

// The reasons of the gateway's list are sentences; callers' reasons stay as they are.
func TestEndsAreExplained(t *testing.T) {
	for _, c := range []struct{ event, reason, words, want string }{
		{"lease.expired", "expired", "", "its client stopped heartbeating"},
		{"lease.released", "released", "", ""},
		{"lease.revoked", "destroyed", "", "the lock was destroyed"},
		{"lease.revoked", "revoked", "maintenance", "by an administrator: maintenance"},
		{"lease.removed", "gateway_left", "", "ephemeral: its gateway's session has ended"},
		{"lease.cancelled", "wait_elapsed", "", "its wait time was over"},
		{"lease.revoke_requested", "", "expired", "expired"},
		{"lease.of_tomorrow", "a new one", "", "a new one"},
	} {
		assert.Equal(t, explained(Happening{Event: c.event, Reason: c.reason, Detail: c.words}), c.want, "%+v", c)
	}
}

func TestTheBarOfPermitsShowsTheSharesAndWhatTheNextNeeds(t *testing.T) {
	p := Permits{Limit: 10, Taken: 8, Shares: []Share{{Who{Owner: "a"}, 4}, {Who{Owner: "b"}, 2}}, Next: 4, NextWho: Who{Owner: "c"}}
	want := "share 0.000% 33.333% 4 a|share 33.333% 16.667% 2 b|rest 50.000% 16.667% 2 of others|next 66.667% 33.333% "
	var got []string
	for _, part := range p.parts() {
		got = append(got, fmt.Sprintf("%s %s %s %s", part.Kind, part.X, part.Width, part.Text))
	}
	assert.That(t, strings.Join(got, "|") == want, "%q", got)
	assert.That(t, p.beyond() && p.percent(p.Limit) == "83.333%" && p.nextNeeds() == "c needs 4, 2 are free",
		"%t, %s, %s", p.beyond(), p.percent(p.Limit), p.nextNeeds())
	if p := (Permits{Limit: 4, Taken: 9}); p.percent(9) != "100.000%" || p.nextNeeds() == "" {
		t.Error("more is taken than a limit that was lowered: ", p.percent(9))
	}
}

func TestTheChamberSaysWhatItIsUsedFor(t *testing.T) {
	reader := Contender{Mode: "shared"}
	for want, v := range map[string]Lock{
		"Holder":                     {},
		"Held by":                    {State: "held", HolderCount: 1},
		"Held by 2 readers together": {State: "held", HolderCount: 2, Holders: []Contender{reader, reader}},
		"Held by 2":                  {State: "held", HolderCount: 2, Holders: []Contender{reader, {Mode: "semaphore"}}},
		"Kept for a lock delay":      {State: "delayed", HolderCount: 1},
		"At the front":               {State: "queued", HolderCount: 1},
	} {
		assert.Equal(t, chamberTitle(v), want)
	}
}

// There are no actions on what the page cannot show, and none on the tab of znodes.
func TestActionsAreThereWhenThereAreContenders(t *testing.T) {
	v := states(noon)["/lock-readers"]
	got := render(LockHeadFragment(v))
	assert.That(t, strings.Count(got, "data-act=") == 3, "%v", got)
	v.Revoke = ""
	got = render(LockHeadFragment(v))
	assert.That(t, !strings.Contains(got, `data-act="revoke"`) && strings.Contains(got, `data-act="destroy"`), "%v", got)
	v.Tab = "zookeeper"
	assert.That(t, !strings.Contains(render(LockPage(v)), "data-act="), "the tab of znodes offers to act")
	assert.That(t, !strings.Contains(render(QueueFragment(lockSample(noon, 3))), "data-act="),
		"a contender without an address can be broken")
}
