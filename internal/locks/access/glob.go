package access

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A glob is a name in which * stands for any characters, none included. Lock names have no stars, so there is nothing to
// escape. There is no other wildcard: the meaning of ? and [ ] differs between programs.

// Bounds of a glob.
const (
	MaxGlob = 256 // bytes
	// MaxStars bounds the work of matching: at most one search for each star.
	MaxStars = 8
)

// CheckGlob says what is wrong with a glob, as the end of a sentence that begins with the name of the field.
func CheckGlob(glob string) error {
	switch {
	case len(glob) > MaxGlob || !utf8.ValidString(glob) || strings.ContainsFunc(glob, unicode.IsControl):
		return fmt.Errorf("must be at most %d bytes of text without control characters", MaxGlob)
	case strings.Count(glob, "*") > MaxStars:
		return fmt.Errorf("must have at most %d stars", MaxStars)
	case strings.ContainsAny(glob, "?[]{}\\/"):
		return errors.New("must have no wildcard but *, for any characters")
	}
	return nil
}

// Match reports whether the whole name matches the glob.
func Match(glob, name string) bool {
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
