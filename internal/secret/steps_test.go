package secret

import (
	"slices"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/layout"
)

var (
	oldKey  = layout.TokenKey{ID: "oldk", Key: []byte("old")}
	newKey  = layout.TokenKey{ID: "newk", Key: []byte("new")}
	morning = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
)

// begun is a fleet's secret with a rotation in a phase.
func begun(phase layout.Phase) *layout.Secret {
	s := begin(&layout.Secret{FleetID: "abcdefgh", Keys: []layout.TokenKey{oldKey}, NameKey: []byte("names"), Zxid: 5}, newKey, "uid:0", time.Hour, morning)
	if phase != layout.Accepting {
		s.Keys = []layout.TokenKey{newKey, oldKey}
	}
	s.Rotation.Phase = phase
	if phase == layout.Dropping {
		at := morning.Add(time.Hour)
		s.Rotation.DropAt = &at
	}
	return s
}

func says(id string, phase layout.Phase, idle, zxid int64) gateway {
	return gateway{id: id, said: said{Key: newKey.ID, Phase: phase, Idle: idle, zxid: zxid}}
}

func ids(s *layout.Secret) (list []string) {
	for _, k := range s.Keys {
		list = append(list, k.ID)
	}
	return list
}

func TestARotationTakesAStepWhenItsGatewaysHaveFollowed(t *testing.T) {
	const members = 100
	one, two := "one", "two"
	for name, c := range map[string]struct {
		phase    layout.Phase
		gateways []gateway
		now      time.Duration // since the rotation began
		to       layout.Phase  // "" where it waits
		keys     []string
		cut      int64
	}{
		"all accept":                       {phase: layout.Accepting, gateways: []gateway{says(one, layout.Accepting, 0, 1), says(two, layout.Accepting, 0, 2)}, to: layout.Signing, keys: []string{"newk", "oldk"}},
		"one is silent":                    {phase: layout.Accepting, gateways: []gateway{says(one, layout.Accepting, 0, 1), {id: two}}},
		"one speaks of another rotation":   {phase: layout.Accepting, gateways: []gateway{says(one, layout.Accepting, 0, 1), {id: two, said: said{Key: "othr", Phase: layout.Signing}}}},
		"no gateway runs":                  {phase: layout.Accepting, to: layout.Signing, keys: []string{"newk", "oldk"}},
		"all sign":                         {phase: layout.Signing, gateways: []gateway{says(one, layout.Signing, 0, 120), says(two, layout.Signing, 0, 110)}, to: layout.Retiring, keys: []string{"newk", "oldk"}, cut: 120},
		"all sign, and one left since":     {phase: layout.Signing, gateways: []gateway{says(one, layout.Signing, 0, 90)}, to: layout.Retiring, keys: []string{"newk", "oldk"}, cut: members},
		"one accepts and does not sign":    {phase: layout.Signing, gateways: []gateway{says(one, layout.Signing, 0, 120), says(two, layout.Accepting, 0, 110)}},
		"none has old leases":              {phase: layout.Retiring, gateways: []gateway{says(one, layout.Retiring, members, 1), says(two, layout.Retiring, members, 1)}, to: layout.Dropping, keys: []string{"newk", "oldk"}},
		"one has":                          {phase: layout.Retiring, gateways: []gateway{says(one, layout.Retiring, members, 1), says(two, layout.Retiring, 0, 1)}},
		"one counted before a takeover":    {phase: layout.Retiring, gateways: []gateway{says(one, layout.Retiring, members, 1), says(two, layout.Retiring, members-1, 1)}},
		"one has not counted":              {phase: layout.Retiring, gateways: []gateway{says(one, layout.Retiring, members, 1), says(two, layout.Signing, 0, 1)}},
		"no gateway counts":                {phase: layout.Retiring},
		"its time has not come":            {phase: layout.Dropping, now: time.Hour - 1},
		"its time has come":                {phase: layout.Dropping, now: time.Hour, to: "done", keys: []string{"newk"}},
		"its time has come, none runs":     {phase: layout.Dropping, gateways: []gateway{{id: one}}, now: time.Hour, to: "done", keys: []string{"newk"}},
		"a phase of a later release":       {phase: "pondering", gateways: []gateway{says(one, "pondering", members, 1)}},
		"it is over":                       {phase: ""},
		"a gateway says more than it must": {phase: layout.Accepting, gateways: []gateway{says(one, layout.Retiring, 0, 1)}, to: layout.Signing, keys: []string{"newk", "oldk"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state{secret: begun(c.phase), gateways: c.gateways, members: members}
			if c.phase == "" {
				s.secret.Rotation = nil
			}
			before := string(s.secret.Encode())
			next := s.next(morning.Add(c.now))
			assert.Equal(t, string(s.secret.Encode()), before, "the state that was read")
			if c.to == "" {
				assert.Must(t, next == nil, "it goes on to %+v", next)
				return
			}
			assert.Must(t, next != nil, "it waits")
			assert.That(t, slices.Equal(ids(next), c.keys), "keys %v", ids(next))
			if c.to == "done" {
				assert.That(t, next.Rotation == nil, "%+v", next.Rotation)
				return
			}
			assert.Must(t, next.Rotation.Phase == c.to && next.Rotation.Cut == c.cut, "%+v", next.Rotation)
			if c.to == layout.Dropping {
				assert.That(t, next.Rotation.DropAt.Equal(morning.Add(time.Hour)), "dropped at %v", next.Rotation.DropAt)
			}
		})
	}
}

// A gateway of the release before signs with the first key and accepts all, so the record is written for it, too.
func TestARotationKeepsWhatOthersRely(t *testing.T) {
	s := begun(layout.Accepting)
	assert.That(t, slices.Equal(ids(s), []string{"oldk", "newk"}) && string(s.NameKey) == "names" && s.FleetID == "abcdefgh", "%+v", s)
	read := assert.Value(layout.ParseSecret(s.Encode()))(t)
	assert.That(t, string(read.NameKey) == "names" && *read.Rotation == *s.Rotation, "%+v", read)
}

// The new key never was where others could read it; the old ones stay compromised until they go.
func TestARotationEndsAnExposure(t *testing.T) {
	s := begin(&layout.Secret{FleetID: "abcdefgh", Keys: []layout.TokenKey{oldKey}, Exposed: true, Aversion: 3}, newKey, "", 0, morning)
	read := func(aversion int32) bool {
		r := assert.Value(layout.ReadSecret(s.Encode(), zkStat(aversion), false))(t)
		return r.Exposed
	}
	assert.That(t, read(3), "while the old key is accepted")
	s = drop(s)
	assert.That(t, !read(3), "after the drop")
	assert.That(t, read(4), "the ACL was changed since the new key was made")
}
