package token

import (
	"hash/crc32"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// What scanners look for must not change: this one was made once and for all.
const sample = "lkt_0123abcD_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg"

func TestTheFormOfATokenStays(t *testing.T) {
	text := seal(sample)
	assert.Equal(t, text, sample+"_1EYlL9")
	id, of, ok := split(text)
	assert.Equal(t, crc32.ChecksumIEEE([]byte(sample)), 1131286667, "what scanners compute: 1EYlL9 in base62")
	assert.That(t, ok && id == "0123abcD" && of == digest(sample), "split: %q %v", id, ok)
}

func TestTokensAreUnlikeEachOtherAndAreReadBack(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id, text, of := generate()
		gotID, got, ok := split(text)
		assert.Must(t, ok && gotID == id && got == of && len(text) == 63 && Form(text), "%s is read as %s, %v", text, gotID, ok)
		assert.Must(t, !seen[id] && !seen[text], "%s was made twice", text)
		seen[id], seen[text] = true, true
	}
}

// One wrong, missing, added or swapped character is refused without a look-up.
func TestATypingErrorIsRefusedByTheForm(t *testing.T) {
	_, text, _ := generate()
	var wrong []string
	for i := range len(text) {
		for _, c := range []byte{'0', 'z', '_', ' ', 0, 0xff} {
			if text[i] != c {
				wrong = append(wrong, text[:i]+string([]byte{c})+text[i+1:])
			}
		}
		wrong = append(wrong, text[:i]+text[i+1:], text[:i]+"x"+text[i:])
		if i > 0 && text[i] != text[i-1] {
			wrong = append(wrong, text[:i-1]+text[i:i+1]+text[i-1:i]+text[i+1:])
		}
	}
	wrong = append(wrong, "", "lkt_", strings.ToUpper(text), text+"\n", strings.Repeat("lkt_", 16), strings.Repeat("_", 63))
	for _, w := range wrong {
		_, _, ok := split(w)
		assert.That(t, !ok, "%q is taken for a token", w)
	}
}

func TestEachDigitIsAsLikelyAsAnyOther(t *testing.T) {
	const n = 62 * 4000
	count := map[rune]int{}
	for _, c := range random(n) {
		count[c]++
	}
	for _, c := range digits {
		assert.That(t, count[c] > 3500 && count[c] < 4500, "%c stands %d times among %d", c, count[c], n)
	}
	assert.Equal(t, len(count), 62)
}

func FuzzAnyTextIsSplitOrRefused(f *testing.F) {
	_, text, _ := generate()
	f.Add(text)
	f.Add(sample + "_000000")
	f.Fuzz(func(t *testing.T, text string) {
		if id, _, ok := split(text); ok && (!isID(id) || !strings.HasPrefix(text, prefix+id+"_")) {
			t.Errorf("%q has the id %q", text, id)
		}
	})
}
