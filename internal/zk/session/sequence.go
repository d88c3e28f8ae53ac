package session

import "strings"

// sequenceDigits is what ZooKeeper appends to the name of a sequential node.
const sequenceDigits = 10

// isSequence accepts what ZooKeeper appends: "%010d" of an int32.
func isSequence(s string) bool {
	s, negative := strings.CutPrefix(s, "-")
	if len(s) < sequenceDigits-1 || !negative && len(s) != sequenceDigits {
		return false
	}
	for i := range len(s) { // each deletion of a transaction is compared by it, again and again
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// place tells a contender's directory and its number, "" for another node.
func place(path string) (dir, number string) {
	cut := strings.LastIndexByte(path, '/')
	dir, name := path[:cut], path[cut+1:]
	if len(name) > sequenceDigits && isSequence(name[len(name)-sequenceDigits:]) {
		number = name[len(name)-sequenceDigits:]
	}
	return dir, number
}
