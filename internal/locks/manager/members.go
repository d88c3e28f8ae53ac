package manager

import "lockkeeper/internal/locks/record"

// A record grows with each release: a gateway that succeeds one of a later release must
// not lose what that one has written, when it writes the record itself.

// learnMore keeps the members of a lease's record that only a later release knows.
func (l *lease) learnMore(data []byte) {
	members, ok := record.OtherMembers(data)
	if ok && (len(members) > 0 || l.rareFields != nil && l.rareFields.more != nil) {
		l.rare().more = members
	}
}
