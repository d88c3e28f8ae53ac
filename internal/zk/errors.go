package zk

import "fmt"

// FatalKind says why it is useless to go on without a person.
type FatalKind string

// The kinds of FatalError.
const (
	KindConfig        FatalKind = "configuration"    // the configuration contradicts itself
	KindServerTooOld  FatalKind = "server_too_old"   // ZooKeeper lacks persistent recursive watches (3.6)
	KindAuth          FatalKind = "auth_refused"     // ZooKeeper refused the credentials, or an ACL refuses us
	KindTaken         FatalKind = "root_taken"       // others have made a part of the layout before the first gateway
	KindMissingRoot   FatalKind = "root_missing"     // the root does not exist and may not be created
	KindLayoutTooNew  FatalKind = "layout_too_new"   // the root was written by a later release that we cannot read
	KindLayoutCorrupt FatalKind = "layout_corrupt"   // a node of the layout cannot be understood
	KindPromiseWindow FatalKind = "promise_window"   // the configured window contradicts the recorded one
	KindNamespace     FatalKind = "namespace_record" // a namespace record contradicts another or the configuration
)

// FatalError is an error that retrying cannot cure. Hint is one sentence for the operator: what to do.
type FatalError struct {
	Kind FatalKind
	Hint string
	Err  error
}

func (e *FatalError) Error() string {
	if e.Err == nil {
		return string(e.Kind)
	}
	return fmt.Sprintf("%s: %v", e.Kind, e.Err)
}

// Unwrap gives the cause.
func (e *FatalError) Unwrap() error { return e.Err }

// KindImportUnfinished: an import fills the root, or has died half way.
const KindImportUnfinished FatalKind = "import_unfinished"
