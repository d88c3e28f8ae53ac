package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func ids(list []vacancy) (names []string) {
	for _, v := range list {
		names = append(names, string(v.id))
	}
	return names
}

func TestTakeoversBeginInOrder(t *testing.T) {
	for _, test := range []struct {
		name string
		line []vacancy
		want []string
	}{
		{"nothing", nil, nil},
		{"known ones first", []vacancy{{"a", unknown, 1}, {"b", own, 1}, {"c", seen, 1}}, []string{"c", "b", "a"}},
		{"by their names", []vacancy{{"c", seen, 1}, {"a", seen, 1}, {"b", seen, 1}}, []string{"a", "b", "c"}},
		{"unknown ones with many contenders first", []vacancy{{"a", unknown, 1}, {"b", unknown, 3}, {"c", unknown, 2}}, []string{"b", "c", "a"}},
		{"once", []vacancy{{"a", seen, 1}, {"a", seen, 1}, {"a", unknown, 1}, {"b", unknown, 1}, {"b", unknown, 1}}, []string{"a", "b"}},
	} {
		var tk takeovers
		for _, v := range test.line {
			tk.wait(v)
		}
		assert.Slices(t, ids(tk.next(time.Hour)), test.want, "%s", test.name)
	}
}

func TestTakeoversAreFewAtOnceAndUnknownOnesHaveARate(t *testing.T) {
	const many = 300
	var tk takeovers
	look := func(now time.Duration) (known, strange int) {
		for i := range many {
			for _, s := range []standing{seen, unknown} {
				id := recipe.GatewayID(fmt.Sprintf("%d-%03d", s, i))
				if _, busy := tk.underWay[id]; !busy {
					tk.wait(vacancy{id: id, standing: s})
				}
			}
		}
		for _, v := range tk.next(now) {
			if v.standing == unknown {
				strange++
			} else {
				known++
			}
		}
		return known, strange
	}
	answer := func() {
		for id := range tk.underWay {
			tk.ended(id, zk.Result{Outcome: zk.NotDone, Err: errors.New("another one was quicker")})
		}
	}
	const at = 1000 * time.Second
	for _, step := range []struct {
		now            time.Duration
		answered       bool
		known, strange int
	}{
		{at, false, takeoversAtOnce, takeoversAtOnce},
		{at + time.Second, false, 0, 0}, // none has been answered
		{at + time.Second, true, takeoversAtOnce, takeoversAtOnce},
		{at + time.Second, true, takeoversAtOnce, takeoversAtOnce},
		{at + time.Second, true, takeoversAtOnce, takeoversAtOnce},
		{at + time.Second, true, takeoversAtOnce, ClaimsRate}, // the second's
		{at + 1999*time.Millisecond, true, takeoversAtOnce, 0},
		{at + 2*time.Second, true, takeoversAtOnce, ClaimsRate},
		{at + time.Hour, true, takeoversAtOnce, takeoversAtOnce},
	} {
		if step.answered {
			answer()
		}
		if known, strange := look(step.now); known != step.known || strange != step.strange {
			t.Errorf("at %v: %d known and %d unknown ones begin, want %d and %d", step.now, known, strange, step.known, step.strange)
		}
		assert.That(t, tk.credit <= ClaimsBurst, "at %v: credit %d", step.now, tk.credit)
	}
}

func TestTakeoversOfUnknownIDsAreOneLineASecond(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	var tk takeovers
	lines := func() int { return strings.Count(out.String(), "\n") }
	end := func(n int, s standing, outcome zk.Outcome) (alone int) {
		for i := range n {
			id := recipe.GatewayID(fmt.Sprintf("gw%03d", i))
			tk.begin(id, s)
			if tk.ended(id, zk.Result{Outcome: outcome}) {
				alone++
			}
		}
		return alone
	}
	const at = 1000 * time.Second
	assert.Equal(t, end(3, seen, zk.Done), 3, "of 3 known gateways get a line")
	tk.log(log, at)
	assert.That(t, lines() == 0, "a line about no unknown id")
	assert.Equal(t, end(1, unknown, zk.Done)+end(1, own, zk.Done), 1, "lines about one own id")
	tk.log(log, at)
	end(100, unknown, zk.Done)
	end(10, unknown, zk.NotDone)
	tk.log(log, at+999*time.Millisecond)
	assert.Must(t, lines() == 1 && strings.Contains(out.String(), "taken=1 "), "%q", out.String())
	tk.log(log, at+time.Second)
	tk.log(log, at+time.Minute)
	assert.Must(t, lines() == 2 && strings.Contains(out.String(), "taken=100 not_done=10 ") && !strings.Contains(out.String(), "gw005"),
		"%q", out.String())
}
