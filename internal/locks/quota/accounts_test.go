package quota

import (
	"fmt"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestAnAccountCountsForItsPrincipalAlone(t *testing.T) {
	a := NewAccounts(PrincipalLimits{Leases: 3})
	assert.That(t, a.Of("") == nil && a.Len() == 0, "no principal has an account")
	one, two := a.Of("token:one"), a.Of("token:two")
	one.Add(2, 10)
	assert.That(t, a.Of("token:one") == one, "a principal has two accounts")
	leases, text := one.Used()
	assert.That(t, leases == 2 && text == 10, "%d %d", leases, text)
	leases, text = two.Used()
	assert.That(t, leases == 0 && text == 0 && two.Principal() == "token:two", "what one has is counted for another")
	var none *Account
	none.Add(5, 5)
	leases, text = none.Used()
	assert.That(t, leases == 0 && text == 0 && none.Principal() == "", "leases without a principal are counted")
}

func TestAnAccountThatGivesMoreThanItHadIsADefect(t *testing.T) {
	defer func() { assert.That(t, recover() != nil, "it goes on") }()
	NewAccounts(PrincipalLimits{}).Of("a").Add(-1, 0)
}

func TestAccountsOfThoseThatAreGoneDoNotGrow(t *testing.T) {
	a := NewAccounts(PrincipalLimits{})
	stays := a.Of("stays")
	stays.Add(1, 0)
	for i := range 10 * maxEmpty {
		of := a.Of(fmt.Sprint(i))
		of.Add(1, 0)
		of.Add(-1, 0)
	}
	assert.That(t, a.Len() <= maxEmpty+1 && a.Of("stays") == stays, "%d accounts are kept", a.Len())
	gone := a.Of("0")
	assert.That(t, testing.AllocsPerRun(100, func() { a.Of("stays").Add(1, 1); a.Of("stays").Add(-1, -1) }) == 0, "counting allocates")
	gone.Add(1, 0)
	assert.That(t, a.Of("0") == gone, "an account that counts is lost")
}
