package auth

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

// What each kind of caller may do when it does not ask, as the rules and the tokens change.
func TestTheStandingOfACallerIsThatOfNow(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		// stands is the verb that the caller has for every lock of default, or why it is not let in.
		stands := func(name, kind, credential string, roles ...string) string {
			rules, paused, known := s.Standing(name, kind, credential, roles)
			switch {
			case !known:
				return "not known"
			case paused != "":
				return paused
			case rules.MayAll(access.Admin):
				return "admin"
			case rules.May(access.Operate, "default", "a"):
				return "operate"
			case rules.May(access.Acquire, "default", "a"):
				return "acquire"
			}
			return "nothing"
		}
		is := func(got, want string) {
			t.Helper()
			assert.That(t, got == want || strings.Contains(want, " ") && strings.Contains(got, want), "got %q, want %q", got, want)
		}
		s.tokens.put("root", &token.Record{ID: "root", Name: "root", Admin: true})
		is(stands("token:ci-shop", "token", "a"), "acquire")
		is(stands("token:ci-shop", "token", "a", "sre", "*"), "acquire") // the roles of then do not count
		is(stands("token:root", "token", "root"), "admin")
		is(stands("token:root", "token", "a"), "was revoked")
		is(stands("cert:backup.example.com", "certificate", ""), "operate")
		is(stands("uid:1000", "uid", ""), "operate")
		is(stands("uid:1001", "uid", "", "sre"), "nothing")
		is(stands("anonymous", "anonymous", "", "*"), "nothing")
		is(stands("corp:ann", "jwt", "", "dev"), "acquire")
		is(stands("corp:ann", "jwt", "", "dev", "sre"), "operate")
		is(stands("corp:ann", "jwt", "", "*"), "nothing") // no entry gives it
		is(stands("other:ann", "jwt", "", "dev"), "no issuer other")
		is(stands("gateway", "gateway", "", "*"), "upgrade this one")
		is(stands("token:ci-shop", "forwarded", "a", "dev"), "upgrade this one")

		s.tokens.put("b", &token.Record{ID: "b", Name: "ci-shop"})
		s.tokens.put("a", nil)
		is(stands("token:ci-shop", "token", "a"), "was revoked") // and another of its name does not revive it
		is(stands("token:ci-shop", "token", "b"), "acquire")
		s.tokens.set(true)
		is(stands("token:ci-shop", "token", "b"), "not known")
		is(stands("corp:ann", "jwt", "", "dev"), "acquire")
		s.tokens.set(false)

		s.write(strings.NewReplacer("group: sre, roles: [sre]", "name: [bob], roles: [sre]", `"ci-*", roles: [dev]`, `"ci-*", roles: [sre]`, "uid: 1000", "uid: 1001").Replace(rulesInTests))
		time.Sleep(lookEvery)
		synctest.Wait()
		is(stands("token:ci-shop", "token", "b"), "operate")
		is(stands("uid:1000", "uid", ""), "nothing")
		is(stands("corp:ann", "jwt", "", "dev", "sre"), "acquire")
		is(stands("corp:bob", "jwt", "", "dev", "sre"), "operate")
	})
}
