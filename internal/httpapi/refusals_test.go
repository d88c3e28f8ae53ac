package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// opt collects options for a row of a table.
func opt(options ...apitest.Option) []apitest.Option { return options }

// twice gives a header two times.
func twice(name, value string) apitest.Option {
	return func(r *http.Request) { r.Header[name] = []string{value, value} }
}

func TestEachRefusalNamesWhatIsWrongAndAsksTheManagerNothing(t *testing.T) {
	const (
		acquire    = "/v1/locks/deploy/leases"
		lock       = "/v1/locks/deploy"
		lease      = "/v1/leases/" + someID
		self       = "/v1/leases/self"
		heartbeat  = "/v1/leases/self/heartbeat"
		heartbeats = "/v1/heartbeats"
		group      = "/v1/leases"
		apiToken   = "lkt_AAAAAAAA_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_0XI0xR" // by its form and checksum; no fleet has it
	)
	long := strings.Repeat("x", 201)
	tok := apitest.Token(someToken)
	for _, c := range []struct {
		what, method, path string
		options            []apitest.Option
		status             int
		code, field        string
	}{
		// Fields that are not there, or there too often.
		{"an unknown parameter", "POST", acquire + "?tll=10s", nil, 422, "unknown_field", "tll"},
		{"a parameter in the wrong case", "POST", acquire + "?TTL=10s", nil, 422, "unknown_field", "TTL"},
		{"a parameter without a name", "POST", acquire + "?=10s", nil, 422, "unknown_field", ""},
		{"a repeated parameter", "POST", acquire + "?ttl=10s&ttl=10s", nil, 422, "repeated_field", "ttl"},
		{"a parameter repeated in another spelling", "POST", acquire + "?ttl=10s&%74tl=10s", nil, 422, "repeated_field", "ttl"},
		{"an unknown member", "POST", acquire, opt(apitest.JSON(`{"tll":"10s"}`)), 422, "unknown_field", "tll"},
		{"an unknown member of another type", "POST", acquire, opt(apitest.JSON(`{"x":{"y":[1,{"z":null}]}}`)), 422, "unknown_field", "x"},
		{"a member in the wrong case", "POST", acquire, opt(apitest.JSON(`{"Owner":"me"}`)), 422, "unknown_field", "Owner"},
		{"an operation without fields", "POST", self + "/downgrade?force=true", opt(tok), 422, "unknown_field", "force"},
		{"a repeated member", "POST", acquire, opt(apitest.JSON(`{"owner":"a","owner":"b"}`)), 422, "repeated_field", "owner"},
		{"a member repeated with an escape", "POST", acquire, opt(apitest.JSON(`{"owner":"a","\u006fwner":"b"}`)), 422, "repeated_field", "owner"},
		{"a field in query and body", "POST", acquire + "?owner=a", opt(apitest.JSON(`{"owner":"a"}`)), 422, "repeated_field", "owner"},
		{"the owner is a token", "POST", acquire + "?owner=" + someToken, nil, 422, "invalid_field", "owner"},
		{"the metadata is a token", "POST", acquire, opt(apitest.JSON(`{"metadata":"` + someToken + `"}`)), 422, "invalid_field", "metadata"},
		{"a filter that is a token", "GET", "/v1/leases?owner=" + someToken, nil, 422, "invalid_field", "owner"},
		{"format in the body", "POST", acquire, opt(apitest.JSON(`{"format":"json"}`)), 422, "unknown_field", "format"},
		{"a parameter of another operation", "POST", acquire + "?since=1", nil, 422, "unknown_field", "since"},
		{"a parameter where there is none", "DELETE", self + "?force=true", opt(tok), 422, "unknown_field", "force"},
		{"a parameter of healthz", "GET", "/healthz?x=1", nil, 422, "unknown_field", "x"},
		{"a parameter of readyz", "GET", "/readyz?x=1", nil, 422, "unknown_field", "x"},
		{"a parameter of metrics", "GET", "/metrics?x=1", nil, 422, "unknown_field", "x"},
		{"a parameter of info", "GET", "/v1/info?x=1", nil, 422, "unknown_field", "x"},
		{"a parameter of the namespaces", "GET", "/v1/namespaces?x=1", nil, 422, "unknown_field", "x"},
		{"a parameter of the specification", "GET", "/openapi.yaml?x=1", nil, 422, "unknown_field", "x"},
		{"the token in the query", "GET", self + "?token=" + someToken, opt(tok), 422, "unknown_field", "token"},
		{"the token as a parameter's name", "POST", acquire + "?" + someToken, nil, 422, "unknown_field", ""},
		{"tokens in the query", "POST", heartbeats + "?tokens=" + someToken, nil, 400, "malformed_request", ""},

		// Malformed.
		{"a broken escape in the query", "POST", acquire + "?owner=%zz", nil, 400, "malformed_request", "owner"},
		{"a broken escape in a name", "POST", acquire + "?%zz=1", nil, 400, "malformed_request", ""},
		{"bytes that are no UTF-8 in the query", "POST", acquire + "?owner=%ff", nil, 400, "malformed_request", "owner"},
		{"bytes that are no UTF-8 in the body", "POST", acquire, opt(apitest.JSON("{\"owner\":\"\xff\"}")), 400, "malformed_request", ""},
		{"half a surrogate pair", "POST", acquire, opt(apitest.JSON(`{"owner":"\ud800"}`)), 422, "invalid_field", "owner"},
		{"no JSON", "POST", acquire, opt(apitest.JSON(`{"owner":`)), 400, "malformed_request", ""},
		{"trailing data", "POST", acquire, opt(apitest.JSON(`{"owner":"a"} {}`)), 400, "malformed_request", ""},
		{"a trailing comma", "POST", acquire, opt(apitest.JSON(`{"owner":"a",}`)), 400, "malformed_request", ""},
		{"an array", "POST", acquire, opt(apitest.JSON(`[]`)), 400, "malformed_request", ""},
		{"null", "POST", acquire, opt(apitest.JSON(`null`)), 400, "malformed_request", ""},
		{"a body of blanks", "POST", acquire, opt(apitest.JSON(` `)), 400, "malformed_request", ""},
		{"a body for a release", "DELETE", self, opt(tok, apitest.JSON(`{}`)), 400, "malformed_request", ""},
		{"a body for GET", "GET", lock, opt(apitest.JSON(`{}`)), 400, "malformed_request", ""},

		// Content type and size.
		{"a form of parts", "POST", acquire, opt(apitest.Header("Content-Type", "multipart/form-data; boundary=x"), apitest.Body("ttl=10s")), 415, "unsupported_media_type", "Content-Type"},
		{"no content type", "POST", acquire, opt(apitest.Body(`{"ttl":"10s"}`)), 415, "unsupported_media_type", "Content-Type"},
		{"another charset", "POST", acquire, opt(apitest.JSON(`{}`), apitest.Header("Content-Type", "application/json; charset=latin1")), 415, "unsupported_media_type", "Content-Type"},
		{"a compressed body", "POST", acquire, opt(apitest.JSON(`{}`), apitest.Header("Content-Encoding", "gzip")), 415, "unsupported_media_type", "Content-Encoding"},
		{"a large body", "POST", acquire, opt(apitest.JSON(`{"owner":"` + strings.Repeat("x", 64<<10) + `"}`)), 413, "body_too_large", ""},
		{"a large body of unknown length", "POST", acquire, opt(apitest.JSON(`{"owner":"`+strings.Repeat("x", 64<<10)+`"}`), func(r *http.Request) { r.ContentLength = -1 }), 413, "body_too_large", ""},
		{"a large body of blanks", "POST", heartbeat, opt(tok, apitest.JSON(strings.Repeat(" ", 64<<10+1))), 413, "body_too_large", ""},
		{"a large bulk heartbeat", "POST", heartbeats, opt(apitest.JSON(strings.Repeat(" ", 256<<10+1))), 413, "body_too_large", ""},

		// Durations.
		{"a ttl without unit", "POST", acquire + "?ttl=30", nil, 422, "duration_needs_unit", "ttl"},
		{"a ttl without unit, with a fraction", "POST", acquire + "?ttl=1.5", nil, 422, "duration_needs_unit", "ttl"},
		{"a ttl of 0 without unit", "POST", acquire + "?ttl=0", nil, 422, "duration_needs_unit", "ttl"},
		{"a ttl as a number", "POST", acquire, opt(apitest.JSON(`{"ttl":30}`)), 422, "duration_needs_unit", "ttl"},
		{"a ttl as a bare string", "POST", acquire, opt(apitest.JSON(`{"ttl":"30"}`)), 422, "duration_needs_unit", "ttl"},
		{"a wait without unit", "POST", acquire + "?wait=30", nil, 422, "duration_needs_unit", "wait"},
		{"a wait as a number", "POST", acquire, opt(apitest.JSON(`{"wait":0}`)), 422, "duration_needs_unit", "wait"},
		{"a poll without unit", "GET", lease + "?wait=30", nil, 422, "duration_needs_unit", "wait"},
		{"a heartbeat's ttl without unit", "POST", heartbeat + "?ttl=30", opt(tok), 422, "duration_needs_unit", "ttl"},
		{"an empty ttl", "POST", acquire + "?ttl=", nil, 422, "invalid_field", "ttl"},
		{"a parameter without value", "POST", acquire + "?ttl", nil, 422, "invalid_field", "ttl"},
		{"a ttl in days", "POST", acquire + "?ttl=1d", nil, 422, "invalid_field", "ttl"},
		{"a ttl that is no number", "POST", acquire + "?ttl=NaNs", nil, 422, "invalid_field", "ttl"},
		{"a ttl that is a list", "POST", acquire, opt(apitest.JSON(`{"ttl":["30s"]}`)), 422, "invalid_field", "ttl"},
		{"a ttl of null", "POST", acquire, opt(apitest.JSON(`{"ttl":null}`)), 422, "invalid_field", "ttl"},
		{"a short ttl", "POST", acquire + "?ttl=999ms", nil, 422, "invalid_field", "ttl"},
		{"a long ttl", "POST", acquire + "?ttl=24h1ms", nil, 422, "invalid_field", "ttl"},
		{"a negative ttl", "POST", acquire + "?ttl=-30s", nil, 422, "invalid_field", "ttl"},
		{"a ttl beyond all numbers", "POST", acquire + "?ttl=99999999999999999999h", nil, 422, "invalid_field", "ttl"},
		{"a ttl without end", "POST", acquire + "?ttl=forever", nil, 422, "invalid_field", "ttl"},
		{"a long wait", "POST", acquire + "?wait=25h", nil, 422, "invalid_field", "wait"},
		{"a negative wait", "POST", acquire + "?wait=-1s", nil, 422, "invalid_field", "wait"},
		{"a heartbeat's short ttl", "POST", heartbeat + "?ttl=1ms", opt(tok), 422, "invalid_field", "ttl"},
		{"a long poll of a lease", "GET", lease + "?wait=6m", nil, 422, "invalid_field", "wait"},
		{"an endless poll of a lease", "GET", lease + "?wait=forever", nil, 422, "invalid_field", "wait"},
		{"a long poll of a lock", "GET", lock + "?wait=6m", nil, 422, "invalid_field", "wait"},

		// Other fields.
		{"wait with async", "POST", acquire + "?async=true&wait=30s", nil, 422, "invalid_field", "wait"},
		{"async as a word", "POST", acquire + "?async=yes", nil, 422, "invalid_field", "async"},
		{"async as a string", "POST", acquire, opt(apitest.JSON(`{"async":"true"}`)), 422, "invalid_field", "async"},
		{"async as a number", "POST", acquire, opt(apitest.JSON(`{"async":1}`)), 422, "invalid_field", "async"},
		{"a mode in capitals", "POST", acquire + "?mode=Exclusive", nil, 422, "invalid_field", "mode"},
		{"a long owner", "POST", acquire + "?owner=" + strings.Repeat("x", 129), nil, 422, "invalid_field", "owner"},
		{"an owner that is long in bytes", "POST", acquire + "?owner=" + strings.Repeat("%C3%A9", 65), nil, 422, "invalid_field", "owner"},
		{"an owner of two lines", "POST", acquire + "?owner=a%0Ab", nil, 422, "invalid_field", "owner"},
		{"an owner with NUL", "POST", acquire, opt(apitest.JSON(`{"owner":"a\u0000"}`)), 422, "invalid_field", "owner"},
		{"an owner with a C1 control", "POST", acquire, opt(apitest.JSON(`{"owner":"a\u0085"}`)), 422, "invalid_field", "owner"},
		{"an owner that is a number", "POST", acquire, opt(apitest.JSON(`{"owner":7}`)), 422, "invalid_field", "owner"},
		{"long metadata", "POST", acquire, opt(apitest.JSON(`{"metadata":"` + strings.Repeat("x", 4097) + `"}`)), 422, "invalid_field", "metadata"},
		{"metadata that is an array", "POST", acquire, opt(apitest.JSON(`{"metadata":[{}]}`)), 422, "invalid_field", "metadata"},
		{"metadata with a control", "POST", acquire, opt(apitest.JSON(`{"metadata":"a\u001bb"}`)), 422, "invalid_field", "metadata"},
		{"a namespace with a slash", "POST", acquire + "?ns=a/b", nil, 422, "invalid_field", "ns"},
		{"an empty namespace", "POST", acquire + "?ns=", nil, 422, "invalid_field", "ns"},
		{"a long namespace", "POST", acquire + "?ns=" + strings.Repeat("x", 65), nil, 422, "invalid_field", "ns"},
		{"a format that is not there", "POST", acquire + "?format=yaml", nil, 422, "invalid_field", inLines},
		{"a format of a lock that is not there", "GET", lock + "?format=env", nil, 422, "invalid_field", inLines},
		{"a state that leases do not have", "GET", "/v1/leases?state=ended", nil, 422, "invalid_field", "state"},
		{"a state that locks do not have", "GET", "/v1/locks?state=lost", nil, 422, "invalid_field", "state"},
		{"a limit of 0", "GET", "/v1/locks?limit=0", nil, 422, "invalid_field", "limit"},
		{"a large limit", "GET", "/v1/leases?limit=1001", nil, 422, "invalid_field", "limit"},
		{"a limit with a sign", "GET", "/v1/leases?limit=%2B5", nil, 422, "invalid_field", "limit"},
		{"a limit that is no number", "GET", lock + "?limit=many", nil, 422, "invalid_field", "limit"},
		{"an empty cursor", "GET", "/v1/locks?cursor=", nil, 422, "invalid_field", "cursor"},
		{"a cursor with a blank", "GET", "/v1/locks?cursor=a+b", nil, 422, "invalid_field", "cursor"},
		{"a since with a blank", "GET", lease + "?since=a+b", nil, 422, "invalid_field", "since"},
		{"a long since", "GET", lease + "?since=" + strings.Repeat("x", 129), nil, 422, "invalid_field", "since"},
		{"verify as a word", "GET", lease + "?verify=1", nil, 422, "invalid_field", "verify"},
		{"consistent as a word", "GET", lock + "?consistent=", nil, 422, "invalid_field", "consistent"},
		{"a long part of a name", "GET", "/v1/locks?contains=" + strings.Repeat("x", 1025), nil, 422, "invalid_field", "contains"},
		{"a long prefix", "GET", "/v1/locks?prefix=" + strings.Repeat("x", 1025), nil, 422, "invalid_field", "prefix"},
		{"no tokens", "POST", heartbeats, nil, 422, "invalid_field", "tokens"},
		{"an empty object in place of tokens", "POST", heartbeats, opt(apitest.JSON(`{}`)), 422, "invalid_field", "tokens"},
		{"an empty list of tokens", "POST", heartbeats, opt(apitest.JSON(`{"tokens":[]}`)), 422, "invalid_field", "tokens"},
		{"a token that is a number", "POST", heartbeats, opt(apitest.JSON(`{"tokens":["a",1]}`)), 422, "invalid_field", "tokens"},
		{"tokens in a list of lists", "POST", heartbeats, opt(apitest.JSON(`{"tokens":[["a"]]}`)), 422, "invalid_field", "tokens"},
		{"one token, without a list", "POST", heartbeats, opt(apitest.JSON(`{"tokens":"a"}`)), 422, "invalid_field", "tokens"},
		{"too many tokens", "POST", heartbeats, opt(apitest.JSON(`{"tokens":["a"` + strings.Repeat(`,"a"`, 1000) + `]}`)), 422, "invalid_field", "tokens"},

		// Recipes.
		{"a mode that is not there", "POST", acquire + "?mode=upgradable", nil, 422, "invalid_field", "mode"},
		{"a limit without semaphore", "POST", acquire + "?limit=5", nil, 422, "invalid_field", "limit"},
		{"permits without semaphore", "POST", acquire + "?permits=2&mode=shared", nil, 422, "invalid_field", "permits"},
		{"more permits than the limit", "POST", acquire + "?mode=semaphore&limit=2&permits=3", nil, 422, "invalid_field", "permits"},
		{"no permits", "POST", acquire + "?mode=semaphore&permits=0", nil, 422, "invalid_field", "permits"},
		{"a limit of 0 permits", "POST", acquire + "?mode=semaphore&limit=0", nil, 422, "invalid_field", "limit"},
		{"a limit beyond the bound", "POST", acquire + "?mode=semaphore&limit=1048577", nil, 422, "invalid_field", "limit"},
		{"a limit as a string", "POST", acquire, opt(apitest.JSON(`{"mode":"semaphore","limit":"5"}`)), 422, "invalid_field", "limit"},
		{"a limit with a fraction", "POST", acquire, opt(apitest.JSON(`{"mode":"semaphore","limit":5.0}`)), 422, "invalid_field", "limit"},
		{"a lock delay without unit", "POST", acquire + "?lock_delay=15", nil, 422, "duration_needs_unit", "lock_delay"},
		{"a long lock delay", "POST", acquire + "?lock_delay=169h", nil, 422, "invalid_field", "lock_delay"},
		{"a short once_per", "POST", acquire + "?once_per=999ms", nil, 422, "invalid_field", "once_per"},
		{"a period of no length", "POST", acquire + "?period=2026-11-22", nil, 422, "invalid_field", "period"},
		{"a period with a slash", "POST", acquire + "?once_per=24h&period=2026/11/22", nil, 422, "invalid_field", "period"},
		{"done on something else", "POST", acquire + "?once_per=24h&done_on=end", nil, 422, "invalid_field", "done_on"},
		{"done without a period", "POST", acquire + "?done_on=release", nil, 422, "invalid_field", "done_on"},
		{"once together", "POST", acquire + "?once_per=24h&mode=shared", nil, 422, "invalid_field", "once_per"},
		{"once with a hold", "POST", acquire + "?once_per=24h&hold=a", nil, 422, "invalid_field", "once_per"},
		{"once with its gateway", "POST", acquire + "?once_per=24h&ephemeral=true", nil, 422, "invalid_field", "once_per"},
		{"a long at_least", "POST", acquire + "?at_least=169h", nil, 422, "invalid_field", "at_least"},
		{"an ephemeral lease with at_least", "POST", acquire + "?at_least=1s&ephemeral=true", nil, 422, "invalid_field", "at_least"},
		{"a lock delay on something else", "POST", acquire + "?lock_delay=1s&lock_delay_on=release", nil, 422, "invalid_field", "lock_delay_on"},
		{"ends without a delay", "POST", acquire + "?lock_delay_on=always", nil, 422, "invalid_field", "lock_delay_on"},
		{"ephemeral as a word", "POST", acquire + "?ephemeral=yes", nil, 422, "invalid_field", "ephemeral"},
		{"a dry run", "POST", acquire + "?dry_run=true", nil, 422, "unknown_field", "dry_run"},
		{"a preview with a body", "GET", "/v1/locks/deploy/preview", opt(apitest.JSON(`{"mode":"shared"}`)), 400, "malformed_request", ""},
		{"an empty hold", "POST", acquire + "?hold=", nil, 422, "invalid_field", "hold"},
		{"a long hold", "POST", acquire + "?hold=" + strings.Repeat("h", 65), nil, 422, "invalid_field", "hold"},
		{"a hold with a blank", "POST", acquire + "?hold=a+b", nil, 422, "invalid_field", "hold"},
		{"a hold in another alphabet", "DELETE", self + "?hold=%C3%A9", opt(tok), 422, "invalid_field", "hold"},
		{"a hold that is a token", "POST", acquire + "?hold=" + someToken, nil, 422, "invalid_field", "hold"},
		{"the lock's name again", "POST", acquire + "?lock=deploy", nil, 422, "unknown_field", "lock"},
		{"several locks at one", "POST", acquire + "?locks=a,b", nil, 422, "unknown_field", "locks"},
		{"an empty notify_url", "POST", acquire + "?notify_url=", nil, 422, "invalid_field", "notify_url"},
		{"a long notify_url", "POST", acquire + "?notify_url=https://example.com/" + strings.Repeat("a", 2048), nil, 422, "invalid_field", "notify_url"},
		{"a notify_url that is no string", "POST", acquire, opt(apitest.JSON(`{"notify_url":["https://example.com"]}`)), 422, "invalid_field", "notify_url"},
		{"a hold that is to be told of", "POST", acquire + "?hold=a&notify_url=https://example.com", opt(tok), 422, "invalid_field", "notify_url"},
		{"a token without a hold", "POST", acquire, opt(tok), 422, "invalid_field", "hold"},
		{"a token with a time to live", "POST", acquire + "?hold=a&ttl=30s", opt(tok), 422, "invalid_field", "ttl"},
		{"a token with a mode", "POST", acquire, opt(tok, apitest.JSON(`{"mode":"exclusive","hold":"a"}`)), 422, "invalid_field", "mode"},
		{"a token with a key", "POST", acquire + "?hold=a", opt(tok, apitest.Key(someKey)), 422, "invalid_field", "Idempotency-Key"},
		{"two tokens of a hold", "POST", acquire + "?hold=a", opt(twice("Lease-Token", someToken)), 422, "repeated_field", "Lease-Token"},
		{"an empty hold of a release", "DELETE", self + "?hold=", opt(tok), 422, "invalid_field", "hold"},
		{"a hold of a release without token", "DELETE", lease + "?hold=a", nil, 403, "lease_token_missing", ""},

		// Several locks.
		{"no locks", "POST", group, nil, 422, "invalid_field", "locks"},
		{"no locks in the body", "POST", group, opt(apitest.JSON(`{"ttl":"30s"}`)), 422, "invalid_field", "locks"},
		{"an empty list of names", "POST", group + "?locks=", nil, 422, "invalid_field", "locks[0]"},
		{"an empty name", "POST", group + "?locks=a,,b", nil, 422, "invalid_field", "locks[1]"},
		{"a name with a slash", "POST", group + "?locks=a,team/b", nil, 422, "invalid_field", "locks[1]"},
		{"a token as a name", "POST", group + "?locks=" + someToken, nil, 422, "invalid_field", "locks[0]"},
		{"65 names", "POST", group + "?locks=a" + strings.Repeat(",a", 64), nil, 422, "invalid_field", "locks"},
		{"65 objects", "POST", group, opt(apitest.JSON(`{"locks":[{"lock":"a"}` + strings.Repeat(`,{"lock":"a"}`, 64) + `]}`)), 422, "invalid_field", "locks"},
		{"locks in query and body", "POST", group + "?locks=a", opt(apitest.JSON(`{"locks":[{"lock":"a"}]}`)), 422, "repeated_field", "locks"},
		{"locks twice in the body", "POST", group, opt(apitest.JSON(`{"locks":[{"lock":"a"}],"locks":[{"lock":"b"}]}`)), 422, "repeated_field", "locks"},
		{"an empty array of locks", "POST", group, opt(apitest.JSON(`{"locks":[]}`)), 422, "invalid_field", "locks"},
		{"names in the body", "POST", group, opt(apitest.JSON(`{"locks":["a"]}`)), 422, "invalid_field", "locks[0]"},
		{"a null among locks", "POST", group, opt(apitest.JSON(`{"locks":[{"lock":"a"},null]}`)), 422, "invalid_field", "locks[1]"},
		{"an array among locks", "POST", group, opt(apitest.JSON(`{"locks":[[{"lock":"a"}]]}`)), 422, "invalid_field", "locks[0]"},
		{"an object in place of the array", "POST", group, opt(apitest.JSON(`{"locks":{"lock":"a"}}`)), 422, "invalid_field", "locks"},
		{"the names in one string", "POST", group, opt(apitest.JSON(`{"locks":"a,b"}`)), 422, "invalid_field", "locks"},
		{"a lock without name", "POST", group, opt(apitest.JSON(`{"locks":[{"lock":"a"},{"mode":"shared"}]}`)), 422, "invalid_field", "locks[1].lock"},
		{"a name that is a number", "POST", group, opt(apitest.JSON(`{"locks":[{"lock":7}]}`)), 422, "invalid_field", "locks[0].lock"},
		{"a name that is not one", "POST", group, opt(apitest.JSON(`{"locks":[{"lock":"-a"}]}`)), 422, "invalid_field", "locks[0].lock"},
		{"a mode of one of them", "POST", group, opt(apitest.JSON(`{"locks":[{"lock":"a"},{"lock":"b"},{"lock":"c","mode":"Shared"}]}`)), 422, "invalid_field", "locks[2].mode"},
		{"a namespace of one of them", "POST", group, opt(apitest.JSON(`{"locks":[{"lock":"a","ns":"a/b"}]}`)), 422, "invalid_field", "locks[0].ns"},
		{"permits of one of them", "POST", group, opt(apitest.JSON(`{"locks":[{"lock":"a","permits":2}]}`)), 422, "invalid_field", "locks[0].permits"},
		{"an unknown member of one of them", "POST", group, opt(apitest.JSON(`{"locks":[{"lock":"a","ttl":"1m"}]}`)), 422, "unknown_field", "locks[0].ttl"},
		{"a member of one of them in the wrong case", "POST", group, opt(apitest.JSON(`{"locks":[{"Lock":"a"}]}`)), 422, "unknown_field", "locks[0].Lock"},
		{"a repeated member of one of them", "POST", group, opt(apitest.JSON(`{"locks":[{"lock":"a"},{"lock":"b","lock":"b"}]}`)), 422, "repeated_field", "locks[1].lock"},
		{"a mode for all of them", "POST", group + "?locks=a,b&mode=shared", nil, 422, "unknown_field", "mode"},
		{"a namespace for all of them", "POST", group + "?locks=a,b&ns=other", nil, 422, "unknown_field", "ns"},
		{"wait with async, for several", "POST", group + "?locks=a&async=true&wait=1s", nil, 422, "invalid_field", "wait"},
		{"a token for several locks", "POST", group + "?hold=a", opt(tok), 422, "invalid_field", "Lease-Token"},
		{"a token with locks", "POST", group + "?locks=a&hold=a", opt(tok), 422, "invalid_field", "Lease-Token"},
		{"a short key, for several", "POST", group + "?locks=a", opt(apitest.Key("short")), 422, "invalid_field", "Idempotency-Key"},

		// Changes, ends and settings.
		{"a change without token", "PATCH", lease + "?owner=me", nil, 403, "lease_token_missing", ""},
		{"a change of the mode", "PATCH", self + "?mode=shared", opt(tok), 422, "unknown_field", "mode"},
		{"a change to a short ttl", "PATCH", self + "?ttl=1ms", opt(tok), 422, "invalid_field", "ttl"},
		{"a change to a null ttl", "PATCH", self, opt(tok, apitest.JSON(`{"ttl":null}`)), 422, "invalid_field", "ttl"},
		{"a change of what is no lease", "PATCH", "/v1/leases/x.y?owner=me", opt(tok), 404, "lease_not_found", ""},
		{"a downgrade without token", "POST", lease + "/downgrade", nil, 403, "lease_token_missing", ""},
		{"a downgrade with a body", "POST", self + "/downgrade", opt(tok, apitest.JSON(`{}`)), 400, "malformed_request", ""},
		{"a postmortem of self without token", "GET", self + "/postmortem", nil, 403, "lease_token_missing", ""},
		{"a postmortem of what is no token", "GET", self + "/postmortem", opt(apitest.Token("x")), 403, "lease_token_wrong", ""},
		{"a postmortem with a field", "GET", lease + "/postmortem?wait=1s", nil, 422, "unknown_field", "wait"},
		{"a break of self", "POST", self + "/break", opt(tok), 404, "lease_not_found", ""},
		{"a break with a long reason", "POST", lease + "/break?reason=" + strings.Repeat("r", 257), nil, 422, "invalid_field", "reason"},
		{"a break with a reason of two lines", "POST", lease + "/break", opt(apitest.JSON(`{"reason":"a\nb"}`)), 422, "invalid_field", "reason"},
		{"a break of a lease in a namespace", "POST", lease + "/break?ns=default", nil, 422, "unknown_field", "ns"},
		{"a break of a path", "POST", lock + "/contenders/a%2Fb/break", nil, 404, "contender_not_found", ""},
		{"a break of a name with NUL", "POST", lock + "/contenders/a%00/break", nil, 404, "contender_not_found", ""},
		{"a break of a long name", "POST", lock + "/contenders/" + strings.Repeat("x", 1025) + "/break", nil, 404, "contender_not_found", ""},
		{"settings without a limit", "PUT", lock, nil, 422, "invalid_field", "limit"},
		{"settings with another field", "PUT", lock + "?limit=5&agreed=true", nil, 422, "unknown_field", "agreed"},
		{"settings of what is no lock", "PUT", "/v1/locks/.a?limit=5", nil, 422, "invalid_field", "lock"},
		{"a removal with force", "DELETE", lock + "?force=true", nil, 422, "unknown_field", "force"},
		{"a removal with a body", "DELETE", lock, opt(apitest.JSON(`{}`)), 400, "malformed_request", ""},
		{"a revocation by force at once", "POST", lock + "/revoke?force_after=0s", nil, 422, "invalid_field", "force_after"},
		{"a revocation by force much later", "POST", lock + "/revoke?force_after=25h", nil, 422, "invalid_field", "force_after"},
		{"a revocation by force without unit", "POST", lock + "/revoke", opt(apitest.JSON(`{"force_after":30}`)), 422, "duration_needs_unit", "force_after"},
		{"a reap of everything", "POST", lock + "/reap", nil, 422, "invalid_field", "older_than"},
		{"a reap with a typing error", "POST", lock + "/reap?older_then=1h", nil, 422, "unknown_field", "older_then"},
		{"a reap of 0 without unit", "POST", lock + "/reap?older_than=0", nil, 422, "duration_needs_unit", "older_than"},
		{"a reap of an empty owner", "POST", lock + "/reap?older_than=1h&owner=", nil, 422, "invalid_field", "owner"},
		{"a reap of what has ended", "POST", lock + "/reap?older_than=1h&state=ended", nil, 422, "invalid_field", "state"},
		{"a reap of some mode", "POST", lock + "/reap?older_than=1h&mode=any", nil, 422, "invalid_field", "mode"},
		{"a reap of the foreign as a word", "POST", lock + "/reap?older_than=1h&foreign=all", nil, 422, "invalid_field", "foreign"},
		{"a destruction with force", "POST", lock + "/destroy?force=true", nil, 422, "unknown_field", "force"},
		{"a fence without token", "GET", lock + "/fence", nil, 422, "invalid_field", "fencing_token"},
		{"a fence with a token of 0", "GET", lock + "/fence?fencing_token=0", nil, 422, "invalid_field", "fencing_token"},
		{"a fence with a lease token", "GET", lock + "/fence?fencing_token=" + someToken, nil, 422, "invalid_field", "fencing_token"},
		{"a fence with a negative token", "GET", lock + "/fence?fencing_token=-1", nil, 422, "invalid_field", "fencing_token"},

		// Names of locks.
		{"an encoded slash", "POST", "/v1/locks/a%2Fb/leases", nil, 422, "invalid_field", "lock"},
		{"an encoded slash, small", "GET", "/v1/locks/a%2fb", nil, 422, "invalid_field", "lock"},
		{"a blank", "POST", "/v1/locks/a%20b/leases", nil, 422, "invalid_field", "lock"},
		{"a percent sign", "POST", "/v1/locks/a%2541/leases", nil, 422, "invalid_field", "lock"},
		{"a NUL", "POST", "/v1/locks/a%00/leases", nil, 422, "invalid_field", "lock"},
		{"another alphabet", "POST", "/v1/locks/%C3%A9/leases", nil, 422, "invalid_field", "lock"},
		{"a long name", "POST", "/v1/locks/" + long + "/leases", nil, 422, "invalid_field", "lock"},
		{"a name that begins with a dot", "POST", "/v1/locks/.a/leases", nil, 422, "invalid_field", "lock"},
		{"two dots", "POST", "/v1/locks/%2e%2e/leases", nil, 422, "invalid_field", "lock"},
		{"a name that begins with a dash", "POST", "/v1/locks/-a/leases", nil, 422, "invalid_field", "lock"},
		{"another program's lock", "POST", "/v1/locks/my%2520lock/leases", nil, 422, "invalid_field", "lock"},
		{"another program's lock among others", "POST", group + "?locks=a,my%2520lock", nil, 422, "invalid_field", "locks[1]"},
		{"a percent sign that is none", "GET", "/v1/locks/100%25", nil, 422, "invalid_field", "lock"},
		{"escapes in small letters", "GET", "/v1/locks/%25c3%25bc", nil, 422, "invalid_field", "lock"},
		{"an escape too many", "GET", "/v1/locks/%2541", nil, 422, "invalid_field", "lock"},
		{"a NUL to look at", "GET", "/v1/locks/a%00", nil, 422, "invalid_field", "lock"},
		{"two dots to look at", "GET", "/v1/locks/%252E.", nil, 422, "invalid_field", "lock"},
		{"a lease token as a name", "GET", "/v1/locks/" + someToken, nil, 422, "invalid_field", "lock"},
		{"an API token as a name", "GET", "/v1/locks/" + apiToken, nil, 422, "invalid_field", "lock"},
		{"an API token as a name of several", "POST", group + "?locks=a," + apiToken, nil, 422, "invalid_field", "locks[1]"},
		{"an API token as an owner", "POST", acquire + "?owner=" + apiToken, nil, 422, "invalid_field", "owner"},
		{"an API token as metadata", "POST", acquire, opt(apitest.JSON(`{"metadata":"` + apiToken + `"}`)), 422, "invalid_field", "metadata"},
		{"an API token as a field", "POST", acquire + "?" + apiToken + "=1", nil, 422, "unknown_field", ""},

		// Tokens and keys.
		{"a heartbeat without token", "POST", heartbeat, nil, 403, "lease_token_missing", ""},
		{"a heartbeat with an empty token", "POST", heartbeat, opt(apitest.Header("Lease-Token", "")), 403, "lease_token_missing", ""},
		{"a heartbeat of an id without token", "POST", lease + "/heartbeat", nil, 403, "lease_token_missing", ""},
		{"a release without token", "DELETE", lease, nil, 403, "lease_token_missing", ""},
		{"a release of self without token", "DELETE", self, nil, 403, "lease_token_missing", ""},
		{"a look at self without token", "GET", self, nil, 403, "lease_token_missing", ""},
		{"two tokens", "POST", heartbeat, opt(twice("Lease-Token", someToken)), 422, "repeated_field", "Lease-Token"},
		{"two tokens of a look", "GET", lease, opt(twice("Lease-Token", someToken)), 422, "repeated_field", "Lease-Token"},
		{"a token as an id", "GET", "/v1/leases/" + someToken, nil, 404, "lease_not_found", ""},
		{"an id that cannot be", "POST", "/v1/leases/A%20B/heartbeat", opt(tok), 404, "lease_not_found", ""},
		{"a long id", "DELETE", "/v1/leases/" + long, opt(tok), 404, "lease_not_found", ""},
		{"a short key", "POST", acquire, opt(apitest.Key("0123456789abcde")), 422, "invalid_field", "Idempotency-Key"},
		{"a long key", "POST", acquire, opt(apitest.Key(strings.Repeat("k", 129))), 422, "invalid_field", "Idempotency-Key"},
		{"a key with a blank", "POST", acquire, opt(apitest.Key("0123456789 abcdef")), 422, "invalid_field", "Idempotency-Key"},
		{"an empty key", "POST", acquire, opt(apitest.Header("Idempotency-Key", "")), 422, "invalid_field", "Idempotency-Key"},
		{"a key that is not ASCII", "POST", acquire, opt(apitest.Key("0123456789abcdefé")), 422, "invalid_field", "Idempotency-Key"},
		{"two keys", "POST", acquire, opt(twice("Idempotency-Key", someKey)), 422, "repeated_field", "Idempotency-Key"},

		// Where it comes from.
		{"another origin", "POST", acquire, opt(apitest.Header("Origin", "http://evil.example")), 403, "cross_origin", ""},
		{"another origin, GET", "GET", lock, opt(apitest.Header("Origin", "http://evil.example")), 403, "cross_origin", ""},
		{"another port", "GET", "/metrics", opt(apitest.Header("Origin", "http://127.0.0.1:1")), 403, "cross_origin", ""},
		{"no origin", "GET", lock, opt(apitest.Header("Origin", "null")), 403, "cross_origin", ""},
		{"a page of another site", "GET", lock, opt(apitest.Header("Sec-Fetch-Site", "cross-site")), 403, "cross_origin", ""},
		{"a page of the same site", "POST", acquire, opt(apitest.Header("Sec-Fetch-Site", "same-site")), 403, "cross_origin", ""},
		{"a preflight", "OPTIONS", acquire, opt(apitest.Header("Origin", "http://evil.example"), apitest.Header("Access-Control-Request-Method", "POST")), 403, "cross_origin", ""},
		{"another origin where nothing is", "GET", "/nothing", opt(apitest.Header("Origin", "http://evil.example")), 403, "cross_origin", ""},
		{"another host", "POST", acquire, opt(host("evil.example")), 421, "host_not_allowed", ""},
		{"another host with a port", "GET", lock, opt(host("evil.example:8080")), 421, "host_not_allowed", ""},
		{"a host that begins like ours", "GET", "/healthz", opt(host("localhost.evil.example")), 421, "host_not_allowed", ""},
		{"another host where nothing is", "GET", "/nothing", opt(host("evil.example")), 421, "host_not_allowed", ""},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			g := serve(t)
			a := g.send(t, c.method, c.path, c.options...)
			assert.Must(t, a.Problem != nil, "answered %d %s", a.Status, a.Body)
			if shell := strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain"); shell && c.field == inLines {
				a.Problem.Field, a.Problem.Detail = inLines, inLines
			}
			if a.Status != c.status || a.Code() != c.code || a.Problem.Field != c.field {
				t.Errorf("answered %d %s field %q (%s), want %d %s field %q", a.Status, a.Code(), a.Problem.Field, a.Problem.Detail, c.status, c.code, c.field)
			}
			assert.That(t, a.Problem.Detail != "", "the problem does not say what to do")
			assert.That(t, !strings.Contains(string(a.Body), someToken), "the answer tells the token: %s", a.Body)
			calls := g.asked()
			assert.That(t, len(calls) <= 0, "the manager was asked: %q", calls)
		})
	}
}

// inLines stands for the field of a problem that is answered as shell lines, which name none.
const inLines = "in shell lines"

func host(name string) apitest.Option { return func(r *http.Request) { r.Host = name } }

func TestDurationsWithoutUnitAreToldHowToSayIt(t *testing.T) {
	g := serve(t)
	a := g.send(t, "POST", "/v1/locks/deploy/leases?ttl=30")
	assert.That(t, strings.Contains(a.Problem.Detail, "30s"), "no hint: %q", a.Problem.Detail)
}

func TestAFieldInTheWrongPlaceIsToldTheRightOne(t *testing.T) {
	g := serve(t)
	a := g.send(t, "POST", "/v1/locks/deploy/leases", apitest.JSON(`{"format":"json"}`))
	want := "give it in the query"
	assert.That(t, a.Problem != nil && a.Problem.Detail == want, "%s, want %q", a.Body, want)
}

func TestEveryOperationWithFieldsTellsTheirNames(t *testing.T) {
	spec, err := apitest.Load()
	assert.NoError(t, err)
	operations := map[string]interface{ names() []string }{
		"Acquire": &acquireOne, "AcquireSeveral": &acquireGroup, "Release": &release, "UpdateLease": &updateLease, "GetLease": &getLease,
		"Heartbeat": &heartbeat, "HeartbeatMany": &heartbeatMany, "ListLeases": &listLeases, "ListGateways": &listGateways,
		"BreakLease": &breakLease, "BreakContender": &breakContender, "ConfigureLock": &configureLock, "RemoveLock": &removeLock, "ListPeriods": &listPeriods, "ForgetPeriod": &forgetPeriod,
		"Revoke": &revoke, "WithdrawRevocation": &withdrawRevocation, "Reap": &reap, "Destroy": &destroy,
		"GetFence": &getFence, "CheckFence": &checkFence, "PreviewAcquire": &previewAcquire,
		"ListLocks": &listLocks, "GetGraph": &getGraph, "GetLock": &getLock, "GetLeader": &getLeader, "GetHistory": &getHistory, "ListHistory": &listHistory, "GetStats": &getStats, "WatchEvents": &watchEvents, "WatchEventsSocket": &watchSocket,
		"CreateWebhook": &createWebhook, "UpdateWebhook": &updateWebhook, "RotateWebhook": &rotateWebhook, "ReplayWebhook": &replayWebhook,
		"ListWebhookAttempts": &aPage, "ListWebhookDeadLetters": &aPage,
	}
	for path, item := range spec.Doc.Paths.Map() {
		for method, operation := range item.Operations() {
			var want []string
			for _, p := range operation.Parameters {
				if p.Value.In == "query" {
					want = append(want, p.Value.Name)
				}
			}
			if operation.RequestBody != nil {
				schema := operation.RequestBody.Value.Content["application/json"].Schema.Value
				for _, part := range append(schema.AllOf, &openapi3.SchemaRef{Value: schema}) {
					want = slices.AppendSeq(want, maps.Keys(part.Value.Properties))
				}
			}
			var got []string
			if o := operations[operation.OperationID]; o != nil {
				got = o.names()
			}
			slices.Sort(got)
			slices.Sort(want)
			assert.That(t, fmt.Sprint(got) == fmt.Sprint(want), "%s %s: the form has %v, the specification %v", method, path, got, want)
		}
	}
}
