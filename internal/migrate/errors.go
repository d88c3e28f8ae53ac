package migrate

import "lockkeeper/internal/offline"

// Error is why nothing, or not everything, was done.
type Error = offline.Error

// The kinds of Error.
const (
	KindNoRoot                  = offline.KindNoRoot
	KindInUse                   = offline.KindInUse
	KindUnknown                 = offline.KindUnknown
	KindForeign    offline.Kind = "foreign_contenders" // other programs' contenders cannot be moved
	KindNotMovable offline.Kind = "not_movable"        // something in the root is not understood
	KindDamaged    offline.Kind = "damaged_file"       // the file is not what an export wrote
	KindTooNew     offline.Kind = "file_too_new"       // a later release wrote it
	KindNotEmpty   offline.Kind = "root_not_empty"     // the root to import into has something in it
	KindPartial    offline.Kind = "import_unfinished"  // another import is under way there or has died half way
)
