package webhooks

import "strings"

// A glob is a name in which * stands for any characters, none included. Lock names
// have no stars, so there is nothing to escape. There is no other
// wildcard: the meaning of ? and [ ] differs between programs.

// maxStars bounds how many stars a glob has: matching costs at most that many searches.
const maxStars = 8

func checkGlob(field, glob string) error {
	switch {
	case len(glob) > MaxGlob || !printable(glob):
		return wrong(field, "must be at most %d bytes of text without control characters", MaxGlob)
	case strings.Count(glob, "*") > maxStars:
		return wrong(field, "must have at most %d stars", maxStars)
	case strings.ContainsAny(glob, "?[]{}\\/"):
		return wrong(field, "must have no wildcard but *, for any characters")
	}
	return nil
}

// match reports whether the whole name matches.
func match(glob, name string) bool {
	head, rest, starred := strings.Cut(glob, "*")
	if !starred {
		return glob == name
	}
	name, ok := strings.CutPrefix(name, head)
	if !ok {
		return false
	}
	for {
		part, more, starred := strings.Cut(rest, "*")
		if !starred {
			return strings.HasSuffix(name, part)
		}
		// The first place is as good as any: what follows has all the more room.
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name, rest = name[at+len(part):], more
	}
}
