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
