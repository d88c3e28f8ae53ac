package disk

import (
	"errors"
	"fmt"
)

// The kinds of Error that callers tell apart, by errors.Is.
var (
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("in use by another process")
	// ErrDamaged: the file does not hold what it should. Nothing was changed in it.
	ErrDamaged = errors.New("damaged")
	// ErrNewer: a newer release wrote the store, and this one must not read it.
	ErrNewer = errors.New("written by a newer release")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("closed")
)

// Error is why a store cannot be used. Hint is one sentence for the operator: what to do.
type Error struct {
	Kind error // one of those above, or nil
	Path string
	Err  error // what and where; may be nil
	Hint string
}

func (e *Error) Error() string {
	text := "store " + e.Path
	if e.Kind != nil {
		text += ": " + e.Kind.Error()
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	var all []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

const (
	hintLocked  = "stop the gateway that uses this directory, or give this one another with --data-dir"
	hintDamaged = "nothing was changed; move the directory away and restore a backup with: gateway restore"
	hintNewer   = "start that release again, or restore a backup that this one can read"
)

// damage is what a check has found. What has to do with the medium (a failed read) is no damage and not of this type.
type damage struct{ what string }

func (d *damage) Error() string { return d.what }

func damaged(format string, args ...any) error { return &damage{fmt.Sprintf(format, args...)} }

// newer is a store's format that is ahead of this program.
type newer struct{ version, oldestReader uint32 }

func (n *newer) Error() string {
	return fmt.Sprintf("it has format %d and needs a release that reads format %d; this one reads format %d", n.version, n.oldestReader, formatVersion)
}

// refuse turns what a check has found in the file at path into an Error.
func refuse(path string, err error) error {
	var d *damage
	var n *newer
	switch {
	case err == nil:
		return nil
	case errors.As(err, &d):
		return &Error{Kind: ErrDamaged, Path: path, Err: err, Hint: hintDamaged}
	case errors.As(err, &n):
		return &Error{Kind: ErrNewer, Path: path, Err: err, Hint: hintNewer}
	default:
		return &Error{Path: path, Err: err}
	}
}
