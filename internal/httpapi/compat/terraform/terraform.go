// Package terraform is how the HTTP backend of Terraform and OpenTofu locks a state
// (https://opentofu.org/docs/language/settings/backends/http/): the lock info that its requests and refusals carry. It is pure.
package terraform

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// The methods of the backend, unless lock_method and unlock_method say otherwise.
const (
	MethodLock   = "LOCK"
	MethodUnlock = "UNLOCK"
)

// MaxID bounds the id of a lock info, in bytes.
const MaxID = 128

// Bounds of what is kept of a lock info, in bytes. What is longer is cut.
const (
	maxWord = 128 // of Operation, Who and Version
	maxText = 512 // of Info and Path
)

// Info is who has locked a state, and for what.
type Info struct {
	ID        string
	Operation string
	Info      string
	Who       string
	Version   string
	Created   time.Time
	Path      string
}

// Wrong is what is wrong with a request, and where.
type Wrong struct{ Field, Detail string }

func (w *Wrong) Error() string { return w.Field + ": " + w.Detail }

// Read reads a lock info. Its error is a *Wrong.
func Read(body []byte) (Info, error) {
	var i Info
	if err := json.Unmarshal(body, &i); err != nil {
		return Info{}, &Wrong{"", `the body must be a lock info in JSON, as {"ID": "...", "Operation": "OperationTypeApply", "Who": "me@host"}; states are not stored here, so give this address as lock_address and unlock_address alone`}
	}
	if i.ID == "" || len(i.ID) > MaxID || strings.ContainsFunc(i.ID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Info{}, &Wrong{"ID", fmt.Sprintf("ID must have 1 to %d visible ASCII characters; a body without one is no lock info: states are not stored here, so give this address as lock_address and unlock_address alone", MaxID)}
	}
	for _, text := range []*string{&i.Operation, &i.Who, &i.Version} {
		*text = brief(*text, maxWord)
	}
	for _, text := range []*string{&i.Info, &i.Path} {
		*text = brief(*text, maxText)
	}
	return i, nil
}

// Forced reports whether the info is that of force-unlock: it knows the id, and nothing of the command that has locked.
func (i *Info) Forced() bool { return i.Operation == "" && i.Who == "" && i.Created.IsZero() }

// String is the info as JSON, at most 4 KiB.
func (i Info) String() string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // six bytes for one
	if err := encoder.Encode(i); err != nil {
		panic(err) // texts, and a time that has been read from JSON
	}
	return strings.TrimSpace(text.String())
}

// Of is the lock info in a lease's metadata, if there is one.
func Of(metadata string) (i Info, ok bool) {
	if !strings.HasPrefix(metadata, `{"ID":"`) {
		return Info{}, false
	}
	err := json.Unmarshal([]byte(metadata), &i)
	return i, err == nil && i.ID != ""
}

// brief is the text without control characters, and cut to so many bytes between characters.
func brief(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > most {
		const cut = "..."
		text = strings.ToValidUTF8(text[:most-len(cut)], "") + cut
	}
	return text
}
