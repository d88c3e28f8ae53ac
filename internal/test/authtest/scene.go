package authtest

import (
	"fmt"
	"net/http"
	"path"
	"regexp"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// Scene is a lock of the shop, with what requests can be about.
type Scene struct {
	Lock   string
	Held   api.Lease // with its token
	Waiter api.Lease
	Ended  api.Lease // of another lock of the shop, released
	Free   string    // a lock of the shop that no client has
	Group  string    // of machines of the shop, to FleetLock
	Hook   string    // a webhook about all locks of the shop
	Asset  string    // path of a file that pages load
}

var asset = regexp.MustCompile(`/static/[^"/]+/app\.css`)

// NewScene makes a lock that is held at the first gateway. root may do everything.
func (w *World) NewScene(root *Caller, number int) *Scene {
	w.t.Helper()
	owner := w.Gateways[0]
	s := &Scene{Lock: fmt.Sprintf("shop:%d", number), Free: fmt.Sprintf("shop:%d-free", number), Group: fmt.Sprintf("shop.%d", number)}
	s.Held = w.Acquire(owner, root, s.Lock, "ttl=1h&owner=holder-of-scene&metadata=text-of-scene")
	s.Waiter = w.Acquire(owner, root, s.Lock, "ttl=1h&owner=waiter-of-scene&async=true")
	s.Ended = w.Acquire(owner, root, s.Lock+"-ended", "ttl=1h&owner=gone-of-scene")
	a := w.Send(owner, root, http.MethodDelete, "/v1/leases/self", apitest.Token(s.Ended.Token))
	assert.Must(w.t, a.Status == http.StatusNoContent, "%+v", a)
	a = w.Send(owner, root, http.MethodPost, "/v1/webhooks", apitest.JSON(`{"url":"https://hooks.example.com/x","locks":"shop:*"}`))
	assert.Must(w.t, a.Status == http.StatusCreated, "%+v", a)
	s.Hook = path.Base(a.Header.Get("Location"))
	s.Asset = asset.FindString(w.Send(owner, root, http.MethodGet, "/").Body)
	time.Sleep(time.Second) // a heartbeat now moves the deadline by a second
	w.Settle()
	return s
}

// Acquire takes a lock, or a place in its queue.
func (w *World) Acquire(at *Gateway, by *Caller, lock, query string, options ...apitest.Option) api.Lease {
	w.t.Helper()
	a := w.Send(at, by, http.MethodPost, "/v1/locks/"+lock+"/leases?"+query, options...)
	assert.Must(w.t, a.Status == http.StatusCreated || a.Status == http.StatusAccepted, "acquiring %s: %+v", lock, a)
	return a.Lease()
}

// End removes what is left of a scene.
func (w *World) End(root *Caller, s *Scene) {
	w.t.Helper()
	for _, lock := range []string{s.Lock, s.Lock + "-ended", s.Free, "fleetlock:" + s.Group} {
		a := w.Send(w.Gateways[0], root, http.MethodPost, "/v1/locks/"+lock+"/destroy", apitest.JSON(`{"reason":"the scene is over"}`))
		assert.Must(w.t, a.Status == http.StatusOK, "%+v", a)
	}
	a := w.Send(w.Gateways[0], root, http.MethodDelete, "/v1/webhooks/"+s.Hook)
	assert.Must(w.t, a.Status == http.StatusNoContent || a.Status == http.StatusNotFound, "%+v", a)
	w.Settle()
}
