package main

import (
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestWithoutABrowserThePageIsNotMeasured(t *testing.T) {
	b := &bench{rig: &rig{}}
	b.reportPage(nil)
	report := b.report()
	targets, n := 0, 0
	for line := range strings.Lines(report) {
		if strings.HasPrefix(line, "| page, ") {
			targets++
			n += strings.Count(line, "| not measured |")
		}
	}
	assert.That(t, targets == 9 && n == targets && strings.Contains(report, "### The page\n\nnot measured: there is no Chromium here."), "%s", report)
}

func TestThePageIsReportedByItsTargets(t *testing.T) {
	b := &bench{rig: &rig{}}
	b.reportPage(&paged{browser: "Chrome 1", loads: []loaded{{"the overview", []float64{54_321}, []float64{0.01}}, {"a lock", []float64{61_000}, []float64{0.2}}}, shift: []float64{0.08}, hotShift: []float64{0.3},
		overview: kept{events: []float64{1000}, bytes: []float64{2_800}, processor: []float64{0.04}}, hot: kept{events: []float64{50}, bytes: []float64{11_900}, processor: []float64{0.16}}})
	report := b.report()
	for line, met := range map[string]string{"the overview: kB on the first load": "met", "a lock: kB on the first load": "**not met**", "a lock: layout shift": "**not met**",
		"1,000 events a second: kB/s": "met", "1,000 events a second: cores": "met", "50 events a second: cores": "**not met**", "200 events a second: layout shift in a minute": "met", "50 events a second: layout shift in a minute": "**not met**"} {
		found := ""
		for row := range strings.Lines(report) {
			if strings.Contains(row, line) {
				found = row
			}
		}
		assert.That(t, strings.HasSuffix(strings.TrimSpace(found), "| "+met+" |"), "%s is not %s: %q", line, met, found)
	}
	for _, figure := range []string{"| the overview | 54.3 | 0.010 |", "| 1,000 | 2.8 | 4.0 (4.0–4.0) |", "| 50 | 11.9 | 16.0 (16.0–16.0) |", "layout shift of 0.080", "has one of 0.300 in a minute"} {
		assert.That(t, strings.Contains(report, figure), "no %q in\n%s", figure, report)
	}
}
