package templates

import "strings"

// Drawing is the wait-for graph, as a picture. All of it stands beneath in words.
type Drawing struct {
	Width, Height int // in pixels
	Nodes         []DrawnParty
	Waits         []DrawnWait
	Parties       int // that are drawn
	AllParties    int // that wait, or are waited for
	MoreWaits     int // that are not drawn
	Cycles        int
}

// DrawnParty is a box with a name.
type DrawnParty struct {
	X, Y, Width, Height int
	Who                 Who
	Bad                 bool // it is in a cycle
}

// DrawnWait is a line with the name of a lock.
type DrawnWait struct {
	Path, Head     string // of SVG
	LabelX, LabelY int    // the end of the label
	Lock           string
	More           int // locks
	From, To       Who
	Bad            bool // it is in a cycle
}

// How many characters there is room for in a box, and over a line.
const (
	partyChars = 18
	lockChars  = 15
)

// shortened is as much of a text as there is room for.
func shortened(text string, room int) string {
	if runes := []rune(text); len(runes) > room {
		return string(runes[:room-1]) + "…"
	}
	return text
}

// label is the name of the lock, and how many others there are.
func (w *DrawnWait) label() string {
	if w.More == 0 {
		return shortened(w.Lock, lockChars)
	}
	more := " +" + count(w.More)
	return shortened(w.Lock, lockChars-len(more)) + more
}

// title says how much is drawn.
func (d *Drawing) title() string {
	title := counted(d.Parties, "party") + " that wait, or are waited for"
	if d.Parties != 1 {
		title = count(d.Parties) + " parties that wait, or are waited for"
	}
	if d.Cycles > 0 {
		title += ", with " + counted(d.Cycles, "cycle")
	}
	return title
}

// mostSaid is how many waits a drawing's description has: the list beneath has more.
const mostSaid = 20

// says is the drawing in words.
func (d *Drawing) says() string {
	var said []string
	for i := range min(len(d.Waits), mostSaid) {
		w := &d.Waits[len(d.Waits)-1-i] // the cycles are drawn last
		said = append(said, who(w.From)+" waits for "+who(w.To)+" in "+w.label()+".")
	}
	if more := len(d.Waits) - len(said); more > 0 {
		said = append(said, "And "+counted(more, "more wait")+".")
	}
	return strings.Join(said, " ")
}

// lacks says what is not drawn; "" when all is.
func (d *Drawing) lacks() string {
	switch {
	case d.AllParties > d.Parties:
		return "The drawing has " + count(d.Parties) + " of " + count(d.AllParties) +
			" parties: those in cycles first, then those that most others wait for."
	case d.MoreWaits > 0:
		return "The drawing lacks " + counted(d.MoreWaits, "wait") + "."
	}
	return ""
}
