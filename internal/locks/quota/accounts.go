package quota

import "strings"

// Accounts count the bounds by principal, so that one principal cannot use up what is there for all.
//
// An account counts the leases that this gateway runs. It is exact for this gateway: the count changes with each lease, and a
// takeover counts the leases that it brings for the principals that their records name. Gateways do not tell each other: a
// principal that asks N of them may have N times the bound.
type Accounts struct {
	limits PrincipalLimits
	byName map[string]*Account
}

// PrincipalLimits bound one principal. 0 stands for no bound.
type PrincipalLimits struct {
	Leases        int64 // as Leases; where the principal's roles have no bound of their own
	MetadataBytes int64
}

// maxEmpty is how many accounts are kept though nothing is counted there: a principal that takes and releases one lease after
// the other makes no new account each time.
const maxEmpty = 1024

// NewAccounts begins to count.
func NewAccounts(l PrincipalLimits) *Accounts {
	return &Accounts{limits: l, byName: map[string]*Account{}}
}

// Limits are the bounds.
func (a *Accounts) Limits() PrincipalLimits { return a.limits }

// Of is the account of a principal, to which something is added next. The empty name has none: nil.
func (a *Accounts) Of(name string) *Account {
	if name == "" {
		return nil
	}
	account := a.byName[name]
	if account == nil {
		account = &Account{Name: strings.Clone(name), of: a}
		a.byName[account.Name] = account
	}
	return account
}

// Look is the account of a principal for a look at its count. It keeps none for a principal that has nothing.
func (a *Accounts) Look(name string) *Account {
	if account := a.byName[name]; account != nil || name == "" {
		return account
	}
	return &Account{Name: name, of: a}
}

// Len is how many accounts there are.
func (a *Accounts) Len() int { return len(a.byName) }

// All yields the accounts, in no order.
func (a *Accounts) All(yield func(*Account) bool) {
	for _, account := range a.byName {
		if !yield(account) {
			return
		}
	}
}

// Account counts what one principal has. A nil Account counts nothing.
type Account struct {
	Name         string
	leases, text int64
	of           *Accounts
}

// Principal is the account's name; "" for nil.
func (a *Account) Principal() string {
	if a == nil {
		return ""
	}
	return a.Name
}

// Add counts leases and bytes of texts that have come (more than 0) or gone (less than 0).
func (a *Account) Add(leases, text int64) {
	if a == nil {
		return
	}
	a.leases += leases
	a.text += text
	if a.leases < 0 || a.text < 0 {
		panic("quota: more has gone from an account than came")
	}
	if a.leases == 0 && a.text == 0 && len(a.of.byName) > maxEmpty && a.of.byName[a.Name] == a {
		delete(a.of.byName, a.Name)
	}
}

// Used is what is counted.
func (a *Account) Used() (leases, text int64) {
	if a == nil {
		return 0, 0
	}
	return a.leases, a.text
}
