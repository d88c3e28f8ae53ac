package sweep

import "lockkeeper/internal/offline"

// Error is why nothing, or not everything, was done.
type Error = offline.Error

// The kinds of Error.
const (
	KindNoRoot               = offline.KindNoRoot
	KindInUse                = offline.KindInUse
	KindUnknown              = offline.KindUnknown
	KindCorrupt offline.Kind = "corrupt" // a record that says where leases are cannot be understood
	KindTooBig  offline.Kind = "too_big" // a lease's contenders do not fit into one transaction
)

// unknown: the last transaction may have been done. Either is fine: the next sweep
// reads everything again.
func unknown(err error) error {
	return offline.Refuse(KindUnknown, "run it again: it goes on with what is left", "the connection was lost: %w", err)
}
