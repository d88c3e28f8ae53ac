package templates

import (
	"strings"
	"testing"

	"golang.org/x/net/html"

	"lockkeeper/internal/test/assert"
)

func TestOnlyHonestAddressesAreLinks(t *testing.T) {
	for text, want := range map[string]string{
		`{"job":"https://ci.example.com/job/7?a=b&c=d#e"}`: "https://ci.example.com/job/7?a=b&c=d#e",
		"see http://10.0.0.1:8080/x, and (https://a.b/c).": "http://10.0.0.1:8080/x https://a.b/c",
		"http://[2001:db8::1]/x":                           "http://[2001:db8::1]/x",
		"javascript:alert(1)":                              "",
		"JavaScript://%0aalert(1)":                         "",
		"data:text/html,<script>alert(1)</script>":         "",
		"vbscript:x file:///etc/passwd ftp://a.b/":         "",
		"https://user:secret@evil.example/":                "",
		"https://ci.example.com@evil.example/":             "",
		"https://ci.example.com%40evil.example/":           "",
		"https://":                                         "",
		"https:///etc":                                     "",
		"http://аpple.com/":                                "", // the first letter is Cyrillic
		`https://ci.example\u{202e}moc.live/`:              "https://ci.example",
		"https://a.b/\"onmouseover=alert(1)":               "https://a.b/",
		"https://a.b/'><img src=x onerror=alert(1)>":       "https://a.b/",
		"https://a.b/javascript:alert(1)":                  "https://a.b/javascript:alert(1", // a path; a bracket at the end is the text's
		"xhttps://a.b/":                                    "https://a.b/",
	} {
		var links []string
		whole := ""
		for _, p := range Linked(text) {
			whole += p.Text
			if p.Link {
				links = append(links, p.Text)
			}
		}
		assert.Equal(t, strings.Join(links, " "), want, "the links of %q", text)
		assert.Equal(t, whole, text, "nothing of the text is lost")
	}
	assert.Equal(t, len(linksOf(strings.Repeat("https://a.b/1 https://a.b/2 https://a.b/3 https://a.b/4 ", 100))), 3, "links above the text")
	links := 0
	for _, p := range Linked(strings.Repeat("https://a.b/1 ", 500)) {
		if p.Link {
			links++
		}
	}
	assert.Equal(t, links, maxLinks, "links in the text")
}

// attacks on a page through metadata.
const attack = `{"a":"javascript:alert(1)","b":"https://x.example/\"><script>alert(2)</script>","c":"https://u:p@evil.example/","d":"https://ci.example.com/7"}`

func TestALinkShowsWhereItLeadsAndTellsTheOtherSiteNothing(t *testing.T) {
	v := lockSample(noon, 3)
	v.Holders[0].Metadata, v.Waiters[0].Metadata = attack, attack
	found := 0
	for _, e := range elements(parse(t, render(LockPage(v)))) {
		href, _ := attr(e, "href")
		assert.That(t, !strings.HasPrefix(strings.ToLower(href), "javascript:") && !strings.Contains(href, "evil.example"), "a link to %s", href)
		assert.That(t, e.Data != "script" || e.FirstChild == nil, "a script of the attacker's")
		if e.Data != "a" || !strings.HasPrefix(href, "http") {
			continue
		}
		found++
		rel, _ := attr(e, "rel")
		assert.That(t, rel == "noreferrer nofollow" && text((*html.Node)(e)) == href, "%s says %q, rel %q", href, text(e), rel)
	}
	assert.Equal(t, found, 8, "links: two of each contender, above its metadata and in it")
}
