package auth

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/certtest"
)

const whole = `
anonymous: [read]
issuers:
  corp:   {issuer: https://id.example.com, audience: lockkeeper, name: email, groups: groups}
  github: {issuer: https://token.actions.githubusercontent.com, audience: lockkeeper}
certificates: {name: cn}
roles:
  shop-ci:  [{ns: default, locks: ["shop:*", "common"], verbs: [read, acquire], max_ttl: 1h, leases: 200, rate: 50/s}]
  sre:      [{ns: "*", locks: "*", verbs: [read, acquire, operate]}]
  admin:    [{ns: "*", locks: "*", verbs: [read, acquire, operate, admin]}]
who:
  - {token: "ci-*",                                   roles: [shop-ci]}
  - {issuer: github, claims: {repository: acme/shop, ref: [refs/heads/main, refs/heads/next]}, roles: [shop-ci]}
  - {issuer: corp, group: sre,                        roles: [sre]}
  - {issuer: corp, everyone: true,                    roles: [shop-ci]}
  - {cert: ["backup.example.com", "*.ops.example.com"], roles: [shop-ci]}
  - {uid: [0, 1000],                                  roles: [admin, sre]}
`

func policyOf(t testing.TB, text string) *Policy {
	t.Helper()
	return assert.Value(compile("auth.yaml", []byte(text)))(t)
}

func TestAGrantSaysWhichHostsANotifyURLMayName(t *testing.T) {
	for text, want := range map[string]string{"true": "a.example.com b.net", "false": "", "a.example.com": "a.example.com", `["*.example.com", b.net]`: "a.example.com b.net"} {
		rules := policyOf(t, "roles: {r: [{ns: a, locks: b, verbs: [acquire], notify_url: "+text+"}]}").rulesOf([]string{"r"})
		var may []string
		for _, host := range []string{"a.example.com", "b.net"} {
			if rules.MayNotify("a", "b", host) {
				may = append(may, host)
			}
		}
		assert.Equal(t, strings.Join(may, " "), want, "notify_url: %s", text)
	}
}

func TestTheFileGivesRolesToCallers(t *testing.T) {
	p := policyOf(t, whole)
	for _, c := range []struct {
		of    identity
		roles string
		name  string
	}{
		{identity{kind: Token, name: "ci-shop"}, "shop-ci", "token:ci-shop"},
		{identity{kind: Token, name: "cd-shop"}, "", "token:cd-shop"},
		{identity{kind: Token, name: "cd-shop", admin: true}, "*", "token:cd-shop"},
		{identity{kind: Certificate, name: "ci-shop"}, "", "cert:ci-shop"},
		{identity{kind: Certificate, name: "backup.example.com"}, "shop-ci", "cert:backup.example.com"},
		{identity{kind: Certificate, name: "a.ops.example.com"}, "shop-ci", "cert:a.ops.example.com"},
		{identity{kind: User, name: "1000"}, "admin,sre", "uid:1000"},
		{identity{kind: User, name: "100"}, "", "uid:100"},
		{identity{kind: JWT, issuer: "github", name: "x", claims: map[string]any{"repository": "acme/shop", "ref": "refs/heads/next"}}, "shop-ci", "github:x"},
		{identity{kind: JWT, issuer: "github", name: "x", claims: map[string]any{"repository": "acme/shop", "ref": "refs/heads/other"}}, "", "github:x"},
		{identity{kind: JWT, issuer: "github", name: "x", claims: map[string]any{"ref": "refs/heads/main"}}, "", "github:x"},
		{identity{kind: JWT, issuer: "corp", name: "x", claims: map[string]any{"repository": "acme/shop", "ref": "refs/heads/main"}}, "shop-ci", "corp:x"},
		{identity{kind: JWT, issuer: "corp", name: "ann", groups: []string{"dev", "sre"}}, "shop-ci,sre", "corp:ann"},
		{identity{kind: Anonymous}, "", "anonymous"},
	} {
		known := assert.Value(p.decide(&c.of))(t)
		assert.Equal(t, strings.Join(known.roles, ","), c.roles, "roles of %+v", c.of)
		assert.Equal(t, known.principal.Name, c.name)
		rules := known.principal.Rules
		assert.That(t, rules.May(access.Read, "other", "any"), "%s may not read, which the file gives to every caller", c.name)
		ci := strings.Contains(c.roles, "shop-ci") || strings.Contains(c.roles, "sre") || c.roles == "*"
		assert.Equal(t, rules.May(access.Acquire, "default", "shop:till"), ci, "%s acquires", c.name)
		assert.Equal(t, rules.May(access.Acquire, "default", "common"), ci, "%s acquires", c.name)
		assert.Equal(t, rules.May(access.Operate, "default", "shop:till"), ci && c.roles != "shop-ci", "%s operates", c.name)
	}
	limits := assert.Value(p.decide(&identity{kind: Token, name: "ci-shop"}))(t).principal.Rules.Limits("default", "shop:till")
	assert.Equal(t, limits, access.Limits{MaxTTL: time.Hour, Leases: 200})
}

func TestAFileWithoutAnythingAllowsNothing(t *testing.T) {
	p := policyOf(t, "roles: {}\n")
	for _, kind := range []Kind{Anonymous, Token, JWT, Certificate, User} {
		known := assert.Value(p.decide(&identity{kind: kind, name: "x"}))(t)
		for _, verb := range access.All() {
			assert.That(t, !known.principal.Rules.MayIn(verb, "default"), "%s may %s", kind, verb)
		}
	}
}

// Each line is a file and what its error must be. Lines are counted from 1.
func TestWhatIsWrongWithTheFileIsSaidWithItsPlace(t *testing.T) {
	const roles = "roles: {r: [{ns: a, locks: b, verbs: [read]}]}\nissuers: {i: {issuer: \"https://i\", audience: a}}\n"
	for _, c := range []struct{ text, want string }{
		{"", "1:1: it must have a mapping with some of anonymous, issuers, certificates, roles, who"},
		{"a: [", "1:1: it must be YAML: did not find expected node content"},
		{"rolls: {}", `1:1: the file has no key "rolls"; its keys are anonymous, certificates, issuers, roles, who`},
		{"[]", "1:1: the file must be a mapping, and is a list"},
		{"anonymous: read", "1:12: anonymous must be a list, as in [a, b], and is text"},
		{"anonymous: [look]", `1:13: there is no verb "look"; verbs are read, acquire, operate, admin`},
		{"anonymous: [1]", "1:13: a verb must be text (in quotes if it looks like something else), and is a number"},
		{"roles:\n  r:\n    - {ns: a, lock: b, verbs: [read]}", `3:15: a grant has no key "lock"; its keys are leases, locks, max_ttl, notify_url, ns, rate, verbs`},
		{"roles:\n  r:\n    - {ns: a, locks: b}", "3:7: a grant must have the key verbs"},
		{"roles: {r: [{ns: a, locks: \"b[0-9]\", verbs: [read]}]}", "1:28: locks must have no wildcard but *, for any characters"},
		{"roles: {r: [{ns: a, locks: b, verbs: [acquire], notify_url: 60}]}", "1:61: notify_url must be text (in quotes if it looks like something else), and is a number"},
		{"roles: {r: [{ns: a, locks: b, verbs: [acquire], notify_url: \"http://x\"}]}", "1:13: notify_url must name hosts, without scheme, port and user, as hooks.example.com or *.example.com"},
		{"roles: {r: [{ns: a, locks: b, verbs: [read], notify_url: false}]}", "1:13: max_ttl, leases and notify_url bound the verb acquire: give the verb, or leave them out"},
		{"roles: {r: [{ns: a, locks: b, verbs: [read], max_ttl: 60}]}", "1:55: max_ttl must be a span of time with its unit, as 30s or 1h; leave it out for no bound"},
		{"roles: {r: [{ns: a, locks: b, verbs: [acquire], rate: fast}]}", "1:55: rate must be a number of requests in a span, as 50/s, 600/m or 100/h; leave it out for no bound"},
		{"roles: {r: [{ns: a, locks: b, verbs: [acquire], leases: 0}]}", "1:57: leases must be a whole number from 1 on; leave it out for no bound"},
		{"roles: {r: [], r: []}", `1:16: the key "r" is in line 1 already: leave one of them out`},
		{"roles: {\"*\": []}", "1:9: a role's name must be at most 64 letters, digits, dots, hyphens and underscores"},
		{"roles: {a: &x [], b: *x}", "1:22: the role b must be a list, as in [a, b], and is an alias"},
		{roles + "who: [{token: x, roles: [s]}]", `3:26: there is no role "s"; roles are r`},
		{"who: [{token: x, roles: [s]}]", `1:26: there is no role "s"; the file has no roles: write it there first`},
		{roles + "who: [{token: x}]", "3:7: an entry of who must have the key roles"},
		{roles + "who: [{token: x, roles: []}]", "3:25: roles must name 1 to 32 roles"},
		{roles + "who: [{roles: [r]}]", "3:7: an entry of who must have one of token, cert, uid, issuer"},
		{roles + "who: [{token: x, cert: y, roles: [r]}]", "3:7: an entry must have one of token, cert, uid, issuer, and this one has two: write two entries"},
		{roles + "who: [{token: x, group: y, roles: [r]}]", "3:25: group is for entries with issuer"},
		{roles + "who: [{issuer: j, everyone: true, roles: [r]}]", `3:16: there is no issuer "j"; issuers are i`},
		{roles + "who: [{issuer: i, roles: [r]}]", "3:7: the entry must say which tokens of the issuer i it means: claims, group or name; everyone: true for all of them"},
		{roles + "who: [{issuer: i, claims: {}, roles: [r]}]", "3:27: claims must have at least one claim"},
		{roles + "who: [{issuer: i, claims: {a: []}, roles: [r]}]", "3:31: a claim must have at least one item"},
		{roles + "who: [{issuer: i, group: g, roles: [r]}]", "3:26: the issuer i must say which claim has the groups: groups: groups"},
		{roles + "who: [{issuer: i, everyone: true, name: n, roles: [r]}]", "3:29: everyone must stand without name, group and claims: leave it out, or them"},
		{roles + "who: [{uid: root, roles: [r]}]", "3:13: uid must be the number of a user, as 1000"},
		{roles + "who: [{uid: [0, 65534], roles: [r]}]", "3:17: uid must not be 65534: the kernel gives this number to every user that the gateway's user namespace does not know; give the user another id"},
		{"issuers: {i: {issuer: \"http://id.example.com\", audience: a}}", "1:23: issuer must begin with https://: its keys decide who is let in"},
		{"issuers: {i: {issuer: \"https://id.example.com\"}}", "1:14: an issuer must have the key audience"},
		{"issuers: {token: {issuer: \"https://id.example.com\", audience: a}}", "1:11: an issuer must not have the name token: names of other callers begin so"},
		{"issuers: {i: {issuer: \"https://i\", audience: a}, j: {issuer: \"https://i\", audience: b}}", "1:53: the issuers i and j have the same address: write one of them, with entries in who for each kind of caller"},
		{"issuers: {i: {issuer: \"https://i\", audience: a, ca_file: none.pem}}", "1:58: ca_file must be a file that this process can read: no such file or directory"},
		{"issuers: {i: {issuer: \"https://i\", audience: a, dashboard: {}}}", "1:60: dashboard must have the key client_id"},
		{"issuers: {i: {issuer: \"https://i\", audience: a, dashboard: {client_id: c, secret_file: none}}}", "1:88: secret_file none must be a file that this process alone can read: no such file or directory"},
		{"issuers: {i: {issuer: \"https://i\", audience: a, dashboard: {client_id: c, scopes: [\"a b\"]}}}", "1:84: a scope must be one word, as openid"},
		{"certificates: {name: dns}", "1:22: name must be san (the first of the certificate's subject alternative names) or cn (its common name)"},
	} {
		_, err := compile("auth.yaml", []byte(c.text))
		assert.Must(t, err != nil, "no error: %s", c.text)
		assert.Equal(t, err.Error(), "auth.yaml:"+c.want, "%s", c.text)
	}
}

func TestAFileThatOthersCanWriteIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	assert.NoError(t, os.WriteFile(path, []byte(whole), 0o600))
	_, err := Read(path)
	assert.NoError(t, err)
	for _, mode := range []os.FileMode{0o620, 0o602, 0o666} {
		assert.NoError(t, os.Chmod(path, mode))
		_, err = Read(path)
		assert.That(t, err != nil && strings.Contains(err.Error(), "others can write it") && strings.Contains(err.Error(), "chmod go-w "+path), "%o: %v", mode, err)
	}
	assert.NoError(t, os.Chmod(path, 0o644))
	_, err = Read(path)
	assert.NoError(t, err)
}

// Each example of docs/operate/security.md is a file, and gives its role to the caller that the page names.
func TestTheExamplesOfThePageAreFilesOfRules(t *testing.T) {
	page := string(assert.Value(os.ReadFile("../../docs/operate/security.md"))(t))
	page = strings.ReplaceAll(page, "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", certtest.New(t, "cluster").File())
	with := map[string]identity{
		"token: \"shop-*\"":     {kind: Token, name: "shop-1"},
		"issuer: github":        {kind: JWT, issuer: "github", name: "repo:acme/shop:ref:refs/heads/main", claims: map[string]any{"repository": "acme/shop", "ref": "refs/heads/main"}},
		"issuer: cluster":       {kind: JWT, issuer: "cluster", name: "system:serviceaccount:shop:nightly"},
		"cert: backup":          {kind: Certificate, name: "backup.example.com"},
		"uid: [1000":            {kind: User, name: "1001"},
		"group: auditor":        {kind: JWT, issuer: "corp", name: "ann@example.com", groups: []string{"auditor"}},
		"group: sre":            {kind: JWT, issuer: "corp", name: "bob@example.com", groups: []string{"sre"}},
		"token: \"operator-*\"": {kind: Token, name: "operator-1"},
	}
	strangers := []identity{{kind: Anonymous}, {kind: Token, name: "other"}, {kind: Certificate, name: "other.example.com"}, {kind: User, name: "1002"},
		{kind: JWT, issuer: "github", claims: map[string]any{"repository": "acme/shop", "ref": "refs/heads/other"}},
		{kind: JWT, issuer: "github", claims: map[string]any{"repository": "fork/shop", "ref": "refs/heads/main"}},
		{kind: JWT, issuer: "cluster", name: "system:serviceaccount:shop:other"}, {kind: JWT, issuer: "corp", name: "ann@example.com"}}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if !strings.Contains(block[1], "\nwho:") {
			continue
		}
		p := policyOf(t, block[1])
		for entry, id := range with {
			if strings.Contains(block[1], entry) {
				known := assert.Value(p.decide(&id))(t)
				assert.Equal(t, len(known.roles), 1, "%s: roles of %+v", block[1], id)
				delete(with, entry)
			}
		}
		for _, id := range strangers {
			known := assert.Value(p.decide(&id))(t)
			assert.That(t, known.principal.Rules.Nothing(), "%s: %+v has %v", block[1], id, known.roles)
		}
	}
	assert.That(t, len(with) == 0, "the page has no entry of %v", with)
}

func TestTheExampleOfThePageAboutTheDashboardIsAFileOfRules(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "oidc")
	assert.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	page := string(assert.Value(os.ReadFile("../../docs/operate/dashboard.md"))(t))
	text := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(page)[1]
	p := policyOf(t, strings.Replace(text, "/etc/lockkeeper/oidc", secret, 1))
	assert.Equal(t, p.issuers["corp"].login, client{id: "lockkeeper-dashboard", secret: secret, scopes: "email groups openid profile"})
}
