package metrics

import (
	"maps"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestAHandleIsLookedUpOnceAndCountsForAll(t *testing.T) {
	m := New("test")
	looked := map[request]int{}
	find := m.requests.find
	m.requests.find = func(r request) (c counter) { looked[r]++; return find(r) }
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				m.Request("Acquire", 201)
				m.Request("Acquire", 409)
				m.Request("", 404)
			}
		})
	}
	all.Wait()
	text := scrape(t, m)
	for _, line := range []string{`{operation="Acquire",status="201"} 8000`, `{operation="Acquire",status="409"} 8000`, `{operation="none",status="404"} 8000`} {
		assert.That(t, strings.Contains(text, "lockkeeper_http_requests_total"+line), "missing: %s", line)
	}
	want := map[request]int{{"Acquire", 201}: 1, {"Acquire", 409}: 1, {"none", 404}: 1}
	assert.That(t, maps.Equal(looked, want), "looked up: %v", looked)
}

func BenchmarkRequest(b *testing.B) {
	m := New("bench")
	b.ReportAllocs()
	for b.Loop() {
		m.Request("Acquire", 201)
	}
}
