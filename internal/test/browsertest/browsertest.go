// Package browsertest gives tests tabs in Chromium. It is test support; no shipped code may import it.
//
// All tabs of a test binary share one browser process, which the first of them starts: a start costs a second of processor
// time. Each tab has a browser context of its own, with its own cookies, storage, cache and window. A test that needs flags
// of its own gets a process of its own from Start.
//
// TestMain must run the tests through Wrap.
package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"lockkeeper/internal/test/assert"
)

// shared is the browser of the test binary. Its life is the binary's, so it is package state.
var shared struct {
	sync.Mutex
	ctx  context.Context
	stop func() error
}

// Tab opens a tab in a browser context of its own. Both end with the test.
func Tab(t testing.TB) context.Context {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.ctx == nil {
		ctx, stop, err := Launch()
		assert.NoError(t, err)
		shared.ctx, shared.stop = ctx, stop
	}
	ctx, cancel := chromedp.NewContext(shared.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	assert.NoError(t, chromedp.Do(ctx), "opening a tab")
	return ctx
}

// Wrap is for TestMain: its Run runs m, then ends the shared browser.
func Wrap(m interface{ Run() int }) interface{ Run() int } { return mainRun{m} }

type mainRun struct{ m interface{ Run() int } }

func (r mainRun) Run() int {
	code := r.m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.stop == nil {
		return code
	}
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		code = max(code, 1)
	}
	return code
}

// Start starts Chromium with an empty profile, further flags and one tab. It ends with the test.
func Start(t testing.TB, flags ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	ctx, stop, err := Launch(flags...)
	assert.NoError(t, err)
	t.Cleanup(func() { assert.Nil(t, stop()) })
	return ctx
}

// Launch is Start for what is no test; stop must be called.
func Launch(flags ...chromedp.ExecAllocatorOption) (ctx context.Context, stop func() error, err error) {
	profile, err := os.MkdirTemp("", "browsertest-")
	if err != nil {
		return nil, nil, fmt.Errorf("profile for chromium: %w", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.UserDataDir(profile), chromedp.DisableGPU, chromedp.NoSandbox,
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-quic", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("mute-audio", true))
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), append(options, flags...)...)
	ctx, _ = chromedp.NewContext(allocator) // canceled with its parent
	stop = func() error {
		err := chromedp.Cancel(ctx) // waits for the process, which writes to its profile
		cancel()
		if err != nil {
			err = fmt.Errorf("ending chromium: %w", err)
		}
		return errors.Join(err, os.RemoveAll(profile))
	}
	if err := chromedp.Do(ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("starting chromium: %w", err), stop())
	}
	return ctx, stop, nil
}
