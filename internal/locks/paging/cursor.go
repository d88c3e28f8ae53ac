package paging

import (
	"cmp"
	"encoding/base64"
	"strconv"
	"strings"

	"lockkeeper/internal/locks"
)

// List is which list a cursor goes on with. A cursor is opaque to clients: the kind of its list and where it goes on.
type List byte

// The lists.
const (
	Leases  List = 'l' // by a lease's id; see locks.LeaseCursor
	Locks   List = 'k' // by a lock's name
	History List = 'h' // by the number of a row
	sorted  List = 's' // by a place in an order; see SortedPlace
	queue   List = 'w' // by a place: a position, or a position and a number of holders with a comma between
)

// Cursor makes a cursor that goes on behind a place.
func (l List) Cursor(at string) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{byte(l)}, at...))
}

// At reads a cursor of the list; "" is the front.
func (l List) At(cursor string) (at string, err error) {
	if cursor == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) < 2 || raw[0] != byte(l) {
		return "", invalid()
	}
	return string(raw[1:]), nil
}

func invalid() error {
	return locks.Invalid("cursor", "not a cursor of this list; leave it out to begin at the front")
}

// QueuePlace is where a page of a queue begins: behind so many waiters, and behind so many holders.
type QueuePlace struct{ Waiters, Holders int }

// Cursor makes a cursor of the place.
func (p QueuePlace) Cursor() string {
	at := strconv.Itoa(p.Waiters)
	if p.Holders > 0 {
		at += "," + strconv.Itoa(p.Holders)
	}
	return queue.Cursor(at)
}

// QueuePlaceAt reads a cursor in a queue.
func QueuePlaceAt(cursor string) (p QueuePlace, err error) {
	at, err := queue.At(cursor)
	if err != nil || at == "" {
		return QueuePlace{}, err
	}
	waiters, holders, both := strings.Cut(at, ",")
	w, err := strconv.ParseUint(waiters, 10, 31)
	h := uint64(0)
	if both && err == nil {
		h, err = strconv.ParseUint(holders, 10, 31)
	}
	if err != nil {
		return QueuePlace{}, invalid()
	}
	return QueuePlace{int(w), int(h)}, nil
}

// SortedPlace is the place of a lock in a sorted list. Rest: it stands behind all that have a number, by its directory.
type SortedPlace struct {
	Sort   locks.LockSort
	Number int64
	Rest   bool
	Dir    string
}

// Cursor makes a cursor of the place.
func (p SortedPlace) Cursor() string {
	number := "rest"
	if !p.Rest {
		number = strconv.FormatInt(p.Number, 10)
	}
	return sorted.Cursor(string(p.Sort) + "," + number + "," + p.Dir)
}

// SortedPlaceAt reads such a cursor; nil for "", the front. It is an error for a list that is sorted in another way.
func SortedPlaceAt(sort locks.LockSort, cursor string) (*SortedPlace, error) {
	at, err := sorted.At(cursor)
	if err != nil || at == "" {
		return nil, err
	}
	by, rest, _ := strings.Cut(at, ",")
	number, dir, ok := strings.Cut(rest, ",")
	p := &SortedPlace{Sort: sort, Rest: number == "rest", Dir: dir}
	if !p.Rest {
		p.Number, err = strconv.ParseInt(number, 10, 64)
	}
	if !ok || err != nil || by != string(sort) || dir == "" {
		return nil, invalid()
	}
	return p, nil
}

// ComparePlaces orders places as a sorted list shows them.
func ComparePlaces(a, b SortedPlace) int {
	if a.Rest != b.Rest {
		if a.Rest {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(a.Dir, b.Dir))
}
