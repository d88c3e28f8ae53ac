package auth

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/test/assert"
)

// from shows a credential as a client of that address.
func (s *scene) from(address, text string) *Error {
	r := httptest.NewRequest(http.MethodGet, "/v1/locks", nil)
	r.RemoteAddr = address
	r.Header.Set("Authorization", "Bearer "+text)
	_, err := s.Authenticate(r)
	wrong, _ := errors.AsType[*Error](err)
	return wrong
}

// A JWT that another key has signed costs a signature check, and so does the next one of its address: after ten of them, and two in
// a second, none is made.
func TestAnAddressMayShowFewWrongJWTs(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		stranger := &signer{"e1", ecKey().alg, otherECKey().private}
		forged := func(i int) string { return stranger.sign(t, s.issuer.url, claims{"sub": fmt.Sprint(i)}) }
		known := ecKey().sign(t, s.issuer.url, claims{"sub": "known"})
		assert.That(t, s.from("192.0.2.1:1", known) == nil, "a good one is refused")
		for i := range 10 {
			wrong := s.from("192.0.2.1:1", forged(i))
			assert.Must(t, wrong != nil && !wrong.TooMany, "%d: %+v", i, wrong)
		}
		fresh := ecKey().sign(t, s.issuer.url, claims{"sub": "fresh"})
		for _, text := range []string{forged(11), fresh} {
			wrong := s.from("192.0.2.1:2", text)
			assert.Must(t, wrong != nil && wrong.TooMany && wrong.RetryAfter == 500*time.Millisecond, "%+v", wrong)
		}
		assert.That(t, s.from("192.0.2.1:1", known) == nil, "one that is remembered needs no check")
		assert.That(t, s.from("192.0.2.1:1", "lkt_a") == nil, "an API token needs no check")
		assert.That(t, s.from("192.0.2.2:1", fresh) == nil, "another address")
		wrong := s.from("192.0.2.1:1", "lkt_wrong")
		assert.That(t, wrong != nil && !wrong.TooMany, "%+v", wrong)
		time.Sleep(500 * time.Millisecond)
		assert.That(t, s.from("192.0.2.1:1", ecKey().sign(t, s.issuer.url, claims{"sub": "later"})) == nil, "a good one later")
		wrong = s.from("192.0.2.1:1", forged(12))
		assert.Must(t, wrong != nil && !wrong.TooMany, "a good one used the place up: %+v", wrong)
	})
}

// They may all come at once.
func TestAnAddressMayShowFewWrongJWTsAtOnce(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		stranger := &signer{"e1", ecKey().alg, otherECKey().private}
		assert.That(t, s.from("192.0.2.1:1", ecKey().sign(t, s.issuer.url, nil)) == nil, "a good one, with which the keys are read")
		for range cap(s.guesses.checking) {
			s.guesses.checking <- struct{}{} // until all of them wait for a place
		}
		var checked atomic.Int64
		var all sync.WaitGroup
		for i := range 100 {
			text := stranger.sign(t, s.issuer.url, claims{"sub": fmt.Sprint(i)})
			all.Go(func() {
				if wrong := s.from("192.0.2.1:1", text); wrong != nil && !wrong.TooMany {
					checked.Add(1)
				}
			})
		}
		synctest.Wait()
		for range cap(s.guesses.checking) {
			<-s.guesses.checking
		}
		all.Wait()
		assert.That(t, checked.Load() >= 10 && checked.Load() < int64(10+cap(s.guesses.checking)), "%d were checked", checked.Load())
	})
}

// Jobs go on showing their JWTs when these have expired: that must not shut out the jobs that begin behind the same address.
func TestExpiredJWTsAreNoGuesses(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		for i := range 100 {
			wrong := s.from("192.0.2.1:1", ecKey().sign(t, s.issuer.url, claims{"sub": fmt.Sprint(i), "exp": time.Now().Unix() - 60}))
			assert.Must(t, wrong != nil && !wrong.TooMany && wrong.Detail == hasExpired().Detail, "%d: %+v", i, wrong)
		}
		assert.That(t, s.from("192.0.2.1:1", ecKey().sign(t, s.issuer.url, nil)) == nil, "a good one is refused")
		for range cap(s.guesses.checking) { // no place is left for a signature check: it would never end
			s.guesses.checking <- struct{}{}
		}
		wrong := s.from("192.0.2.1:1", ecKey().sign(t, s.issuer.url, claims{"exp": time.Now().Unix() - 60}))
		assert.That(t, wrong != nil && wrong.Detail == hasExpired().Detail, "%+v", wrong)
	})
}

func TestAnAddressThatIsRefusedAllTheTimeIsToldOnceInAWhile(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		told := func(address string) (n int) {
			for range 100 {
				if !s.from(address, "lkt_wrong").Repeated {
					n++
				}
			}
			return n
		}
		assert.Equal(t, told("[2001:db8::1]:1"), 11, "ten, and one for the rest")
		assert.Equal(t, told("[2001:db8::2]:1"), 0, "the same network")
		assert.Equal(t, told("192.0.2.1:1"), 11, "another address")
		time.Sleep(time.Minute)
		assert.Equal(t, told("[2001:db8::1]:1"), 11, "a minute later")
	})
}

func TestSignatureChecksLeaveProcessorsToOthers(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		for range cap(s.guesses.checking) {
			s.guesses.checking <- struct{}{}
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+ecKey().sign(t, s.issuer.url, nil))
		done := make(chan error)
		go func() { _, err := s.Authenticate(r); done <- err }()
		select {
		case err := <-done:
			t.Fatalf("it was checked beside the others: %v", err)
		case <-time.After(time.Minute):
		}
		<-s.guesses.checking
		assert.NoError(t, <-done)
	})
}

func BenchmarkAWrongCredential(b *testing.B) {
	for name, text := range map[string]string{"token": "lkt_wrong", "nonsense": "x"} {
		b.Run(name, func(b *testing.B) {
			g := newGuesses()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer "+text)
			a := &Authenticator{guesses: g, opt: Options{Tokens: &fakeTokens{records: map[string]*token.Record{}}}}
			a.now.Store(&inForce{})
			b.ReportAllocs()
			for b.Loop() {
				_, _ = a.Authenticate(r)
			}
		})
	}
}
