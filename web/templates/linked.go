package templates

import (
	"net/url"
	"regexp"
	"strings"
)

// Piece is a part of a text: a link, or text.
type Piece struct {
	Text string
	Link bool
}

// maxLinks is how many links of a text are links; those beyond are text.
const maxLinks = 20

// addresses are what may be a link. A backslash ends it: characters that hide are written with one.
var addresses = regexp.MustCompile("https?://[^\\s\"'<>\\\\`{}|^]+")

// Linked finds the links in what a client wrote. A link is shown whole, as what it leads to: its text is its address. Only http and https
// are links, to a host that is written in ASCII, and without a user name or a password before it, which could pass for the host.
func Linked(text string) []Piece {
	var pieces []Piece
	add := func(s string, link bool) {
		if s != "" {
			pieces = append(pieces, Piece{s, link})
		}
	}
	at, links := 0, 0
	for _, found := range addresses.FindAllStringIndex(text, -1) {
		address := strings.TrimRight(text[found[0]:found[1]], ".,;:!?)]*")
		if links == maxLinks || !linkable(address) {
			continue
		}
		links++
		add(text[at:found[0]], false)
		add(address, true)
		at = found[0] + len(address)
	}
	add(text[at:], false)
	return pieces
}

func linkable(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	for i := range len(u.Host) {
		if c := u.Host[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`@\%`, c) >= 0 {
			return false
		}
	}
	return true
}

// linksOf are the first links of a text, each once.
func linksOf(text string) []string {
	const most = 3
	var links []string
	seen := map[string]bool{}
	for _, p := range Linked(text) {
		if p.Link && !seen[p.Text] && len(links) < most {
			seen[p.Text] = true
			links = append(links, p.Text)
		}
	}
	return links
}
