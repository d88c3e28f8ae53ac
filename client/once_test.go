package client

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// done answers acquires as a gateway does that knows the work of the period as done.
func done(g *gateway) between {
	return between{g, func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Idempotency-Key") == "" {
			return nil, nil
		}
		return answer(200, map[string]any{"done": true, "lock": "x", "period": "2026-11-22", "by": "w2", "at": "2026-11-22T03:00:00Z"})
	}}
}

func TestWorkOfAPeriodThatIsDoneIsNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t)
		c.http.Transport = done(g)
		never := func(context.Context, *Lease) error { return errors.New("the work was run") }
		var told []Done
		once := []Option{OncePer(24 * time.Hour), OnDone(func(d Done) { told = append(told, d) })}

		assert.NoError(t, c.Do(t.Context(), "x", never, once...))
		assert.NoError(t, c.DoAll(t.Context(), []Lock{{Name: "x"}}, never, once...))
		assert.NoError(t, c.Elect(t.Context(), "x", never, once...))
		_, err := c.TryAcquire(t.Context(), "x", once...)
		var d *Done
		assert.Must(t, errors.As(err, &d), "%v", err)
		assert.Equal(t, *d, Done{Lock: "x", Period: "2026-11-22", By: "w2", At: time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)})
		assert.Equal(t, err.Error(), "lockkeeper: x is done in this period by w2 at 2026-11-22T03:00:00Z")
		assert.Equal(t, len(told), 4)
		assert.Equal(t, len(g.requests), 0, "requests beside the acquires")
	})
}

// A Done that the work itself returns is an error of the work.
func TestADoneOfAnotherLockIsTheErrorOfTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := newGateway().client(t).Do(t.Context(), "x", func(context.Context, *Lease) error { return &Done{Lock: "y"} })
		assert.That(t, errors.As(err, new(*Done)), "%v", err)
	})
}

func TestOnlyAFailureIsToldAndOnlyWhereTheReleaseCounts(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		opts  []Option
		ends  func(*Client, []Option) error
		query string
	}{
		{[]Option{OncePer(time.Hour), DoneOnRelease()}, doing(boom), "done=false"},
		{[]Option{OncePer(time.Hour), DoneOnRelease()}, doing(nil), ""},
		{[]Option{OncePer(time.Hour)}, doing(boom), ""},
		{nil, doing(boom), ""},
		{[]Option{OncePer(time.Hour), DoneOnRelease()}, panicking, "done=false"},
		{[]Option{OncePer(time.Hour), DoneOnRelease()}, byHand((*Lease).Release), ""},
		{[]Option{OncePer(time.Hour), DoneOnRelease()}, byHand((*Lease).ReleaseUndone), "done=false"},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway()
			client := g.client(t)
			query := "no release"
			client.http.Transport = between{g, func(r *http.Request) (*http.Response, error) {
				if r.Method == "DELETE" {
					query = r.URL.RawQuery
				}
				return nil, nil
			}}
			_ = c.ends(client, c.opts)
			assert.Equal(t, query, c.query)
		})
	}
}

func doing(err error) func(*Client, []Option) error {
	return func(c *Client, opts []Option) error {
		return c.Do(context.Background(), "x", func(context.Context, *Lease) error { return err }, opts...)
	}
}

func panicking(c *Client, opts []Option) error {
	defer func() { _ = recover() }()
	return c.Do(context.Background(), "x", func(context.Context, *Lease) error { panic("boom") }, opts...)
}

func byHand(release func(*Lease, context.Context) error) func(*Client, []Option) error {
	return func(c *Client, opts []Option) error {
		lease, err := c.Acquire(context.Background(), "x", opts...)
		if err != nil {
			return err
		}
		return release(lease, context.Background())
	}
}
