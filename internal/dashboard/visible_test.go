package dashboard

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"lockkeeper/internal/test/assert"
)

func TestWhatHidesIsMadeVisible(t *testing.T) {
	for name, c := range map[string]struct{ give, want string }{
		"plain":                        {"deploy by me", "deploy by me"},
		"markup is the templates'":     {"<script>&", "<script>&"},
		"a terminal's escape":          {"\x1b[2J", "␛[2J"},
		"lines":                        {"a\r\nb\tc\x00", "a␍␊b␉c␀"},
		"delete":                       {"\x7f", "␡"},
		"a C1 control":                 {"\u009b31m", `\u{9b}31m`},
		"right to left override":       {"\u202egpj.exe", `\u{202e}gpj.exe`},
		"isolates and marks":           {"\u2066a\u2069\u200f\u061c", `\u{2066}a\u{2069}\u{200f}\u{61c}`},
		"zero width":                   {"a\u200bb\u200dc\ufeff\u2060\u00ad", `a\u{200b}b\u{200d}c\u{feff}\u{2060}\u{ad}`},
		"line separators":              {"\u2028\u2029", `\u{2028}\u{2029}`},
		"letters without a shape":      {"\u3164\u115f\u2800\u034f", `\u{3164}\u{115f}\u{2800}\u{34f}`},
		"tags":                         {"\U000e0041", `\u{e0041}`},
		"private use":                  {"\ue000", `\u{e000}`},
		"not UTF-8":                    {"a\xffb\xc0", `a\x{ff}b\x{c0}`},
		"the replacement character":    {"\ufffd", "\ufffd"},
		"an accent":                    {"e\u0301", "e\u0301"},
		"a pile of accents":            {"e\u0301\u0301\u0301\u0301\u0301", "e\u0301\u0301\u0301\u0301" + `\u{301}`},
		"other scripts":                {"שלום مرحبا 日本語 ไทย", "שלום مرحبا 日本語 ไทย"},
		"a coloured sign":              {"❤\ufe0f", "❤\ufe0f"},
		"other variations hide things": {"a\ufe01\U000e0101", `a\u{fe01}\u{e0101}`},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, visible(c.give), c.want)
		})
	}
}

func FuzzVisibleHidesNothingAndIsStable(f *testing.F) {
	f.Add("a\u202e\xff\x1b")
	f.Add("e\u0301\u0301\u0301\u0301\u0301\u200b")
	f.Fuzz(func(t *testing.T, s string) {
		got := visible(s)
		assert.That(t, utf8.ValidString(got) && !strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsGraphic(r) }),
			"%q of %q", got, s)
		assert.That(t, visible(got) == got, "%q becomes %q", got, visible(got))
	})
}

func TestDataIsTextOnlyIfItIsText(t *testing.T) {
	for name, c := range map[string]struct {
		give, want string
		binary     bool
	}{
		"text":              {"10.0.0.1", "10.0.0.1", false},
		"lines of text":     {"a\r\n\tb\rc", "a\n␉b␍c", false},
		"not UTF-8":         {"\xff\xfe", "//4=", true},
		"control character": {"a\x00", "YQA=", true},
		"turned around":     {"\u202ea", `\u{202e}a`, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, binary := dataOf([]byte(c.give))
			assert.That(t, got == c.want && binary == c.binary, "%q, %v", got, binary)
		})
	}
}
