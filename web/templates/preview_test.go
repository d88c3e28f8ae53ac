package templates

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/web/static"
)

// contentSecurityPolicy is the strictest that the pages work under.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// previewHandler serves the samples as a gateway would: live, and with a push
// every second in which the queue moves.
func previewHandler(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/", api)
	mux.Handle(static.Prefix, static.Handler())
	start := time.Now()
	push := func(n int) []byte {
		list := overviewSample(start)
		list.Status.Now = time.Now()
		list.Rows = list.Rows[n%3:]
		lock := lockSample(start, 12)
		lock.Waiters = lock.Waiters[n%3:]
		return []byte(render(StatusFragment(list.Status)) + render(LocksFragment(list)) + render(QueueFragment(lock)) + render(HistoryFragment(lock)))
	}
	mux.HandleFunc("/ui/poll", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "still" {
			_, _ = w.Write(push(0))
		}
	})
	mux.HandleFunc("/ui/live", func(w http.ResponseWriter, r *http.Request) {
		if os.Getenv("LOCKKEEPER_PREVIEW_NOSOCKET") != "" {
			http.Error(w, "no socket here", http.StatusServiceUnavailable)
			return
		}
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for n := 0; ; n++ {
			message := push(n)
			if r.URL.RawQuery == "still" {
				message = []byte(" ")
			}
			if conn.WriteMessage(websocket.TextMessage, message) != nil {
				return
			}
			time.Sleep(time.Second)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c, ok := samples(start)[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", contentSecurityPolicy)
		switch q := r.URL.Query().Get("q"); q {
		case "":
		case "refuse":
			w.WriteHeader(http.StatusUnprocessableEntity)
			c = ProblemPage(Problem{Page: page(start, "No"), Status: http.StatusUnprocessableEntity, Title: "The address is not valid", Detail: "No page shows this."})
		default:
			v := overviewSample(start)
			v.Query, v.Live = q, "/ui/live?q="+url.QueryEscape(q)
			v.Rows = v.Rows[:4]
			c = OverviewPage(v)
		}
		_ = c.Render(r.Context(), w)
	})
	return mux
}

// LOCKKEEPER_PREVIEW=localhost:8099 go test -run TestPreview -timeout 0 ./web/templates
// serves the samples until it is interrupted. With LOCKKEEPER_PREVIEW_NOSOCKET=1
// it refuses sockets, so that the pages poll.
func TestPreview(t *testing.T) {
	addr := os.Getenv("LOCKKEEPER_PREVIEW")
	if addr == "" {
		t.Skip("LOCKKEEPER_PREVIEW=host:port serves the sample pages there, for those who design them")
	}
	for path := range samples(time.Now()) {
		fmt.Printf("http://%s%s\n", addr, path)
	}
	t.Fatal(http.ListenAndServe(addr, previewHandler(new(fakeAPI))))
}
