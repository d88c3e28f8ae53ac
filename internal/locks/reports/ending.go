package reports

import (
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// What an administrator ends here that is another owner's.

// Terminating records, here and for the other gateways, why contenders are about to be deleted.
func (x *Exchange) Terminating(parts []queues.Location, c Cause) {
	for _, p := range parts {
		x.ending[p.Contender] = c
	}
	x.Announce(Termination, c, parts)
}

// NotTerminated withdraws what Terminating recorded of contenders that were not deleted.
func (x *Exchange) NotTerminated(parts []queues.Location) {
	for _, p := range parts {
		delete(x.ending, p.Contender)
	}
	x.Announce(Withdrawn, Cause{}, parts)
}

// Ending is why a contender is ended here; nil: it is not.
func (x *Exchange) Ending(c *recipe.Contender) *Cause {
	if why, ends := x.ending[c]; ends {
		return &why
	}
	return nil
}

// Removed forgets why a contender is ended that the replica has lost.
func (x *Exchange) Removed(c *recipe.Contender) { delete(x.ending, c) }
