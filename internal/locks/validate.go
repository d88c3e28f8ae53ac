package locks

import (
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"lockkeeper/internal/locks/recipe"
)

func invalid(field, detail string) *Error {
	return &Error{Code: CodeInvalid, Field: field, Detail: detail}
}

// normalize fills in defaults and refuses what the API does not allow.
func (r *AcquireRequest) normalize() error {
	if r.NS == "" {
		r.NS = DefaultNamespace
	}
	if r.Principal == "" {
		r.Principal = Anonymous
	}
	if r.TTL == 0 {
		r.TTL = DefaultTTL
	}
	if err := checkLock(r.Lock); err != nil {
		return err
	}
	if err := checkTTL(r.TTL); err != nil {
		return err
	}
	switch {
	case r.Wait < 0:
		return invalid("wait", "wait is 0 or longer")
	case r.Async && r.Wait != 0:
		return invalid("wait", "an async acquire answers at once: leave wait out, and poll the lease")
	case r.IdempotencyKey != "" && (len(r.IdempotencyKey) < MinKeyLength || len(r.IdempotencyKey) > MaxKeyLength):
		return invalid("Idempotency-Key", fmt.Sprintf("an Idempotency-Key has %d to %d visible characters", MinKeyLength, MaxKeyLength))
	}
	if err := checkText("owner", r.Owner, MaxOwner); err != nil {
		return err
	}
	return checkText("metadata", r.Metadata, MaxMetadata)
}

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return invalid("ttl", fmt.Sprintf("ttl is %v to %v", MinTTL, MaxTTL))
	}
	return nil
}

func checkLock(name string) error {
	if err := recipe.CheckLockName(name); err != nil {
		return invalid("lock", err.Error())
	}
	return nil
}

func checkText(field, text string, limit int) error {
	if len(text) > limit {
		return invalid(field, fmt.Sprintf("%s has at most %d bytes", field, limit))
	}
	if !utf8.ValidString(text) {
		return invalid(field, field+" is not valid UTF-8")
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return invalid(field, field+" has a control character")
		}
	}
	return nil
}
