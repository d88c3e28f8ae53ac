package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// caller is a client's HTTP: it knows the ways to the fleet, and takes another one when one does not lead on. It
// is written from the documentation.
type caller struct {
	ways []way
	way  int
	http *http.Client
	rng  *rand.Rand
}

func newCaller(ways []way, rng *rand.Rand) *caller {
	return &caller{ways: ways, way: rng.IntN(len(ways)), rng: rng, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}}}
}

// answer is what any request may be answered; what does not apply is empty.
type answer struct {
	status int // 0: there was none
	via    string

	LeaseID      string `json:"lease_id"`
	Token        string `json:"token"`
	Znode        string `json:"znode"`
	State        string `json:"state"`
	Reason       string `json:"reason"`
	FencingToken int64  `json:"fencing_token"`
	ExpiresInMS  int64  `json:"expires_in_ms"`
	Rev          string `json:"rev"`

	Code         string `json:"code"`
	RetryAfterMS int64  `json:"retry_after_ms"`

	Problem *struct {
		Status       int    `json:"status"`
		Code         string `json:"code"`
		Reason       string `json:"reason"`
		RetryAfterMS int64  `json:"retry_after_ms"`
	} `json:"problem"`
	Items []answer `json:"items"`

	body []byte
}

// ok says that the request was done as it was meant.
func (a *answer) ok() bool { return a.status >= 200 && a.status < 300 }

// again says that the request may be repeated, and should.
func (a *answer) again() bool { return a.status == 0 || a.status >= 500 }

// number is the last ten characters of its znode, plus one: in these queues nothing else is.
func (a *answer) number() int {
	if len(a.Znode) < 10 {
		return 0
	}
	n, err := strconv.Atoi(a.Znode[len(a.Znode)-10:])
	if err != nil {
		return 0
	}
	return n + 1
}

// send sends one request and takes what comes within the given time.
func (c *caller) send(ctx context.Context, within time.Duration, method, path, token, key string, body any) answer {
	a := answer{via: c.ways[c.way].name}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			panic("encoding a request: " + err.Error()) // strings only
		}
		content = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.ways[c.way].url+path, content)
	if err != nil {
		panic("making a request: " + err.Error()) // the paths are ours
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Lease-Token", token)
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		c.elsewhere()
		return a
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		c.elsewhere()
		return a
	}
	a.status, a.body = response.StatusCode, b
	if len(b) > 0 && json.Unmarshal(b, &a) != nil {
		a = answer{via: a.via, status: a.status} // of a proxy
		if a.ok() {
			a.status, a.Code = http.StatusInternalServerError, "unreadable"
		}
	}
	if a.again() {
		c.elsewhere()
	}
	return a
}

// elsewhere leaves the connections, behind which is always the same gateway, and as often as not the way.
func (c *caller) elsewhere() {
	c.http.CloseIdleConnections()
	c.way = c.rng.IntN(len(c.ways))
}

// pause is how long to wait before the request is repeated: what the answer says, at most a second here, for there are
// other gateways.
func (a *answer) pause() time.Duration {
	return min(max(time.Duration(a.RetryAfterMS)*time.Millisecond, 100*time.Millisecond), time.Second)
}

func (c *caller) close() { c.http.CloseIdleConnections() }
