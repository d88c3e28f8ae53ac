package auth

import (
	"fmt"
	"time"
)

// Error is why a request is not authenticated.
type Error struct {
	Detail string // what must be, for the client; it holds nothing of the credential
	// Unavailable: the credential cannot be looked at now; the same request may succeed later.
	Unavailable bool
	// Session: the credential is a browser's session. Its user can log in again.
	Session    bool
	TooMany    bool          // this address has shown too many wrong credentials; RetryAfter says when to repeat
	RetryAfter time.Duration // with TooMany
	Repeated   bool          // the address is refused all the time: no line for each
	Err        error         // for the log; nil when there is no more to say
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Detail + ": " + e.Err.Error()
	}
	return e.Detail
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

func refused(format string, args ...any) *Error { return &Error{Detail: fmt.Sprintf(format, args...)} }

// FileError is what is wrong with the file of rules, and where.
type FileError struct {
	Path         string
	Line, Column int // 0: the whole file
	Detail       string
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.Path + ": " + e.Detail
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Path, e.Line, e.Column, e.Detail)
}
