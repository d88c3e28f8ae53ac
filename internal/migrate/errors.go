package migrate

import "fmt"

// Kind says what prevents it.
type Kind string

// The kinds of Error.
const (
	KindNoRoot     Kind = "no_root"            // there is nothing to export
	KindInUse      Kind = "in_use"             // gateways are registered
	KindForeign    Kind = "foreign_contenders" // other programs' contenders cannot be moved
	KindNotMovable Kind = "not_movable"        // something in the root is not understood
	KindDamaged    Kind = "damaged_file"       // the file is not what an export wrote
	KindTooNew     Kind = "file_too_new"       // a later release wrote it
	KindNotEmpty   Kind = "root_not_empty"     // the root to import into has something in it
	KindPartial    Kind = "import_unfinished"  // another import is under way there or has died half way
	KindUnknown    Kind = "outcome_unknown"    // the connection was lost in the middle
)

// Error is why nothing, or not everything, was done. Hint is one sentence for the
// operator: what to do.
type Error struct {
	Kind Kind
	Err  error
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(kind Kind, hint, format string, args ...any) error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...), Hint: hint}
}
