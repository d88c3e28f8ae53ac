package recipe

import (
	"cmp"
	"math"
	"strings"
)

// numberWidth is the least width of a sequence number: ZooKeeper appends it
// with the format %010d.
const numberWidth = 10

// Number is the sequence number at the end of a child's name. ok is false for
// a child that has none: it is no contender but a stray child.
//
// ZooKeeper appends the parent's counter, an int32 that wraps around, with
// %010d. The width includes the sign, so there are three shapes:
//
//	0 .. 2147483647              ten digits             0000000005
//	-999999999 .. -1             a dash and nine digits -000000005
//	-2147483648 .. -1000000000   a dash and ten digits  -2147483648
//
// The first two are told apart by the last ten characters. The third shares its
// last ten characters with the first, and most names end in a dash of their own:
// in x-lock-1500000000 the dash belongs to the name. It is a sign only where the
// character before it is a dash or an underscore (x-lock--1500000000,
// x__lock__-1500000000), as those end the prefixes of every client known, and
// where the ten digits do not start with a zero, because %010d never pads a
// number to eleven characters. The pattern -?\d{10}$ instead takes each name's own
// dash for a sign and reverses the queue.
//
// Leases of Kazoo's Semaphore have no number and count as 0. No place depends on them: ours never wait among them.
//
// ZooKeeper makes no number beyond int32, so such a number is none. It does not make -000000000 either, but other
// clients read that as 0, and so does Number.
func Number(name string) (n int32, ok bool) {
	_, n, ok = split(name)
	return n, ok
}

// kazooLease is the length of the name of a lease of Kazoo's Semaphore.
const kazooLease = 32

// IsKazooLease reports whether a name is that of a lease of Kazoo's Semaphore: 32 hex
// digits and no number. One in a hundred ends in ten decimal digits that mean nothing.
func IsKazooLease(name string) bool {
	if len(name) != kazooLease {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// split is Number that also returns the text before the number.
func split(name string) (prefix string, n int32, ok bool) {
	if IsKazooLease(name) {
		return name, 0, true
	}
	at := len(name) - numberWidth
	if at < 0 {
		return "", 0, false
	}
	digits, negative := name[at:], false
	if digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	var v int64
	for i := range len(digits) {
		d := digits[i] - '0'
		if d > 9 {
			return "", 0, false
		}
		v = v*10 + int64(d)
	}
	if !negative && digits[0] != '0' && at >= 2 && name[at-1] == '-' && (name[at-2] == '-' || name[at-2] == '_') {
		at, negative = at-1, true
	}
	if negative {
		v = -v
	}
	if v < math.MinInt32 || v > math.MaxInt32 {
		return "", 0, false
	}
	return name[:at], int32(v), true
}

// appendNumber appends n as ZooKeeper does, with %010d.
func appendNumber(b []byte, n int32) []byte {
	v, width := int64(n), numberWidth
	if v < 0 {
		b, v, width = append(b, '-'), -v, width-1
	}
	var digits [numberWidth]byte
	i := len(digits)
	for v > 0 || len(digits)-i < width {
		i--
		digits[i] = byte('0' + v%10)
		v /= 10
	}
	return append(b, digits[i:]...)
}

// halfCircle is half the number of int32 values. Numbers that lie less than
// this apart have an order.
const halfCircle = uint32(1) << 31

// Compare orders two contenders of a queue: negative when a stands before b,
// positive when behind, 0 for the same name and number. ZooKeeper's counter
// wraps around, so numbers are compared as sequence numbers of RFC 1982: by the
// sign of their 32-bit difference. Equal numbers (a downgraded contender beside
// the one that it replaces, Curator 5.5's read node of a writer) go by name.
//
// It is an order only among numbers that fit into half the circle; see
// Queue.Ordered.
func Compare(aNum int32, aName string, bNum int32, bName string) int {
	if d := aNum - bNum; d != 0 {
		return cmp.Compare(d, 0)
	}
	return strings.Compare(aName, bName)
}

// Less reports whether Compare puts a before b.
func Less(aNum int32, aName string, bNum int32, bName string) bool {
	return Compare(aNum, aName, bNum, bName) < 0
}
