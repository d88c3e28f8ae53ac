package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// What the dashboard costs its viewers, in Chromium: bytes to load a page and to keep it up to date, processor time of the process that
// renders it, how far it jumps (layout shift, as the browser counts it; 0.1 is good), and how soon it shows a change.
const (
	pageLocks      = 5_000
	pageWaiters    = 60  // of the lock whose first load is measured
	hotPageWaiters = 100 // of the lock that goes from one to the next
	manyEvents     = 1_000
	someEvents     = 200
	hotEvents      = 50
	eventsOfStep   = 2 // a release and a grant
	eventsOfHand   = 3 // a release, a grant and one more that queues
	pageTurns      = 3 // of the length of a turn of other parts, for a figure of processor time
	shiftFor       = time.Minute
	pageCalm       = 1200 * time.Millisecond // a page at which nothing has happened for so long shows the next change at once
	pageSamples    = 30                      // of how soon a change is shown
	overviewPath   = "/"
)

// paged is what was measured, a figure for each round.
type paged struct {
	browser           string
	loads             []loaded
	overview, hot     kept
	shift             []float64 // of the overview in a minute, at someEvents
	hotShift          []float64 // of a hot lock, for a minute
	answered, painted []time.Duration
}

// loaded is the first load of a page.
type loaded struct {
	what         string
	bytes, shift []float64
}

// kept is what it takes to keep a page up to date.
type kept struct {
	events    []float64 // a second
	bytes     []float64 // a second
	processor []float64 // cores
}

func (b *bench) page(ctx context.Context) error {
	if _, err := exec.LookPath("chromium"); err != nil {
		b.reportPage(nil)
		return nil
	}
	b.endOne()
	defer b.rig.endAll()
	dir := filepath.Join(b.rig.dir, "page")
	if err := os.RemoveAll(dir); err != nil { // of a run that failed
		return fmt.Errorf("the store of the run before: %w", err)
	}
	g, err := b.rig.startGateway(ctx, "--data-dir", dir)
	if err != nil {
		return err
	}
	p, err := b.measurePage(ctx, g)
	if err != nil {
		return fmt.Errorf("%w\nthe end of the gateway's log:\n%s", err, g.logTail())
	}
	b.reportPage(p)
	return nil
}

func (b *bench) measurePage(ctx context.Context, g *gateway) (*paged, error) {
	locks, shiftOver, samples := pageLocks, shiftFor, pageSamples
	if b.small {
		locks, shiftOver, samples = 200, 2*time.Second, 3
	}
	chromium, err := startChromium(ctx)
	if err != nil {
		return nil, err
	}
	b.rig.atEnd(chromium.end)
	p := &paged{browser: chromium.version}
	many, err := holdMany(ctx, g.http, locks)
	if err != nil {
		return nil, err
	}
	if _, err := queueUp(ctx, g.http, "sixty", pageWaiters); err != nil {
		return nil, err
	}
	hot, err := queueUp(ctx, g.http, "hot", hotPageWaiters)
	if err != nil {
		return nil, err
	}

	b.progress(0)
	overview, err := chromium.open(ctx, g.http.base)
	if err != nil {
		return nil, err
	}
	for _, first := range []struct{ path, what string }{
		{overviewPath, fmt.Sprintf("the overview of %s locks", thousands(float64(locks)))},
		{"/locks/sixty", fmt.Sprintf("a lock with %d waiters", pageWaiters)},
	} {
		l, err := overview.load(ctx, first.path)
		if err != nil {
			return nil, err
		}
		l.what = first.what
		p.loads = append(p.loads, l)
	}
	if err := overview.visit(ctx, overviewPath); err != nil {
		return nil, err
	}
	err = while(ctx, func(ctx context.Context) error { return many.change(ctx, manyEvents) }, func(ctx context.Context) (err error) {
		p.overview, err = b.keptUp(ctx, overview, many.events)
		return err
	})
	if err != nil {
		return nil, err
	}
	// A minute with fewer events on the overview, beside the page of one lock.
	err = while(ctx, func(ctx context.Context) error { return many.change(ctx, someEvents) }, func(ctx context.Context) error {
		both, ctx := errgroup.WithContext(ctx)
		both.Go(func() error {
			shift, err := overview.shiftOver(ctx, shiftOver)
			p.shift = append(p.shift, shift)
			return err
		})
		both.Go(func() error { return b.lockPage(ctx, g, chromium, hot, p, samples) })
		return both.Wait()
	})
	return p, err
}

// lockPage measures the page of a hot lock, then how soon the page of a quiet one shows a grant.
func (b *bench) lockPage(ctx context.Context, g *gateway, chromium *chromium, hot *queued, p *paged, samples int) error {
	tab, err := chromium.open(ctx, g.http.base)
	if err != nil {
		return err
	}
	if err := tab.visit(ctx, "/locks/hot"); err != nil {
		return err
	}
	err = while(ctx, func(ctx context.Context) error { return hot.move(ctx, hotEvents) }, func(ctx context.Context) (err error) {
		began := time.Now()
		shift, err := tab.shiftWhile(ctx, func() (err error) {
			p.hot, err = b.keptUp(ctx, tab, hot.events)
			return err
		})
		p.hotShift = append(p.hotShift, shift/time.Since(began).Minutes())
		return err
	})
	if err != nil {
		return err
	}
	if err := tab.visit(ctx, "/locks/quiet"); err != nil {
		return err
	}
	client := g.http.locker("quiet")
	for i := range samples {
		if err := wait(ctx, pageCalm); err != nil {
			return err
		}
		client.acquireURL = fmt.Sprintf("%s/v1/locks/quiet/leases?ttl=30s&owner=viewer-%d", g.http.base, i)
		if err := tab.watchFor(ctx, fmt.Sprintf("viewer-%d", i)); err != nil {
			return err
		}
		if err := client.Lock(ctx); err != nil {
			return err
		}
		answered := time.Now()
		shown, painted, err := tab.seen(ctx)
		if err != nil {
			return err
		}
		p.answered = append(p.answered, max(0, shown.Sub(answered))) // a push may come before the answer
		p.painted = append(p.painted, max(0, painted.Sub(answered)))
		if err := client.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// keptUp measures a page that is kept up to date, once for each round.
func (b *bench) keptUp(ctx context.Context, tab *tab, events func() int64) (k kept, err error) {
	if err := wait(ctx, b.d); err != nil { // the browser compiles what it runs often
		return k, err
	}
	for range b.rounds {
		processor, err := tab.processor(ctx)
		if err != nil {
			return k, err
		}
		began, happened, sent := time.Now(), events(), tab.sent()
		if err := wait(ctx, pageTurns*b.d); err != nil {
			return k, err
		}
		after, err := tab.processor(ctx)
		if err != nil {
			return k, err
		}
		over := time.Since(began).Seconds()
		k.processor = append(k.processor, (after-processor)/over)
		k.bytes = append(k.bytes, float64(tab.sent()-sent)/over)
		k.events = append(k.events, float64(events()-happened)/over)
	}
	return k, nil
}

// while has load go on until f has returned.
func while(ctx context.Context, load, f func(context.Context) error) error {
	loading, stop := context.WithCancel(ctx)
	both, ctx := errgroup.WithContext(loading)
	both.Go(func() error {
		err := load(ctx)
		if loading.Err() != nil {
			return nil // it was told to end
		}
		return err
	})
	both.Go(func() error {
		defer stop()
		return f(ctx)
	})
	return both.Wait()
}

// reportPage reports what was measured; nil: there is no Chromium.
func (b *bench) reportPage(p *paged) {
	overview, lock := fmt.Sprintf("the overview of %s locks", thousands(pageLocks)), fmt.Sprintf("a lock with %d waiters", pageWaiters)
	many := fmt.Sprintf("%s, %s events a second", overview, thousands(manyEvents))
	hot := fmt.Sprintf("a hot lock with %d waiters, %d events a second", hotPageWaiters, hotEvents)
	var text strings.Builder
	if p != nil {
		p.write(&text, many, hot)
	} else {
		text.WriteString("not measured: there is no Chromium here.\n")
		p = &paged{loads: []loaded{{what: overview}, {what: lock}}}
	}
	for _, l := range p.loads {
		b.target("page, "+l.what+": kB on the first load", atMost, 60, scaled(l.bytes, 1e-3))
	}
	for _, l := range p.loads {
		b.target("page, "+l.what+": layout shift at load", atMost, 0.1, l.shift)
	}
	b.target(fmt.Sprintf("page, the overview, %d events a second: layout shift in a minute", someEvents), atMost, 0.1, p.shift)
	b.target("page, "+hot+": layout shift in a minute", atMost, 0.1, p.hotShift)
	b.target("page, "+many+": kB/s to a viewer", atMost, 30, scaled(p.overview.bytes, 1e-3))
	b.target("page, "+many+": cores of its renderer", atMost, 0.12, p.overview.processor)
	b.target("page, "+hot+": cores of its renderer", atMost, 0.15, p.hot.processor)
	b.section("The page", text.String())
}

func (p *paged) write(text *strings.Builder, many, hot string) {
	fmt.Fprintf(text, "In %s, from the embedded gateway, without a cache. Bytes are those that came over the network.\n\n", p.browser)
	text.WriteString("| first load | kB | layout shift |\n|---|---|---|\n")
	for _, l := range p.loads {
		fmt.Fprintf(text, "| %s | %.1f | %.3f |\n", l.what, over(l.bytes).median/1e3, over(l.shift).median)
	}
	text.WriteString("\n| kept up to date | events per second | kB/s to a viewer | its renderer, % of a core |\n|---|---|---|---|\n")
	for _, k := range []struct {
		what string
		kept
	}{{many, p.overview}, {hot, p.hot}} {
		cores := over(scaled(k.processor, 100))
		fmt.Fprintf(text, "| %s | %s | %.1f | %.1f (%.1f–%.1f) |\n", k.what, thousands(over(k.events).median), over(k.bytes).median/1e3,
			cores.median, cores.least, cores.greatest)
	}
	fmt.Fprintf(text, "\nIn a minute with %d events a second the overview has a layout shift of %.3f. The page of the hot lock has one of %.3f in a minute.\n",
		someEvents, over(p.shift).median, over(p.hotShift).median)
	slices.Sort(p.answered)
	slices.Sort(p.painted)
	fmt.Fprintf(text, "\nFrom the answer of an acquire until the quiet page of its lock has it: p50 %d ms, p95 %d ms; until it is painted: p50 %d ms, "+
		"p95 %d ms (%d acquires, beside that overview).\n",
		percentile(p.answered, 50).Milliseconds(), percentile(p.answered, 95).Milliseconds(),
		percentile(p.painted, 50).Milliseconds(), percentile(p.painted, 95).Milliseconds(), len(p.answered))
}

func scaled(rounds []float64, by float64) (s []float64) {
	for _, v := range rounds {
		s = append(s, v*by)
	}
	return s
}
