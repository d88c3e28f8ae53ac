package sweep

import (
	"fmt"
	"strings"
)

// Kind says what prevents it.
type Kind string

// The kinds of Error.
const (
	KindNoRoot  Kind = "no_root"         // there is nothing to sweep
	KindInUse   Kind = "in_use"          // a gateway is registered, or has been meanwhile
	KindUnknown Kind = "outcome_unknown" // the connection was lost in the middle
	KindCorrupt Kind = "corrupt"         // a record that says where leases are cannot be understood
	KindTooBig  Kind = "too_big"         // a lease's contenders do not fit into one transaction
)

// Error is why nothing, or not everything, was done. Hint tells the operator what to do.
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

// unknown: the last transaction may have been done. Either is fine: the next sweep
// reads everything again.
func unknown(err error) error {
	return refuse(KindUnknown, "run it again: it goes on with what is left", "the connection was lost: %w", err)
}

// list names a few of many.
func list(all []string) string {
	const few = 8
	if len(all) <= few {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
}
