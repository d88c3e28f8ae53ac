package templates

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"lockkeeper/internal/test/assert"
)

// Times are by the browser's clock or in UTC, as its user chooses once for all pages, always with the zone; on hover they are both.
func TestTimesAreLocalOrInUTCAndOnHoverBoth(t *testing.T) {
	page, _ := browse(t, "/webhook")
	assert.Value(chromedp.Call(page.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"}))(t)
	run(page, chromedp.Reload())
	const created = `document.querySelector("#webhook-head time[data-date]")`
	shows := func(zone, button string) {
		t.Helper()
		page.until(created+`.textContent.endsWith("`+zone+`")`, "the time is in "+zone)
		page.until(`document.querySelector("#zone").innerText === "`+button+`" && document.querySelector("#zone").getAttribute("aria-label") === "Times: `+button+`"`, "the button says so")
	}
	shows("GMT+5:30", "Local")
	local := eval[string](page, created+`.textContent`)
	page.press("#zone")
	shows("UTC", "UTC")
	assert.That(t, eval[string](page, created+`.textContent`) != local, "the time is still %s", local)
	run(page, chromedp.Reload())
	shows("UTC", "UTC")
	title := eval[string](page, `(`+created+`.dispatchEvent(new Event("pointerover", {bubbles: true})), `+created+`.title)`)
	assert.That(t, strings.Contains(title, "GMT+5:30") && strings.Contains(title, eval[string](page, created+`.dateTime`)), "on hover: %q", title)
	page.press("#zone")
	shows("GMT+5:30", "Local")
	run(page, chromedp.Reload())
	shows("GMT+5:30", "Local")
}

// The timeline follows the switch, too: its period, axis, bars and list, the instant that is marked and the field for it. The address stays UTC.
func TestTheTimelineIsInTheChosenZone(t *testing.T) {
	page, _ := browse(t, "/lock-past")
	const first = `document.querySelector("#timeline [data-tick]")`
	const label = `[...document.querySelectorAll("#timeline [data-tick]")].map((e) => e.lastElementChild.textContent)`
	utc := eval[string](page, `document.querySelector(".timeline-at strong").dataset.utc`)
	at := eval[string](page, `document.querySelector("#past-at").defaultValue`)
	assert.Value(chromedp.Call(page.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"}))(t)
	run(page, chromedp.Reload())
	places := []string{".timeline-period", ".timeline-at strong", ".timeline-at li span", "#timeline .bar title", "#holds td[data-utc]", "#timeline-gaps li", ".hold-card dd[data-utc]", ".past-zone", ".timeline-legend time"}
	shows := func(zone string) {
		t.Helper()
		for _, place := range places {
			page.until(`document.querySelector("`+place+`").textContent.includes("`+zone+`")`, place+" is in "+zone)
		}
	}
	const instant = `new Date(document.querySelector("#past-at").value + "Z") - new Date(document.querySelector("#past-at").defaultValue + "Z")`
	shows("GMT+5:30")
	assert.Equal(t, eval[float64](page, instant), 5.5*3600_000, "the field")
	assert.Equal(t, eval[string](page, first+`.getAttribute("visibility")`), "hidden", "the first tick is half an hour earlier, beyond the axis")
	assert.Equal(t, eval[string](page, `document.querySelectorAll("#timeline [data-tick]")[6].getAttribute("x")`), "91.67%")
	local := eval[[]string](page, label)
	title := eval[string](page, `((e) => (e.dispatchEvent(new Event("pointerover", {bubbles: true})), e.title))(document.querySelector(".timeline-period"))`)
	assert.That(t, strings.Contains(title, "GMT+5:30") && strings.HasSuffix(title, " UTC)"), "on hover: %q", title)

	page.press("#zone")
	shows("UTC")
	assert.Equal(t, eval[float64](page, instant), 0.0, "the field in UTC")
	assert.Equal(t, eval[string](page, first+`.getAttribute("visibility")+document.querySelectorAll("#timeline [data-tick]")[6].getAttribute("x")`), "visible100.00%")
	assert.That(t, strings.Join(eval[[]string](page, label), " ") != strings.Join(local, " "), "the axis still has %s", local)
	assert.Equal(t, eval[string](page, `document.querySelector(".timeline-at strong").dataset.utc`)[:16], utc[:16])

	page.press("#zone")
	shows("GMT+5:30")
	page.press(".past-at .button")
	page.until(`document.readyState === "complete" && new URLSearchParams(location.search).get("at")`, "the form is sent")
	sent := eval[string](page, `new URLSearchParams(location.search).get("at")`)
	assert.That(t, strings.HasSuffix(sent, "Z") && strings.HasPrefix(sent, at[:13]), "the address has %s, the instant is %s in UTC", sent, at)
}
