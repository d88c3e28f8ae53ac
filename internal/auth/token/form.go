package token

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"strings"
)

const (
	prefix      = "lkt_"
	idLength    = 8
	secretChars = 43 // 62^43 > 2^256
	sumLength   = 6  // 62^6 > 2^32
	length      = len(prefix) + idLength + 1 + secretChars + 1 + sumLength

	digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Form reports whether a text is meant as a token: it begins like one.
func Form(text string) bool { return strings.HasPrefix(text, prefix) }

// Whole reports whether a text is a token that was made here, by its form and its checksum. The fleet may not have it any more.
func Whole(text string) bool {
	_, _, ok := split(text)
	return ok
}

// hash is what a record keeps of a token.
type hash [sha256.Size]byte

// split takes a token apart. It reports false for what has not the form, or not the checksum.
func split(text string) (id string, of hash, ok bool) {
	if len(text) != length || !Form(text) {
		return "", of, false
	}
	signed, sum := text[:length-sumLength-1], text[length-sumLength:]
	id = signed[len(prefix) : len(prefix)+idLength]
	if signed[len(prefix)+idLength] != '_' || text[len(signed)] != '_' || !base62(id) {
		return "", of, false
	}
	if right := checksum(signed); sum != string(right[:]) {
		return "", of, false
	}
	return id, digest(signed), true
}

// digest is the hash of a token, without its checksum.
func digest(signed string) hash {
	var text [length]byte // on the stack
	return sha256.Sum256(text[:copy(text[:], signed)])
}

// checksum is the CRC-32 of all that stands before it. It is computed here because crc32.ChecksumIEEE has its argument allocated.
func checksum(signed string) (sum [sumLength]byte) {
	n := ^uint32(0)
	for i := range len(signed) {
		n = crc32.IEEETable[byte(n)^signed[i]] ^ n>>8
	}
	n = ^n
	for i := range sum {
		sum[sumLength-1-i] = digits[n%62]
		n /= 62
	}
	return sum
}

// generate makes a token.
func generate() (id, text string, of hash) {
	id = random(idLength)
	signed := prefix + id + "_" + random(secretChars)
	return id, seal(signed), digest(signed)
}

// seal puts the checksum behind a token.
func seal(signed string) string {
	sum := checksum(signed)
	return signed + "_" + string(sum[:])
}

// random is so many digits, each as likely as any other.
func random(n int) string {
	text := make([]byte, 0, n)
	var some [64]byte
	for len(text) < n {
		_, _ = rand.Read(some[:]) // never fails
		for _, b := range some {
			if b < 4*62 && len(text) < n { // the rest would make some digits likelier
				text = append(text, digits[b%62])
			}
		}
	}
	return string(text)
}

func base62(text string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// isID reports whether a name of a node is that of a token.
func isID(name string) bool { return len(name) == idLength && base62(name) }
