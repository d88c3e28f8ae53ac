package manager

import "lockkeeper/internal/locks/record"

// A later release may write more members into a record. A successor of an older release keeps them when it rewrites
// the record.

// learnMore keeps the record's members that this release does not know.
func (l *lease) learnMore(data []byte) {
	members, ok := record.OtherMembers(data)
	if ok && (len(members) > 0 || l.rareFields != nil && l.rareFields.more != nil) {
		l.rare().more = members
	}
}
