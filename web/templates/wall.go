package templates

import "time"

// Wall is a screen of cards. Its fragment: "wall".
type Wall struct {
	Page
	Query   string
	Cards   []Card
	More    bool // there are locks that are not among them
	Problem string
}

// Card is a lock on the wall.
type Card struct {
	LockRow
	Waits   time.Time // since when the first in line waits; zero when nothing does, or it is not known
	TooLong bool
}

func (c Card) id() string { return domID("card", c.NS, c.Name) }

// firstHolder names one holder, and how many there are besides.
func (c Card) firstHolder() string {
	if len(c.Holders) == 0 {
		return ""
	}
	text := who(c.Holders[0])
	if rest := c.HolderCount - 1; rest > 0 {
		text += " +" + count(rest)
	}
	return text
}
