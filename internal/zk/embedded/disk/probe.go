package disk

import (
	"errors"
	"fmt"
	"os"
)

// Probe says whether there is room to go on: it writes a file of its own beside the store, syncs it and removes it again. Free
// pages within the store's file say nothing about that. A supervisor asks before it serves again after an Append has
// failed for a full disk, so that it does not fail again at the first batch.
func (s *Store) Probe() error {
	err := probe(s.dir)
	if err != nil {
		return &Error{Path: s.path, Err: fmt.Errorf("no room for %d bytes beside it: %w", probeBytes, err)}
	}
	return nil
}

func probe(dir string) (err error) {
	f, err := os.CreateTemp(dir, newPattern) // a name that is swept when the process dies right now
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(make([]byte, probeBytes))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
