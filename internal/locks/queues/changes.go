package queues

// KeepChanges has the namespace's queues mark themselves when what a list shows of them changes.
func (s *Namespace) KeepChanges() {
	if s.changed == nil {
		s.changed = map[*Queue]struct{}{}
	}
}

// DropChanges ends what KeepChanges began.
func (s *Namespace) DropChanges() { s.changed = nil }

// Changed is how many queues are marked.
func (s *Namespace) Changed() int { return len(s.changed) }

// TakeChanged returns marked queues, at most so many, and takes the marks away. Some may not be in the namespace any more.
func (s *Namespace) TakeChanged(most int) (list []*Queue) {
	for q := range s.changed {
		if len(list) == most {
			break
		}
		list = append(list, q)
		delete(s.changed, q)
	}
	return list
}

// Mark marks the queue. Touch does, and what is read of a contender; other changes of what a list shows call it.
func (q *Queue) Mark() {
	if q.Namespace != nil && q.Namespace.changed != nil {
		q.Namespace.changed[q] = struct{}{}
	}
}
