package httpapi

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"lockkeeper/internal/locks"
)

// A lock that no lease could have made is addressed by its name, percent-encoded as every parameter of a
// path is, or by its directory.
func TestALockOfAnotherProgramIsAddressedByItsNameOrItsDirectory(t *testing.T) {
	g := serve(t)
	for path, name := range map[string]string{
		"deploy":                     "deploy",
		"my%2520lock%2520%25C3%25BC": "my%20lock%20%C3%BC",
		"my%20lock%20%C3%BC":         "my%20lock%20%C3%BC",
		"my%252520lock":              "my%2520lock",
		"%252Ehidden":                "%2Ehidden",
		".hidden":                    "%2Ehidden",
		"a,b":                        "a%2Cb",
		"a%2Cb":                      "a%2Cb",
		"a+b":                        "a+b",
		"a%2Bb":                      "a+b",
		strings.Repeat("long", 60):   strings.Repeat("long", 60),
	} {
		g.lock = func(_ context.Context, req locks.LockRequest) (locks.Lock, error) {
			return locks.Lock{NS: "default", Name: req.Lock, State: locks.LockFree, Rev: "0"}, nil
		}
		if a := g.send(t, "GET", "/v1/locks/"+path); a.Status != 200 || !strings.Contains(string(a.Body), fmt.Sprintf(`"lock":%q`, name)) {
			t.Errorf("%s: %d %s; want %s", path, a.Status, a.Body, name)
		}
		g.asked()
		for _, ask := range []struct{ method, what string }{
			{"POST", "/contenders/x-0000000001/break"}, {"POST", "/revoke"}, {"POST", "/reap?older_than=0s"}, {"POST", "/destroy"}, {"DELETE", ""}, {"GET", "/fence?fencing_token=1"},
		} {
			g.send(t, ask.method, "/v1/locks/"+path+ask.what)
			if calls := strings.Join(g.asked(), " "); !strings.Contains(calls, " "+name+" ") && !strings.Contains(calls, "Lock:"+name+" ") && !strings.HasSuffix(calls, " "+name) && !strings.HasSuffix(calls, "/"+name) {
				t.Errorf("%s %s%s asked %q", ask.method, path, ask.what, calls)
			}
		}
	}
}
