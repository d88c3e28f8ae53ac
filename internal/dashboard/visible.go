package dashboard

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks is how many combining marks may follow one another. Written
// languages need up to four; more are piled up to cover what stands around.
const maxMarks = 4

// visible is s with everything shown that would otherwise hide, or make the
// rest look like something else: control characters (a terminal would obey
// them once they are copied there), marks that turn the order of the text
// around, characters without a shape, piles of accents, and bytes that are no
// UTF-8. Escaping HTML does not touch any of these. ASCII controls become their
// pictures (U+2400), the others \u{202e}, bytes \x{ff}.
func visible(s string) string {
	marks := 0
	for i, r := range s {
		marks = run(marks, r)
		if hides(r, marks) || r == utf8.RuneError && isByte(s[i:]) {
			return shown(s)
		}
	}
	return s
}

// shown is visible for what has something to show.
func shown(s string) string {
	var b strings.Builder
	marks := 0
	for i, r := range s {
		marks = run(marks, r)
		switch {
		case r == utf8.RuneError && isByte(s[i:]):
			fmt.Fprintf(&b, `\x{%02x}`, s[i])
		case r < ' ':
			b.WriteRune('\u2400' + r)
		case r == '\u007f':
			b.WriteRune('\u2421')
		case hides(r, marks):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// run counts the combining marks in a row.
func run(marks int, r rune) int {
	if r >= '\u0300' && unicode.Is(unicode.M, r) {
		return marks + 1
	}
	return 0
}

// isByte tells a byte that is no UTF-8 from a written U+FFFD.
func isByte(s string) bool {
	_, size := utf8.DecodeRuneInString(s)
	return size == 1
}

func hides(r rune, marks int) bool {
	switch {
	case r < utf8.RuneSelf:
		return r < ' ' || r == '\u007f'
	case marks > maxMarks, !unicode.IsGraphic(r): // not graphic: control, format, unassigned, private, line and paragraph separators
		return true
	case r == '\ufe0e' || r == '\ufe0f': // text or colour of the sign before
		return false
	case r == '\u2800': // a braille pattern without dots
		return true
	}
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// dataOf shows what another program wrote into its node: text when it is text,
// in its lines, else base64.
func dataOf(data []byte) (text string, binary bool) {
	if !utf8.Valid(data) || strings.ContainsFunc(string(data), isBinary) {
		return base64.StdEncoding.EncodeToString(data), true
	}
	lines := strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = visible(line)
	}
	return strings.Join(lines, "\n"), false
}

// isBinary reports control characters that no text has.
func isBinary(r rune) bool {
	return unicode.Is(unicode.Cc, r) && r != '\n' && r != '\r' && r != '\t'
}
