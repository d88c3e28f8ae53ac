package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

func anySender(string) bool { return true }

func receiver() *received { return &received{senders: map[senderKey]*receivedFrom{}} }

func TestARequestPassesOnceForEachSender(t *testing.T) {
	r := receiver()
	for i, c := range []struct {
		from, sender string
		number       uint64
		err          error
	}{
		{"one", "a", 1, nil}, {"one", "a", 1, ErrRepeated}, {"one", "a", 2, nil},
		{"two", "b", 1, nil}, {"one", "b", 1, nil}, {"one-again", "a", 1, nil}, // each has numbers of its own
		{"one", "a", 0, ErrRepeated}, {"one", "a", 2, ErrRepeated},
		{"one", "a", windowSize + 3, nil}, {"one", "a", 2, ErrRepeated}, {"one", "a", 3, ErrRepeated}, {"one", "a", windowSize + 2, nil},
	} {
		err := r.take(&Seal{From: c.from, Sender: c.sender, Number: c.number}, anySender)
		assert.That(t, errors.Is(err, c.err), "%d: %+v: %v", i, c, err)
	}
}

func TestANewSenderMustBeRegisteredAndAKnownOneNeedNot(t *testing.T) {
	r := receiver()
	registered := map[string]bool{"one": true}
	is := func(gateway string) bool { return registered[gateway] }
	take := func(from string, number uint64) error {
		return r.take(&Seal{From: from, Sender: from, Number: number}, is)
	}
	assert.ErrorIs(t, take("two", 1), ErrUnknownSender, "a stranger")
	assert.That(t, len(r.senders) == 0, "a stranger is remembered")
	registered["two"] = true
	assert.Nil(t, take("two", 1), "once it is registered")
	delete(registered, "two") // it is cut off from ZooKeeper
	assert.Nil(t, errors.Join(take("two", 2), take("two", 3)), "a sender that is known")
	assert.ErrorIs(t, take("two", 2), ErrRepeated, "repeated")
}

// What is forgotten does not come back, and what is registered is not forgotten.
func TestTheSendersThatAreRememberedAreBounded(t *testing.T) {
	r := receiver()
	registered := map[string]bool{}
	is := func(gateway string) bool { return registered[gateway] }
	take := func(from string, number uint64) error {
		return r.take(&Seal{From: from, Sender: "a", Number: number}, is)
	}
	name := func(i int) string { return fmt.Sprint("gateway-", i) }
	for i := range maxSenders {
		registered[name(i)] = true
		assert.NoError(t, take(name(i), 1))
	}
	registered["new"] = true
	err := take("new", 1)
	assert.Must(t, errors.Is(err, ErrUnknownSender) && len(r.senders) == maxSenders, "one too many: %v", err)
	delete(registered, name(7))
	delete(registered, name(9))
	if err := errors.Join(take(name(7), 2), take("new", 1)); err != nil { // 9 was heard before 7
		t.Fatal(err)
	}
	assert.ErrorIs(t, take(name(9), 1), ErrUnknownSender, "a request of the sender that was forgotten, sent again")
	for _, i := range []int{0, 7, maxSenders - 1} {
		if err := take(name(i), 1); !errors.Is(err, ErrRepeated) {
			t.Errorf("%s, sent again: %v", name(i), err)
		}
	}
	assert.That(t, len(r.senders) == maxSenders, "%d are remembered", len(r.senders))
}

func TestOfManyCopiesAtOnceOnePasses(t *testing.T) {
	r := receiver()
	var passed atomic.Int32
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for n := range uint64(100) {
				if r.take(&Seal{From: "one", Sender: "a", Number: n + 1}, anySender) == nil {
					passed.Add(1)
				}
			}
		})
	}
	all.Wait()
	assert.That(t, passed.Load() == 100, "%d passed", passed.Load())
}

// taker answers like a gateway of the fleet that takes each request once.
type taker struct {
	received *received
	mu       sync.Mutex
	numbers  []uint64
	refused  []error
}

func (k *taker) serve(t *testing.T, keys *Keys) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seal, err := keys.Open(r, body)
		if err == nil {
			err = k.received.take(seal, anySender)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if err != nil {
			k.refused = append(k.refused, err)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		k.numbers = append(k.numbers, seal.Number)
		keys.CloseAnswer(seal, http.StatusOK, plain(w.Header()), body)
		_, _ = w.Write(body)
	}
}

// net/http sends a GET, or a request with an Idempotency-Key, once more when the connection that it had kept turns out to be closed.
// The first one may have been received: were the second the same, it would be refused.
func TestWhatTheTransportSendsOnceMoreIsSealedOnceMore(t *testing.T) {
	keys, k := keysOf(t, first), &taker{received: receiver()}
	answer := k.serve(t, keys)
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%2 == 0 { // the second request of a connection: it is received, and nothing is answered
			answer(httptest.NewRecorder(), r)
			nc, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = nc.Close()
			return
		}
		answer(w, r)
	}))
	defer server.Close()
	f := New(Options{Secret: secret, Self: func() (string, int64) { return "one", 1 }})
	defer f.Close()
	send := func(q Request) error {
		q.Address, q.Timeout, q.Seal = server.URL, 10*time.Second, Seal{To: "two"}
		_, err := f.Send(t.Context(), &q)
		return err
	}
	for name, q := range map[string]Request{
		"a GET":                  {Method: "GET", URI: "/v1/leases/x"},
		"with a key":             {Method: "POST", URI: "/v1/locks/a/leases", Header: http.Header{"Idempotency-Key": {"0123456789abcdef"}}},
		"with a key and a body":  {Method: "POST", URI: "/v1/locks/a/leases", Header: http.Header{"Idempotency-Key": {"0123456789abcdef"}}, Body: []byte("{}")},
		"once more with nothing": {Method: "GET", URI: "/v1/leases/y"},
	} {
		f.Close()
		asked.Store(0)
		k.numbers = nil
		assert.Nil(t, errors.Join(send(q), send(q)), "%s", name)
		assert.That(t, asked.Load() == 3 && len(k.numbers) == 3 && len(k.refused) == 0,
			"%s: %d requests came with the numbers %v, refused: %v", name, asked.Load(), k.numbers, k.refused)
	}
	// What may not be repeated is not.
	f.Close()
	asked.Store(0)
	var failed *SendError
	q := Request{Method: "POST", URI: "/v1/leases/self/heartbeat", Body: []byte("{}")}
	if err := errors.Join(send(q), send(q)); !errors.As(err, &failed) || !failed.Sent || asked.Load() != 2 {
		t.Errorf("a POST without a key: %v after %d requests", err, asked.Load())
	}
}

// A request that waits for a connection gets its number when it has one: those that overtake it do not push it out of the window.
func TestARequestIsNumberedWhenItIsSent(t *testing.T) {
	keys, k := keysOf(t, first), &taker{received: receiver()}
	server := httptest.NewServer(k.serve(t, keys))
	defer server.Close()
	dialling, dial := make(chan struct{}), make(chan struct{})
	var dials atomic.Int32
	f := New(Options{Secret: secret, Self: func() (string, int64) { return "one", 1 }})
	defer f.Close()
	connect := f.waits.DialContext
	f.waits.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			close(dialling)
			<-dial
		}
		return connect(ctx, network, address)
	}
	send := func(waits bool) error {
		_, err := f.Send(t.Context(), &Request{Address: server.URL, Method: "GET", URI: "/", Waits: waits, Timeout: 30 * time.Second, Seal: Seal{To: "two"}})
		return err
	}
	late := make(chan error, 1)
	go func() { late <- send(true) }()
	<-dialling
	for range 10 {
		assert.NoError(t, send(false))
	}
	close(dial)
	assert.NoError(t, <-late)
	want := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	assert.That(t, slices.Equal(k.numbers, want), "the numbers came as %v", k.numbers)
}

func TestAFleetIsKnownByItsLastSession(t *testing.T) {
	keys := keysOf(t, first)
	var from []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seal, err := keys.Open(r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		from = append(from, fmt.Sprint(seal.From, " ", seal.Registered))
		keys.CloseAnswer(seal, 200, plain(w.Header()), nil)
	}))
	defer server.Close()
	var self identity
	f := New(Options{Secret: secret, Self: func() (string, int64) { return self.gateway, self.registered }})
	defer f.Close()
	send := func(is identity) error {
		self = is
		_, err := f.Send(t.Context(), &Request{Address: server.URL, Method: "GET", URI: "/", Timeout: 10 * time.Second, Seal: Seal{To: "two"}})
		return err
	}
	var failed *SendError
	err := send(identity{})
	assert.That(t, errors.As(err, &failed) && !failed.Sent && errors.Is(err, ErrNoSession), "before the first session: %v", err)
	for _, is := range []identity{{"one", 7}, {"one", 9}, {}, {"another", 12}, {}} {
		assert.NoError(t, send(is))
	}
	assert.Equal(t, strings.Join(from, ", "), "one 7, one 7, one 7, another 12, another 12", "it was")
}
