package byname

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"lockkeeper/internal/test/assert"
)

type thing struct{ name string }

func newSet() *Set[thing] { return New(func(t *thing) string { return t.name }) }

// model does the same to a Set and to a map.
type model struct {
	t    testing.TB
	set  *Set[thing]
	want map[string]*thing
}

func newModel(t testing.TB) *model { return &model{t, newSet(), map[string]*thing{}} }

// turn takes the thing of that name out, or puts one in.
func (m *model) turn(name string) {
	m.t.Helper()
	there := m.want[name]
	assert.Must(m.t, m.set.Get(name) == there && m.set.GetBytes([]byte(name)) == there, "Get(%q)", name)
	if there != nil {
		m.set.Delete(&thing{name}) // another one of that name
		m.set.Delete(there)
		m.set.Delete(there)
		delete(m.want, name)
	} else {
		made := &thing{name}
		m.set.Put(made)
		m.want[name] = made
	}
	assert.MustEqual(m.t, m.set.Len(), len(m.want))
}

// same compares all of both.
func (m *model) same() {
	m.t.Helper()
	all := slices.Collect(m.set.All())
	assert.MustEqual(m.t, len(all), len(m.want))
	for _, one := range all {
		assert.Must(m.t, m.want[one.name] == one, "All yields %q", one.name)
	}
	for name, one := range m.want {
		assert.Must(m.t, m.set.Get(name) == one, "Get(%q)", name)
	}
}

func TestASetIsAMap(t *testing.T) {
	for seed := range uint64(20) {
		m, random := newModel(t), rand.New(rand.NewPCG(seed, 0))
		names := 1 << random.IntN(12)
		for range 5000 {
			m.turn(strconv.Itoa(random.IntN(names)))
		}
		m.same()
	}
}

func TestALargeSetGrowsAndShrinks(t *testing.T) {
	m := newModel(t)
	const many = 3 * splitAt
	for i := range many {
		m.turn(strconv.Itoa(i))
	}
	m.same()
	assert.Equal(t, len(m.set.parts), manyParts)
	for i := range many - 1 {
		m.turn(strconv.Itoa(i))
		if i%1000 == 0 {
			m.same()
		}
	}
	places := 0
	for i := range m.set.parts {
		places += len(m.set.parts[i].things)
	}
	assert.Equal(t, places, manyParts*fewPlaces, "places for one thing")
	m.turn(strconv.Itoa(many - 1))
	m.same()
	assert.Equal(t, len(m.set.parts), 1, "parts of an empty set")
}

func TestAllStops(t *testing.T) {
	m := newModel(t)
	for i := range 10 {
		m.turn(strconv.Itoa(i))
	}
	for range m.set.All() {
		break
	}
	m.same()
}

// FuzzSet has all places of a small part taken in turn, whatever the hashes are: things that stand away from their homes
// must move when others go.
func FuzzSet(f *testing.F) {
	f.Add([]byte("abcabcddd"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 2, 4, 6, 8, 10, 12, 1})
	f.Fuzz(func(t *testing.T, names []byte) {
		m := newModel(t)
		for _, name := range names {
			m.turn(string(rune('a' + name%40)))
			m.same()
		}
	})
}

// TestThingsMoveUp frees places among things of chosen hashes, in every order.
func TestThingsMoveUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var p part[thing]
		p.resize(fewPlaces)
		there := map[*thing]uint16{}
		for range 12 {
			one := &thing{}
			there[one] = (uint16(random.IntN(4)) + 13) << 12 // the homes are at the end, so that things go on at the front
			p.put(there[one], one)
		}
		for len(there) > 0 {
			one := slices.Collect(maps.Keys(there))[0]
			p.free(slices.Index(p.things, one))
			delete(there, one)
			for left, hash := range there {
				i := p.home(hash)
				for p.things[i] != left {
					assert.Must(t, p.things[i] != nil, "a free place before a thing")
					i = p.next(i)
				}
				assert.MustEqual(t, p.hashes[i], hash)
			}
			assert.MustEqual(t, p.len, len(there))
		}
	}
}

// TestMorePlacesThanHashes fills a part that is larger than there are different homes.
func TestMorePlacesThanHashes(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var p part[thing]
	p.resize(1 << 18)
	hashes := map[*thing]uint16{}
	for range 1 << 17 {
		one := &thing{}
		hashes[one] = uint16(random.IntN(1 << 16))
		p.put(hashes[one], one)
	}
	longest := 0
	for one, hash := range hashes {
		i, distance := p.home(hash), 0
		for p.things[i] != one {
			assert.Must(t, p.things[i] != nil, "a free place before a thing")
			i = p.next(i)
			distance++
		}
		longest = max(longest, distance)
	}
	assert.That(t, longest < 200, "a thing is %d places from its home", longest)
}

func TestASetTakesLittleMemory(t *testing.T) {
	const many = 100_000
	things := make([]thing, many)
	for i := range things {
		things[i].name = fmt.Sprintf("many-%07d", i)
	}
	live := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	s := newSet()
	for i := range things {
		s.Put(&things[i])
	}
	each := (float64(live()) - float64(before)) / many
	assert.That(t, each <= 16, "%.0f bytes for each thing", each)
	assert.Equal(t, testing.AllocsPerRun(100, func() { _ = s.GetBytes([]byte("many-0000007")) }), 0)
	long := []byte("a name that is longer than what fits on the stack of a function")
	assert.Equal(t, testing.AllocsPerRun(100, func() { _ = s.GetBytes(long) }), 0)
	runtime.KeepAlive(s)
}

func BenchmarkGet(b *testing.B) {
	const many = 100_000
	s := newSet()
	names := make([]string, many)
	for i := range many {
		names[i] = fmt.Sprintf("many-%07d", i)
		s.Put(&thing{names[i]})
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i = (i + 7919) % many
		if s.Get(names[i]) == nil {
			b.Fatal(names[i])
		}
	}
}
