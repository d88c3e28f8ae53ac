package httpapi

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// hostile is a text that runs canary, or writes to the file x, wherever a shell gets to act on a part of it.
func hostile(r *rand.Rand) string {
	pieces := []string{
		"$(canary)", "`canary`", "$(>x)", "`>x`", "${x:-$(canary)}", "$((x[$(canary)]))", "\ncanary\n", "\r\ncanary\r\n", ";canary;", "&&canary;", "|canary", "&canary&",
		"\"", "'", "\\", "\\\"", "\\\\\"", "\\n", "$", "`", "\"$(canary)\"", "';canary;'", "\";canary;\"", "\x00", "\x00canary\n", "\xff", "\xc3", "\xed\xa0\x80", "\u2028canary\u2028",
		"\u0085canary\u0085", "\u009b31m", "\u202e", "\u200b", "\U000e0001", "\uff04(canary)", "é", "漢", "😀", "(", ")", "{", "}", "{a,$(canary)}", "<x", ">x", ">>x", "<<x\n", "#", "!!", "*", "~",
		"\nfalse\n", "\nLEASE_TOKEN=$(canary)\n", "LEASE_ID=", "=", " ", "\t", "node-1", "lk1.", "?format=env", "\\u0024(canary)", "\\x24(canary)", "%24(canary)", "$'\\x24(canary)'", "$\"`canary`\"",
	}
	var b strings.Builder
	n := 1 + r.IntN(6)
	if r.IntN(500) == 0 {
		n = 3000 // very long
	}
	for range n {
		if r.IntN(8) == 0 {
			b.WriteRune(rune(r.IntN(0x3000)))
			continue
		}
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// hostileQueue are holders with hostile words in every place that other people can fill.
func hostileQueue(r *rand.Rand) []locks.Contender {
	list := make([]locks.Contender, 1+r.IntN(2))
	for i := range list {
		c := &list[i]
		c.LeaseID, c.Znode, c.Mode, c.Owner, c.Metadata = someID, "/lockkeeper/locks/"+hostile(r), locks.Exclusive, hostile(r), hostile(r)
		c.Holds, c.Group = []string{hostile(r)}, []string{hostile(r)}
		c.Revoke = &locks.Revocation{Reason: hostile(r)}
		if r.IntN(2) == 0 {
			c.LeaseID = ""
			c.Foreign = &locks.Foreign{Program: "curator", Kind: "mutex", Data: []byte(hostile(r))}
			switch r.IntN(4) {
			case 0:
				c.Foreign.Decoded = &locks.Decoded{Participant: hostile(r)}
			case 1:
				c.Foreign.Decoded = &locks.Decoded{Identifier: hostile(r), Address: hostile(r)}
			case 2:
				c.Foreign.Decoded = &locks.Decoded{TableLock: &locks.TableLock{Table: hostile(r), Owner: hostile(r), Purpose: hostile(r)}}
			}
		}
	}
	return list
}

// randomAnswer makes a manager's answer with hostile words in it: every code, and the successes.
func randomAnswer(r *rand.Rand, codes []kind) func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
	var result locks.AcquireResult
	var err error
	switch n := r.IntN(len(codes) + 4); {
	case n < len(codes):
		err = &locks.Error{Code: locks.Code(codes[n].code), Field: hostile(r), Detail: hostile(r), Reason: locks.ReasonRevoked, Holders: hostileQueue(r), Err: errors.New(hostile(r))}
	default:
		l := []locks.Lease{held(), waiting(), several()}[r.IntN(3)]
		l.Owner, l.Metadata, l.Znode, l.Warning, l.Holds = hostile(r), hostile(r), hostile(r), hostile(r), []string{hostile(r)}
		l.Revoke, l.NotifyURL = &locks.Revocation{Reason: hostile(r)}, hostile(r)
		result = locks.AcquireResult{Lease: l, Replayed: n%2 == 0, HoldAdded: n%3 == 0}
	}
	return func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) { return result, err }
}

var shellSeed = flag.Uint64("shell.seed", 0, "what the words of others are drawn from; 0: another one each time")

// 10,000 rounds of words that other people chose, through every kind of answer, into real shells.
func TestNothingThatOthersWroteRunsInAShell(t *testing.T) {
	rounds := 10_000
	if testing.Short() {
		rounds = 1_000
	}
	seed := *shellSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-shell.seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	f := newFake()
	s := New(Options{Locks: quietLocks{f}})
	ask := func(method, target string, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		req := &http.Request{Method: method, Host: "localhost", Header: http.Header{}, Body: http.NoBody, ContentLength: int64(len(body))}
		req.URL, _ = url.Parse("http://localhost" + target)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
			req.Body = io.NopCloser(strings.NewReader(body))
		}
		s.ServeHTTP(w, req.WithContext(t.Context()))
		return w
	}
	codes := catalogue()
	lines, documents := map[string]bool{}, map[string]bool{}
	keep := func(w *httptest.ResponseRecorder) {
		if body := w.Body.String(); !shellGrammar.MatchString(body) || (w.Code >= 400) != strings.HasSuffix(body, "\nfalse\n") {
			if len(lines) < rounds { // all of them, while all is well: they are few
				t.Errorf("status %d: %s", w.Code, testkit.Brief(w.Body.Bytes()))
			}
		}
		lines[w.Body.String()] = true
	}
	for range rounds {
		f.acquire = randomAnswer(r, codes)
		keep(ask("POST", aLock+"?format=env&owner=me", ""))
		json := ask("POST", aLock, "")
		if c, found := forbidden(json.Body.Bytes()); found {
			t.Errorf("%U is in %s", c, testkit.Brief(json.Body.Bytes()))
		}
		documents[json.Body.String()] = true
		// The request's own words, well formed and not.
		word := url.QueryEscape(hostile(r))
		keep(ask("POST", "/v1/locks/"+url.PathEscape(hostile(r))+"/leases?format=env", ""))
		keep(ask("POST", aLock+"?format=env&owner="+word+"&metadata="+url.QueryEscape(hostile(r))+"&hold="+url.QueryEscape(hostile(r)), ""))
		keep(ask("POST", aLock+"?"+word+"="+word+"&format=env", ""))
		keep(ask("POST", aLock+"?format=env", hostile(r)))
		keep(ask("PUT", "/v1/"+word+"?format=env", ""))
		if r.IntN(20) == 0 { // a stack is printed for each
			f.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) { panic(word) }
			keep(ask("POST", aLock+"?format=env", ""))
		}
		// What an older gateway has answered, or one that is mistaken.
		x, w := s.pool.Get().(*exchange), httptest.NewRecorder()
		req := httptest.NewRequestWithContext(t.Context(), "POST", aLock+"?format=env", nil)
		x.begin(w, req)
		x.operation = "Acquire"
		a := &fleet.Answer{Status: 200 + r.IntN(2)*209, Header: http.Header{"Content-Type": {[]string{"text/plain", "application/problem+json", hostile(r)}[r.IntN(3)]}}}
		a.Body = [][]byte{json.Body.Bytes(), []byte("LEASE_ID=a\nLEASE_TOKEN=" + hostile(r) + "\nFENCING_TOKEN=" + hostile(r)), []byte(hostile(r))}[r.IntN(3)]
		assert.NoError(t, s.forwarder.pass(x, a))
		keep(w)
	}
	t.Logf("%d answers as lines and %d as JSON differ", len(lines), len(documents))
	assert.That(t, len(documents) >= rounds*9/10, "of %d documents only %d differ: the words are not in them", rounds, len(documents))
	evaluate(t, keys(lines), false)
	var inWords, asCommand [][]byte
	for i, doc := range keys(documents) {
		inWords = append(inWords, append([]byte(": "), doc...)) // no command is looked for, which takes long
		if i%20 == 0 {
			asCommand = append(asCommand, doc)
		}
	}
	evaluate(t, inWords, false)
	evaluate(t, asCommand, true)

	// A table for people ends every shell's parsing in its first line, which is ours.
	var tables [][]byte
	for i := range 300 {
		names := []string{"deploy", "A=b", "if", "time", "coproc", "function", "a:b"}
		var table bytes.Buffer
		writeTable(&table, &locks.Lock{NS: "default", Name: names[i%len(names)], State: locks.LockHeld, Holders: hostileQueue(r), Waiters: hostileQueue(r)})
		if c, found := forbidden(bytes.NewBufferString(strings.NewReplacer("$", "", "`", "").Replace(table.String())).Bytes()); found {
			t.Errorf("%U is in %s", c, testkit.Brief(table.Bytes()))
		}
		tables = append(tables, table.Bytes())
	}
	for _, shell := range testkit.Shells {
		results, ran := testkit.Eval(t, shell, true, tables)
		for i, e := range results {
			if ran || e.Exit == 0 {
				t.Errorf("%s: exit %d, something ran: %v; %s", shell, e.Exit, ran, testkit.Brief(tables[i]))
				break
			}
		}
	}
}

func keys(set map[string]bool) (list [][]byte) {
	for text := range set {
		list = append(list, []byte(text))
	}
	return list
}

// evaluate gives the texts to each shell, with one behind them that runs something: it has to be noticed.
func evaluate(t *testing.T, texts [][]byte, mustFail bool) {
	t.Helper()
	for _, shell := range testkit.Shells {
		results, ran := testkit.Eval(t, shell, false, texts)
		if ran {
			t.Errorf("%s: something ran of %d texts, the first of them %s", shell, len(texts), testkit.Brief(texts[0]))
		}
		for i, e := range results {
			failed := mustFail || bytes.HasSuffix(texts[i], []byte("\nfalse\n"))
			if failed != (e.Exit != 0) {
				t.Errorf("%s: exit %d of %s", shell, e.Exit, testkit.Brief(texts[i]))
			}
			// An earlier lease does not stay.
			if bytes.HasPrefix(texts[i], []byte("LEASE_ID=")) && (e.LeaseID == "old" || e.LeaseToken == "old" || e.FencingToken == "old" || e.LeaseError == "old" || e.LeaseStatus == "old" ||
				failed && e.LeaseID+e.LeaseToken+e.FencingToken != "" || failed == (e.LeaseError == "")) {
				t.Errorf("%s: %+v is left by %s", shell, e, testkit.Brief(texts[i]))
			}
		}
		planted := append(texts[:len(texts):len(texts)], []byte(`{"owner":"$(canary)"}`))
		if _, ran := testkit.Eval(t, shell, false, planted[max(0, len(planted)-5):]); !ran {
			t.Errorf("%s: what runs is not noticed", shell)
		}
	}
}

// A script that holds one lock and fails to get another has no token of the first one left to act with.
func TestD2AnEarlierLeaseDoesNotSurviveAFailedEval(t *testing.T) {
	g := serve(t)
	first := g.send(t, "POST", aLock+"?format=env").Body
	g.acquire = refuse(&locks.Error{Code: locks.CodeHeldByOther, Holders: queue().Holders})
	second := g.send(t, "POST", aLock+"?format=env").Body
	both := append(append(bytes.Clone(first), "[ $LEASE_TOKEN = "+someToken+" ] || canary\n"...), second...)
	for _, shell := range testkit.Shells {
		results, ran := testkit.Eval(t, shell, false, [][]byte{first, both})
		want := []testkit.Evaluated{{LeaseID: someID, LeaseToken: someToken, FencingToken: "8589934592", LeaseStatus: "201"}, {Exit: 1, LeaseError: "held_by_other", LeaseStatus: "409"}}
		assert.That(t, !ran && len(results) == 2 && results[0] == want[0] && results[1] == want[1], "%s: %+v", shell, results)
	}
}
