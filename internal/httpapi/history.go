package httpapi

import (
	"slices"

	"lockkeeper/internal/events"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
)

// historyInput is a lock whose last events are asked for.
type historyInput struct {
	ns, lock string
	limit    int
}

var getHistory = operation[historyInput]{fields: ofLock(func(h *historyInput) *string { return &h.lock }, func(h *historyInput) *string { return &h.ns },
	field[historyInput]{name: "limit", in: inQuery, to: func(h *historyInput) any { return &h.limit }},
)}

// getHistory answers with what the hub remembers of a lock, the newest first.
func (s *streams) getHistory(x *exchange) error {
	in := historyInput{limit: locks.DefaultPage}
	err := decode(x, &getHistory, &in)
	if err == nil {
		err = between("limit", in.limit, 1, locks.MaxPage)
	}
	if err == nil {
		err = s.namespaceKnown(x, in.ns)
	}
	if err != nil {
		return err
	}
	if err := x.principal().Check(access.Read, in.ns, in.lock); err != nil {
		return err
	}
	recent := s.hub.Recent(events.Filter{Rules: x.principal().Rules, NS: in.ns, Lock: events.Literal(in.lock)}, in.limit)
	slices.Reverse(recent)
	list := &api.EventList{Items: make([]api.Event, len(recent))}
	for i, e := range recent {
		list.Items[i] = eventShape(e)
	}
	x.open = true
	return x.answer(list)
}
