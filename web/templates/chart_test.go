package templates

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

func hourOf(values ...float64) Chart {
	return Chart{ID: "c", Title: "Grants", Unit: "/s", From: noon.Add(-time.Hour), To: noon, Values: values}
}

func TestTheAxisOfAChartEndsAtANumberThatPeopleSay(t *testing.T) {
	for most, want := range map[float64]string{0.0003: "0.0004", 0.05: "0.06", 0.7: "0.8", 1: "1", 1.01: "2", 3: "4", 7.9: "8", 9: "10", 12: "20", 812: "1,000", 12345: "20,000"} {
		p := plot(hourOf(most))
		assert.That(t, len(p.Ticks) == 3 && p.Ticks[2].Text == want+"/s" && p.Ticks[2].Y == 0, "for %v: %+v, want %s", most, p.Ticks, want)
	}
	for most, want := range map[float64]string{0.004: "4 ms", 0.9: "1 s", 3: "4 s", 31: "1 min", 61: "2 min", 300: "10 min", 3700: "2 h", 90000: "2 d"} {
		c := hourOf(most)
		c.Unit = ""
		p := plot(c)
		assert.That(t, len(p.Ticks) == 3 && p.Ticks[2].Text == want, "for %v s: %+v, want %s", most, p.Ticks, want)
	}
	assert.Equal(t, fmt.Sprint(timesOf(time.Hour), timesOf(7*24*time.Hour)), "[1 h ago 30 min ago now] [7 d ago 3 d 12 h ago now]")
}

func TestBarsAreAsHighAsTheirValues(t *testing.T) {
	p := plot(hourOf(0, 1, 2, -1))
	assert.Equal(t, p.Bars, "M251 120v-60h248v60zM501 120v-120h248v120z", "none of what is not known")
	assert.That(t, strings.Contains(plot(hourOf(0.001, 100)).Bars, "v-1.5"), "little is not seen at all")
}

func TestAnEmptyChartSaysSoAndAPointIsABar(t *testing.T) {
	for _, c := range []Chart{hourOf(), hourOf(0, 0), hourOf(-1)} {
		p := plot(c)
		assert.That(t, p.Empty && p.Bars == "" && len(p.Ticks) == 1 && p.Ticks[0].Text == "0/s", "%+v", p)
		assert.That(t, strings.Contains(render(chart(c)), "nothing in this time"), "it does not say so")
	}
	assert.Equal(t, plot(hourOf(3)).Bars, "M1 120v-90h998v90z")
}

func TestGapsAreHatched(t *testing.T) {
	c := hourOf(1, 1, 1, 1)
	c.Gaps = []Gap{{From: noon.Add(-2 * time.Hour), To: noon.Add(-30 * time.Minute)}, {From: noon.Add(-15 * time.Minute), To: noon.Add(-15*time.Minute + time.Second)},
		{From: noon.Add(-3 * time.Hour), To: noon.Add(-2 * time.Hour)}, {From: noon, To: noon.Add(time.Hour)}}
	assert.Equal(t, fmt.Sprint(plot(c).Gaps), "[{0 500} {750 3}]", "cut at the edges, wide enough to be seen, none outside")
	drawn := render(chart(c))
	assert.That(t, strings.Count(drawn, `fill="url(#c-hatch)"`) == 2 && strings.Contains(drawn, `id="c-hatch"`), "%s", drawn)
}

func TestAChartSaysInWordsWhatItShows(t *testing.T) {
	c := hourOf(1)
	c.Summary = "0.5 a second in the mean"
	drawn := render(chart(c))
	assert.That(t, strings.Contains(drawn, `aria-describedby="c-sum"`) && strings.Contains(drawn, `<span id="c-sum">0.5 a second in the mean</span>`), "%s", drawn)
	assert.That(t, !strings.Contains(drawn, "style="), "the content security policy lets no style through")
}
