package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// measured is a table with made-up figures for these lines.
func measured(hot bool, clients ...int) *table {
	t := &table{samples: map[slot][]sample{}}
	for i, n := range clients {
		l := line{name: thousands(float64(n)) + " clients", work: work{clients: n, hot: hot}}
		for j, name := range append([]string{gatewaySide, embeddedSide, etcdSide, bareSide}, directSides...) {
			l.sides = append(l.sides, side{name: name})
			cycles := 1000*(i+1) + 100*j
			micros := time.Duration(cycles) * time.Microsecond
			t.samples[slot{i, name}] = []sample{{done: cycles, elapsed: time.Second, cost: cost{cpu: cpuTime{100 * micros, 50 * micros, 70 * micros}}}}
		}
		t.lines = append(t.lines, l)
	}
	return t
}

func TestEachChartIsAPictureWithItsTitleAndItsSides(t *testing.T) {
	b := &bench{ownTable: measured(false, 1, 16, 64, 256), hotTable: measured(true, 16, 64, 256), limitedTable: measured(false, 64)}
	for i, load := range openLoads {
		for _, name := range []string{gatewaySide, zkLockOwnSide} {
			r := &openResult{side: name, load: load, latency: newHistogram()}
			for v := range 1000 {
				assert.NoError(t, r.latency.RecordValue(int64(v*(i+1))))
			}
			b.opened = append(b.opened, r)
		}
	}
	all := assert.Value(b.charts())(t)
	assert.Equal(t, len(all), 5, "charts")
	for _, c := range all {
		text := string(c.svg)
		decoder := xml.NewDecoder(strings.NewReader(text))
		var err error
		for err == nil {
			_, err = decoder.Token()
		}
		assert.That(t, errors.Is(err, io.EOF), "%s is no SVG: %v", c.file, err)
		for _, want := range []string{"<svg", c.title, gatewaySide} {
			assert.That(t, strings.Contains(text, want), "%s does not show %q", c.file, want)
		}
		if dir := os.Getenv("LOCKKEEPER_BENCH_CHARTS"); dir != "" {
			assert.NoError(t, os.WriteFile(dir+"/"+c.file, c.svg, 0o600))
		}
	}
}

func TestABarChartNamesEachNumberOfClientsAndWhatIsNotMeasured(t *testing.T) {
	own := measured(false, 1, 16, 64, 256)
	own.lines[0].sides = only(own.lines[0].sides, gatewaySide, embeddedSide, etcdSide, zkLockSharedSide, curatorSharedSide)
	b := &bench{ownTable: own, hotTable: measured(true, 16, 64, 256)}
	for _, c := range assert.Value(b.charts())(t) {
		if c.file == "cost.svg" {
			continue
		}
		text := string(c.svg)
		for _, want := range []string{">16 clients<", ">64 clients<", ">256 clients<"} {
			assert.That(t, strings.Contains(text, want), "%s does not show %q", c.file, want)
		}
		remark := ">1 client: no bar for what is not measured there (" + zkLockOwnSide + "; " + curatorOwnSide + ")<"
		assert.Equal(t, strings.Contains(text, remark), c.file == "own.svg", "%s shows the remark", c.file)
		assert.Equal(t, strings.Contains(text, ">1 client<"), c.file == "own.svg", "%s shows one client", c.file)
		if dir := os.Getenv("LOCKKEEPER_BENCH_CHARTS"); dir != "" {
			assert.NoError(t, os.WriteFile(dir+"/remark-"+c.file, c.svg, 0o600))
		}
	}
}

func TestTheResultGoesIntoThePagesAndTheCharts(t *testing.T) {
	t.Chdir(t.TempDir())
	assert.NoError(t, os.MkdirAll("docs/operate", 0o700))
	for _, page := range []string{"BENCHMARKS.md", "docs/operate/capacity.md"} {
		assert.NoError(t, os.WriteFile(page, []byte("before\n"+beginMark+"\nold\n"+endMark+"\n"), 0o600))
	}
	b := &bench{ownTable: measured(false, 64), hotTable: measured(true, 16), limitedTable: measured(false, 64), observed: &observed{cycle: 200, elsewhere: 25},
		held:   []held{{leases: 1_000_000, resident: 2e9}},
		opened: []*openResult{{side: gatewaySide, load: 0.3, latency: newHistogram()}}}
	assert.NoError(t, b.write("the report\n"))
	page := string(assert.Value(os.ReadFile("BENCHMARKS.md"))(t))
	assert.That(t, strings.Contains(page, "the report\n"+endMark) && !strings.Contains(page, "old"), "BENCHMARKS.md is\n%s", page)
	for line := range strings.Lines(page) {
		if _, file, is := strings.Cut(strings.TrimSpace(line), "]("); is {
			_, err := os.Stat(strings.TrimSuffix(file, ")"))
			assert.Nil(t, err, "a chart of BENCHMARKS.md")
		}
	}
	page = string(assert.Value(os.ReadFile("docs/operate/capacity.md"))(t))
	assert.That(t, strings.Contains(page, "ten million leases"), "docs/operate/capacity.md is\n%s", page)
}
