package httpapi

import (
	"context"
	"io"
	"net/http"
	"testing"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// rawAnswer is a response without the checks of the API description, for answers that no client can cause.
type rawAnswer struct {
	status int
	header http.Header
	body   []byte
}

func rawRequest(t *testing.T, g *gateway, method, path string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(g.ctx, method, g.url+path, nil)
	assert.NoError(t, err)
	req.Header.Set("Lease-Token", someToken)
	return req
}

func rawSend(t *testing.T, req *http.Request) rawAnswer {
	t.Helper()
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	assert.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	assert.NoError(t, err)
	return rawAnswer{response.StatusCode, response.Header, body}
}

func refuse(e *locks.Error) func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
	return func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		return locks.AcquireResult{}, e
	}
}
