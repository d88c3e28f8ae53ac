package authtest

import (
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"
)

// tableRules give each caller of the table what its name says, for the locks of the shop.
const tableRules = `
issuers:
  corp: {issuer: https://id.example.com, audience: lockkeeper}
certificates: {name: san}
roles:
  read:      [{ns: default, locks: "shop:*", verbs: [read]}, {ns: default, locks: "fleetlock:shop.*", verbs: [read]}]
  elsewhere: [{ns: default, locks: "other:*", verbs: [read, acquire, operate]}]
  acquire:   [{ns: default, locks: "shop:*", verbs: [acquire]}, {ns: default, locks: "fleetlock:shop.*", verbs: [acquire]}]
  operate:   [{ns: default, locks: "shop:*", verbs: [operate]}, {ns: default, locks: "fleetlock:shop.*", verbs: [operate]}]
  admin:     [{ns: "*", locks: "*", verbs: [admin]}]
who:
  - {token: read, roles: [read]}
  - {token: elsewhere, roles: [elsewhere]}
  - {token: [acquire, expired, revoked], roles: [acquire]}
  - {token: operate, roles: [operate]}
  - {token: admin, roles: [admin]}
  - {issuer: corp, name: shopper, roles: [acquire]}
  - {cert: shopper.example.com, roles: [acquire]}
`

// roles are the columns of the table.
var roles = []string{"none", "read", "elsewhere", "acquire", "operate", "admin", "everything"}

// kinds of callers that are not in a column of their own.
const (
	refused   = "refused"    // its credential is wrong: 401 wherever callers are asked who they are
	unheard   = "unheard"    // its certificate is: no connection
	loggedOut = "logged out" // so is a browser's cookie, and pages send it to the login
	nothing   = "nothing"    // it is known, and no entry of the file names it
	asAcquire = "acquire"    // another credential with the same role
)

// tableCaller is a caller and the column that says what it gets.
type tableCaller struct {
	*Caller
	column string
}

// tableCallers are all kinds of callers. root may do everything.
func tableCallers(t *testing.T, w *World) (list []tableCaller, root *Caller) {
	t.Helper()
	add := func(column string, c *Caller) { list = append(list, tableCaller{c, column}) }
	root = w.Bearer("root", 0, true)
	add("none", &Caller{Name: "none"})
	for _, role := range []string{"read", "elsewhere", "acquire", "operate", "admin"} {
		add(role, w.Bearer(role, 0, false))
	}
	add(nothing, w.Bearer("nothing", 0, false))
	add("everything", root)
	add(asAcquire, w.Browser("browser", w.Gateways[1], list[3].Caller))
	add(asAcquire, w.JWT("jwt", w.Issuer, "shopper", Audience, 24*time.Hour))
	add(asAcquire, &Caller{Name: "certificate", Certificate: w.clientCA.Issue([]string{"shopper.example.com"})})

	good := list[3].Authorization
	last := map[bool]string{true: "1", false: "0"}[strings.HasSuffix(good, "0")]
	add(refused, &Caller{Name: "wrong token", Authorization: good[:len(good)-1] + last})
	add(refused, &Caller{Name: "guessed token", Authorization: guessed(good)})
	add(refused, &Caller{Name: "token of another fleet", Authorization: "Bearer " + otherFleet})
	expired, revoked := w.Bearer("expired", time.Minute, false), w.Bearer("revoked", 0, false)
	loggedIn := w.Browser("browser of a revoked token", w.Gateways[0], revoked)
	old := w.JWT("expired jwt", w.Issuer, "shopper", Audience, time.Minute)
	w.Revoke(revoked)
	for _, c := range list { // the first use of a token is noted in its record within a minute
		for _, g := range w.Gateways {
			w.Send(g, c.Caller, "GET", "/v1/whoami")
		}
	}
	time.Sleep(2 * time.Minute)
	add(refused, expired)
	add(refused, revoked)
	add(loggedOut, loggedIn)
	add(refused, old)
	add(refused, w.JWT("wrong audience", w.Issuer, "shopper", "another", 24*time.Hour))
	add(refused, w.JWT("other issuer", w.Stranger, "shopper", Audience, 24*time.Hour))
	forged := newIssuer(w.Issuer.url) // says that it is the issuer, and has another key
	add(refused, w.JWT("forged", forged, "shopper", Audience, 24*time.Hour))
	add(refused, &Caller{Name: "password", Authorization: "Basic cm9vdDpyb290"}) // below /compat, too: it is no token
	add(unheard, &Caller{Name: "certificate of another CA", Certificate: w.servers.Issue([]string{"shopper.example.com"})})
	return list, root
}

// otherFleet is a whole API token, which this fleet has never made.
const otherFleet = "lkt_0000000000000000000000000000000000000000000000000000_000000"

// guessed is a token with the id and the form of one that there is, its checksum included, and another secret.
func guessed(authorization string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	signed := strings.TrimPrefix(authorization[:strings.LastIndexByte(authorization, '_')], "Bearer ")
	signed = signed[:strings.LastIndexByte(signed, '_')+1] + strings.Repeat("0", 43)
	sum := make([]byte, 6)
	for i, n := len(sum)-1, crc32.ChecksumIEEE([]byte(signed)); i >= 0; i-- {
		sum[i], n = digits[n%62], n/62
	}
	return "Bearer " + signed + "_" + string(sum)
}

// wanted is the status that a row has for a column.
func (r *row) wanted(column string) string {
	of := func(role string) string { return strings.Fields(r.want)[slices.Index(roles, role)] }
	switch column {
	case loggedOut:
		if of("none") == "303" {
			return "303"
		}
		return r.wanted(refused)
	case refused:
		if r.open || r.byToken {
			return of("none")
		}
		return "401"
	case nothing: // as one that shows nothing, but that it need not show who it is
		switch {
		case r.open, of("none") != "401" && of("none") != "303":
			return of("none")
		case of("elsewhere") == "404" && !strings.Contains(r.pattern(), "/webhooks"): // which are refused before one is looked for
			return "404"
		}
		return "403"
	}
	return of(column)
}
