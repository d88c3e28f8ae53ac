package sim

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"lockkeeper/internal/secret"
	"lockkeeper/internal/zk"
)

// Some plans rotate the fleet's secret, as often as they can: an operator begins a rotation at some gateway, and gateways come, go and
// are cut off meanwhile. Clients do what they do. A client that comes back after its lease has ended may be refused its token; one
// whose lease is there may not.

const (
	rotateFrom  = 400 // number of the operator
	droppedKeys = zk.DefaultRoot + zk.NodeRotation + "/dropped-"
)

func (g *gateway) secretTree() secret.Tree {
	return secret.Tree{Nodes: g.manager.Nodes(), Root: zk.DefaultRoot, Open: true}
}

// rotate begins rotations until the weather clears up.
func (w *world) rotate() {
	random := rand.New(rand.NewPCG(w.plan.Seed, rotateFrom))
	for !w.clearing.Load() {
		time.Sleep(time.Duration(random.Int64N(int64(4*time.Second))) + 13)
		g := w.gateways.pick(random)
		if g == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		s, err := g.secretTree().Begin(ctx, "the operator", time.Duration(random.IntN(3))*2*time.Second)
		cancel()
		if err == nil {
			w.trace("a rotation to %s begins at %s", s.Rotation.Key, g.name)
		}
	}
}

// refusedToken is what an answer means that a token is not genuine.
func (w *world) refusedToken(token string, a answer) (status int) {
	parts := strings.Split(token, ".")
	if !w.plan.Rotate || len(parts) < 2 {
		return a.status
	}
	for _, c := range w.audit.places(parts[1]) {
		if c.there() {
			w.violate("token: %s refuses that of %s, which is there", a.gateway, c.path)
		}
	}
	return http.StatusGone
}

// checkRotated waits until the last rotation is over, and counts them.
func (w *world) checkRotated() {
	if !w.plan.Rotate {
		return
	}
	random := rand.New(rand.NewPCG(w.plan.Seed, rotateFrom+1))
	var last secret.Status
	for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(time.Second + 17) {
		g := w.gateways.pick(random)
		if g == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		s, err := g.secretTree().Status(ctx)
		cancel()
		if last = s; err == nil && s.Rotation == nil {
			w.audit.mu.Lock()
			defer w.audit.mu.Unlock()
			w.rotations = w.audit.dropped
			return
		}
	}
	w.violate("token: the rotation does not get over: %+v %+v", last, last.Rotation)
}
