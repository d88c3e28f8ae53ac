package recipe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// queueOf builds a queue from the words of a script, numbered from first on: w1 r1 are the writer and the reader of
// lease 1, 2of3/1 a permit of lease 1, X a foreign lock, R a foreign reader, P a foreign permit, ? one of ours in an
// unknown format, and a1 the three members of an exclusive lease of the dialect all. A number in front, as in 5:w1, is
// the contender's own. words tells the names.
func queueOf(t testing.TB, first int32, script string) (q *Queue, words map[string]string) {
	t.Helper()
	q, words = new(Queue), map[string]string{}
	next := first
	add := func(word string, c *Contender) {
		assert.Must(t, q.Insert(c), "%s is there twice", word)
		words[word], next = c.Name, c.Number+1
	}
	for _, word := range strings.Fields(script) {
		var permits, limit int32
		var id int
		n, kind := next, word
		if number, rest, ok := strings.Cut(word, ":"); ok {
			kind = rest
			assert.Must(t, scan(number, "%d", &n), "no number: %q", word)
		}
		switch {
		case kind == "X":
			add(word, foreignContender(fmt.Sprintf("_c_%d-lock-", n), n))
		case kind == "R":
			add(word, foreignContender(fmt.Sprintf("_c_%d-__READ__", n), n))
		case kind == "W":
			add(word, foreignContender(fmt.Sprintf("_c_%d-__WRIT__", n), n))
		case kind == "P":
			add(word, foreignContender(fmt.Sprintf("_c_%d-lease-", n), n))
		case kind == "?":
			add(word, foreignContender("read-v9."+string(lease(9))+"-lock-", n))
		case scan(kind, "w%d", &id):
			add(word, named(Contender{LeaseID: lease(id), Number: n}))
		case scan(kind, "r%d", &id):
			add(word, named(Contender{LeaseID: lease(id), Number: n, Mode: Shared}))
		case scan(kind, "a%d", &id):
			for _, c := range naming(All).Contenders(Contender{LeaseID: lease(id)}) {
				c.Number = next
				add(fmt.Sprintf("%s.%d", word, c.Member), named(c))
			}
		case scan(kind, "%dof%d/%d", &permits, &limit, &id):
			add(word, named(Contender{LeaseID: lease(id), Number: n, Mode: Permit, Permits: permits, Limit: limit}))
		default:
			t.Fatalf("no contender is called %q", word)
		}
	}
	return q, words
}

func scan(s, format string, into ...any) bool {
	n, err := fmt.Sscanf(s, format, into...)
	return err == nil && n == len(into)
}

func holding(q *Queue, words map[string]string) string {
	var out []string
	for c := range q.Holders() {
		for word, name := range words {
			if name == c.Name {
				out = append(out, word)
			}
		}
	}
	return strings.Join(out, " ")
}

func TestHoldersFollowFromNamesAlone(t *testing.T) {
	for _, test := range []struct {
		why, queue, holders string
		waiting             int
	}{
		{"the queue is empty", "", "", 0},
		{"the first of exclusive ones", "w1 w2 w3", "w1", 2},
		{"readers in front share", "r1 r2 w3 r4", "r1 r2", 2},
		{"a writer in front holds alone", "w1 r2 r3", "w1", 2},
		{"a foreign lock is respected", "X w1", "X", 1},
		{"a foreign reader shares with ours", "R r1 w2", "R r1", 1},
		{"an unknown format excludes", "? r1", "?", 1},
		{"permits up to the limit", "1of3/1 2of3/2 1of3/3", "1of3/1 2of3/2", 1},
		{"a large request waits, and those behind it with it", "2of3/1 2of3/2 1of3/3", "2of3/1", 2},
		{"a raised limit holds for who comes after it", "2of3/1 2of3/2 1of9/3", "2of3/1 1of9/3", 1},
		{"a lowered limit does so too", "1of3/1 1of3/2 1of1/3 1of3/4", "1of3/1 1of3/2", 2},
		{"an exclusive one takes every permit", "w1 1of3/2", "w1", 1},
		{"and waits for every permit", "1of3/1 w2 1of3/3", "1of3/1", 2},
		{"readers and permits exclude each other", "r1 1of3/2 r3", "r1", 2},
		{"permits and readers exclude each other", "1of3/1 r2 1of3/3", "1of3/1", 2},
		{"a foreign permit counts as one", "P 1of2/1 1of2/2", "P 1of2/1", 1},
		{"foreign permits have a limit of their own", "P 2:P 3:P 1of2/1", "P 2:P 3:P", 1},
		{"ours never hold beside it otherwise", "P w1", "P", 1},
		{"nor in shared mode", "P r1 w2", "P", 2},
		{"a lease of three members is one entry", "a1 w2", "a1.1 a1.2 a1.3", 1},
		{"wherever it stands", "w1 a2 w3", "w1", 2},
		{"a downgrade adds the reader before the writer goes", "5:w1 5:r1 6:r2", "5:r1 5:w1", 1},
		{"Curator's writer that reads has two nodes of one number", "5:W 5:R r1", "5:R 5:W", 1},
	} {
		for _, first := range []int32{1, -3, 2147483646} {
			if strings.Contains(test.queue, ":") && first != 1 { // they count from 1
				continue
			}
			q, words := queueOf(t, first, test.queue)
			assert.Equal(t, holding(q, words), test.holders, "%s: of %q from number %d hold", test.why, test.queue, first)
			assert.Equal(t, q.Waiting(), test.waiting, "%s: of %q", test.why, test.queue)
		}
	}
}

func TestWouldHoldIsWhatANewcomerWillSee(t *testing.T) {
	for _, test := range []struct{ queue, would, not string }{
		{"", "w8 r8 1of1/8 3of3/8", ""},
		{"w1", "", "w8 r8 1of9/8"},
		{"r1", "r8", "w8 1of9/8"},
		{"r1 R", "r8", "w8 1of9/8"},
		{"r1 w2", "", "w8 r8 1of9/8"}, // fair: the queue is not jumped
		{"1of3/1", "1of3/8 2of3/8", "w8 r8 3of3/8 1of1/8"},
		{"1of3/1 1of3/2", "1of3/8 5of7/8", "w8 r8 2of3/8 6of7/8"},
		{"2of3/1 2of3/2", "1of5/8", "1of3/8 1of4/8"}, // permits that are waited for count
		{"1of3/1 w2", "", "1of3/8 w8 r8"},
		{"P", "1of2/8", "1of1/8 w8 r8"},
		{"P 2:P 1of9/1", "6of9/8", "7of9/8"},
		{"X", "", "w8 r8 1of9/8"},
		{"?", "", "w8 r8 1of9/8"},
		{"a1", "", "w8 r8 1of9/8"},
		{"5:w1 5:r1", "", "w8 r8 1of9/8"}, // a downgrade on the way
	} {
		for words, want := range map[string]bool{test.would: true, test.not: false} {
			for _, word := range strings.Fields(words) {
				q, _ := queueOf(t, 1, test.queue)
				alone, names := queueOf(t, 9, word)
				newcomer := *alone.At(0)
				asked := newcomer
				asked.Ours, asked.Name, asked.LeaseID = false, "", "" // what is not known before it is created
				assert.Equal(t, q.WouldHold(&asked), want, "behind %q %s would hold", test.queue, word)
				q.Insert(&newcomer)
				assert.Equal(t, q.Holds(names[word]), want, "behind %q %s holds", test.queue, word)
				n := testing.AllocsPerRun(10, func() { q.WouldHold(&asked) })
				assert.That(t, n == 0, "the question allocates %v times", n)
			}
		}
	}
}

func TestALeaseOfThreeMembersHoldsOnceAllAreThere(t *testing.T) {
	q, words := queueOf(t, 1, "w9 a1 w2")
	first := words["a1.1"]
	position, ok := q.Position(words["w2"])
	assert.That(t, position == 2 && ok, "behind one lease of three members the position is %d, %v", position, ok)
	assert.That(t, !q.LeaseHolds(first), "holds behind another lease")
	q.Remove(words["w9"])
	for _, member := range []string{"a1.1", "a1.2", "a1.3"} {
		assert.That(t, q.LeaseHolds(words[member]) && q.Holds(words[member]), "%s does not hold at the head", member)
	}
	q.Remove(words["a1.2"])
	assert.That(t, !q.LeaseHolds(first), "holds without its second member")
	assert.That(t, q.Holds(first), "the first member has lost its place")
	q, words = queueOf(t, 1, "?")
	assert.That(t, !q.LeaseHolds(words["?"]), "a lease in an unknown format is said to hold")
}

func TestAMemberThatStandsApartFromItsLeaseIsJudgedAlone(t *testing.T) {
	q, words := queueOf(t, 1, "a1")
	last := words["a1.3"]
	q.Remove(last)
	q.Insert(foreignContender("_c_x-lock-", 3))
	c := named(Contender{LeaseID: lease(1), Form: FormCurator, Member: 3, Members: 3, Number: 4})
	q.Insert(c)
	assert.That(t, !q.Holds(c.Name) && !q.LeaseHolds(words["a1.1"]), "a lease holds across a foreign contender")
}

// A child with a handmade number, half a circle from the others.
func TestNothingIsGrantedWhileTheNumbersHaveNoOrder(t *testing.T) {
	for _, test := range []struct {
		number  int32
		ordered bool
		holders string
	}{
		{13, true, "r1 r2"},
		{-2147483639, true, "r1 r2"}, // 2^31 - 1 behind the first
		{-2147483638, false, ""},     // 2^31 from the first
		{-2147483637, false, ""},
		{-2147483636, false, ""}, // 2^31 from the last
		{-2147483635, true, "X"}, // 2^31 - 1 before the last
		{9, true, "X"},
	} {
		q, words := queueOf(t, 10, "r1 r2 w3")
		odd := foreignContender("odd-x-", test.number)
		words["X"] = odd.Name
		q.Insert(odd)
		if held := holding(q, words); q.Ordered() != test.ordered || held != test.holders {
			t.Errorf("with %d among 10 to 12: ordered %v, %q hold", test.number, q.Ordered(), held)
		}
		if !test.ordered {
			if _, ok := q.Position(words["w3"]); ok || q.Holds(words["r1"]) || q.LeaseHolds(words["r1"]) || q.Waiting() != 4 {
				t.Errorf("with %d among 10 to 12: a position, a holder, or %d who wait", test.number, q.Waiting())
			}
		}
		assert.Must(t, q.Remove(odd.Name) == odd, "cannot remove %q", odd.Name)
		held := holding(q, words)
		assert.That(t, held == "r1 r2", "after %d has gone %q hold", test.number, held)
	}
}

func TestTheOrderComesBackWhereverTheCircleWasCut(t *testing.T) {
	// Three numbers a third of the circle apart have no order; any two do.
	third := []int32{0, 1431655765, -1431655766}
	for gone := range 3 {
		q := new(Queue)
		var contenders []*Contender
		for i, n := range third {
			contenders = append(contenders, named(Contender{LeaseID: lease(i), Number: n}))
			q.Insert(contenders[i])
		}
		assert.Must(t, !q.Ordered() && !q.Holds(contenders[0].Name), "three thirds of a circle have an order")
		q.Remove(contenders[gone].Name)
		next := contenders[(gone+1)%3] // who is followed by the other
		if holders := collect(q); !q.Ordered() || !slices.Equal(holders, []*Contender{next}) {
			t.Errorf("without %d ordered: %v, %q hold; want %q", third[gone], q.Ordered(), names(holders), next.Name)
		}
	}
}

func TestAForeignSemaphoreIsSeen(t *testing.T) {
	q, words := queueOf(t, 1, "P 1of3/1 3:P")
	assert.That(t, q.ForeignPermits() == 2, "%d foreign permits, want 2", q.ForeignPermits())
	q.Remove(words["P"])
	assert.That(t, q.ForeignPermits() == 1, "%d foreign permits, want 1", q.ForeignPermits())
}

func TestHoldersReadsNothingBehindTheFirstWaiter(t *testing.T) {
	for _, test := range []struct {
		queue string
		looks int // contenders that the walk may look at
	}{
		{"w1 w2 w3 w4 w5", 2},
		{"X w2 w3 w4 w5", 2},
		{"r1 r2 w3 w4 r5 w6", 4},
		{"r1 w2 r3 r4", 3},
		{"1of2/1 1of2/2 1of2/3 1of2/4 1of2/5", 3},
		{"2of2/1 2of2/2 2of2/3", 2},
		{"1of4/1 r2 1of4/3 1of4/4", 3},
		{"a1 w2 w3", 4},
	} {
		q, words := queueOf(t, 1, test.queue)
		want := holding(q, words)
		clear(q.items()[test.looks:]) // a look at one of these panics
		assert.Equal(t, holding(q, words), want, "of %q hold", test.queue)
	}
}

func TestALimitThatIsGoneNoLongerMakesHoldersLookFar(t *testing.T) {
	q, words := queueOf(t, 1, "1of1000/1")
	q.Remove(words["1of1000/1"])
	for i := range 10 {
		q.Insert(named(Contender{LeaseID: lease(i), Number: int32(i + 2), Mode: Permit, Permits: 1, Limit: 2}))
	}
	clear(q.items()[3:]) // a look at one of these panics
	assert.Equal(t, len(collect(q)), 2, "hold, want 2")
}

func TestHoldersCanBeLeftEarly(t *testing.T) {
	q, words := queueOf(t, 1, "r1 r2 r3")
	for c := range q.Holders() {
		assert.That(t, c.Name == words["r1"], "the first holder is %q", c.Name)
		break
	}
}
