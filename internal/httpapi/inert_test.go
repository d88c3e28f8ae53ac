package httpapi

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// forbidden is the first character of an answer that a shell, a terminal or a reader could take for something else.
func forbidden(doc []byte) (rune, bool) {
	for i := 0; i < len(doc); {
		r, size := utf8.DecodeRune(doc[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return rune(doc[i]), true
		case r == '\n' || r == '\t' || r == '\r':
		case r == '$', r == '`', !unicode.IsPrint(r), unicode.In(r, unicode.Cf, unicode.Cc):
			return r, true
		}
		i += size
	}
	return 0, false
}

func TestJSONIsInertAndMeansTheSame(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"b"}`:                           `{"a":"b"}`,
		`{"a":"$(id)` + "`id`" + `"}`:         `{"a":"\u0024(id)\u0060id\u0060"}`,
		`{"$":"1234567$"}`:                    `{"\u0024":"1234567\u0024"}`,
		`"\\$\\\""`:                           `"\\\u0024\\\""`,
		"\"\u0080\u009b\u009f\u00a0\x7f\"":    `"\u0080\u009b\u009f\u00a0\u007f"`,
		"\"\u202e\u2066\u200b\u200d\ufeff\"":  `"\u202e\u2066\u200b\u200d\ufeff"`,
		"\"\U000e0001é漢😀\"":                   `"\udb40\udc01é漢😀"`,
		"\"12345678é1234567\u202e\"":          `"12345678é1234567\u202e"`,
		"\"\xff\xc3\"":                        `"\ufffd\ufffd"`,
		"{\n\t\"a\": [1, true, null]\r\n}\n":  "{\n\t\"a\": [1, true, null]\r\n}\n",
		`"` + strings.Repeat("x", 64) + "`\"": `"` + strings.Repeat("x", 64) + `\u0060"`,
	} {
		if got := string(appendInert(nil, []byte(in))); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	// Each byte at each place of a word.
	for _, c := range []byte("$`\x7f\xff") {
		for i := range 24 {
			doc := bytes.Repeat([]byte("#"), 24) // next to $
			doc[i] = c
			if got := hazard(doc); got != i {
				t.Errorf("%q at %d is found at %d", c, i, got)
			}
		}
	}
	for c := range byte(0x7f) {
		if doc := bytes.Repeat([]byte{c}, 20); c != '$' && c != '`' && hazard(doc) != len(doc) {
			t.Errorf("%q is escaped", c)
		}
	}
}

func FuzzInert(f *testing.F) {
	for _, s := range []string{`{"owner":"$(touch x)","m":["` + "`id`" + `"]}`, "\"\u009b31m\u202e\U000e0001\x7f\"", `"\\\"$"`, "[1e9,\n\ttrue]", "\"\xf0\x9f\"", `{"$":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !json.Valid(doc) {
			return
		}
		escaped := appendInert(nil, doc)
		if r, found := forbidden(escaped); found {
			t.Fatalf("%q has %U as it is: %q", doc, r, escaped)
		}
		var want, got any
		if err := json.Unmarshal(doc, &want); err != nil {
			return // a number that is too large
		}
		if err := json.Unmarshal(escaped, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q becomes %q: %v", doc, escaped, err)
		}
		if again := appendInert(nil, escaped); !bytes.Equal(again, escaped) {
			t.Fatalf("escaped again, %q becomes %q", escaped, again)
		}
	})
}

// BenchmarkInert is what the second look at an answer costs: one without, and one with names from elsewhere.
func BenchmarkInert(b *testing.B) {
	shape := leaseShape(new(held()))
	doc, err := json.Marshal(&shape)
	if err != nil {
		b.Fatal(err)
	}
	for name, doc := range map[string][]byte{
		"plain": doc,
		"names": bytes.ReplaceAll(doc, []byte(`"me"`), []byte(`"Zoë 漢字"`)),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if hazard(doc) != len(doc) {
					b.Fatal("there is nothing to escape")
				}
			}
		})
	}
}
