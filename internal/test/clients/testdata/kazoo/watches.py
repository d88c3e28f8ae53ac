"""DataWatch, ChildrenWatch, PatientChildrenWatch, TreeCache, and watches themselves."""

import random
import threading

from kazoo.protocol.states import EventType
from kazoo.recipe.cache import TreeCache
from kazoo.recipe.cache import TreeEvent
from kazoo.recipe.watchers import PatientChildrenWatch

from world import eventually, scenarios


def one_shot_watches(w):
    """The events of plain watches, each once, before the reply that shows the change."""
    a, b = w.clients(2)
    seen = []

    def note(event):
        seen.append((event.type, event.path))

    assert a.exists("/n", watch=note) is None
    b.create("/n", b"1")
    eventually(lambda: seen == [(EventType.CREATED, "/n")], "created")
    a.get("/n", watch=note)
    a.get_children("/n", watch=note)
    b.set("/n", b"2")
    b.set("/n", b"3")
    eventually(lambda: seen[1:] == [(EventType.CHANGED, "/n")], "changed, once")
    b.create("/n/child")
    b.create("/n/child2")
    eventually(lambda: seen[2:] == [(EventType.CHILD, "/n")], "children, once")
    a.get("/n", watch=note)
    a.get_children("/n/child", watch=note)
    b.delete("/n", recursive=True)
    eventually(lambda: len(seen) == 5, "deleted")
    assert sorted(seen[3:]) == [(EventType.DELETED, "/n"), (EventType.DELETED, "/n/child")], seen

    # An event comes before the reply that shows the change. Kazoo hands both on in order, through two threads.
    for i in range(20 * w.rounds):
        happened = threading.Event()
        a.exists("/m%d" % i, watch=lambda event: happened.set())
        b.create("/m%d" % i)
        assert a.exists("/m%d" % i)
        assert happened.wait(10)


def data_watch(w):
    a, b = w.clients(2)
    seen, mu = [], threading.Lock()

    @a.DataWatch("/node")
    def changed(data, stat, event):
        with mu:
            seen.append((data, stat.version if stat else None, event.type if event else None))

    def reach(data, version):
        eventually(lambda: seen[-1][:2] == (data, version), "the watch sees %r, version %s; it saw %r" % (data, version, seen))

    assert seen == [(None, None, None)]
    b.create("/node", b"0")
    reach(b"0", 0)
    for i in range(1, 20 * w.rounds):
        b.set("/node", b"%d" % i)
    reach(b"%d" % i, i)
    versions = [v for _, v, _ in seen if v is not None]
    assert versions == sorted(set(versions)), "each version at most once, in order"
    b.delete("/node")
    reach(None, None)
    assert seen[-1][2] == EventType.DELETED
    b.create("/node", b"again")
    reach(b"again", 0)

    # A watch that says False has ended.
    calls = []
    a.DataWatch("/node", lambda data, stat: (calls.append(data), len(calls) < 2)[1])
    for i in range(5):
        b.set("/node", b"x%d" % i)
    reach(b"x4", 5)
    eventually(lambda: len(calls) == 2, "called twice")
    b.set("/node", b"end")
    reach(b"end", 6)
    assert len(calls) == 2


def children_watch(w):
    a, b = w.clients(2)
    a.ensure_path("/dir")
    seen = []

    @a.ChildrenWatch("/dir", send_event=True)
    def changed(children, event):
        seen.append((sorted(children), event))

    def reach(want):
        eventually(lambda: seen[-1][0] == want, "children are %r; seen %r" % (want, [s for s, _ in seen]))

    assert seen == [([], None)]
    want = []
    for i in range(10 * w.rounds):
        want.append(b.create("/dir/n-", sequence=True).rsplit("/", 1)[1])
    reach(want)
    assert want == sorted(want) and want[0] == "n-0000000000"
    assert seen[-1][1].type == EventType.CHILD and seen[-1][1].path == "/dir"
    for name in want[::2]:
        b.delete("/dir/" + name)
    reach(want[1::2])
    before = len(seen)
    b.set("/dir/" + want[1], b"data")  # of no concern to the children's watch
    b.set("/dir", b"data")
    b.create("/dir/last")
    reach(sorted(want[1::2] + ["last"]))
    assert len(seen) == before + 1


def patient_watch(w):
    a, b = w.clients(2)
    a.ensure_path("/dir")
    asked = PatientChildrenWatch(a, "/dir", 0.2).start()
    for i in range(5):
        b.create("/dir/n%d" % i)
    children, changed = asked.get(30)
    if len(children) == 5:
        assert not changed.ready()
    b.create("/dir/late")
    changed.get(30)


def tree_cache(w):
    a, b = w.clients(2)
    weather = w.weather()
    far = w.client(weather=weather)
    caches, counts = [], []
    for c in (a, far):
        cache = TreeCache(c, "/tree")
        count = {}
        cache.listen(lambda event, count=count: count.__setitem__(event.event_type, count.get(event.event_type, 0) + 1))
        cache.start()
        caches.append(cache)
        counts.append(count)
        eventually(lambda: count.get(TreeEvent.INITIALIZED) == 1, "the cache has begun")

    def real(path):
        data, _ = b.get(path)
        return {path: data, **{k: v for c in b.get_children(path) for k, v in real(path + "/" + c).items()}}

    def cached(cache, path):
        node = cache.get_data(path)
        if node is None:
            return {}
        return {path: node.data, **{k: v for c in cache.get_children(path, ()) for k, v in cached(cache, path + "/" + c).items()}}

    rng = random.Random(7)
    paths = ["/tree/%s" % x for x in "abc"]
    paths += ["%s/%s" % (p, x) for p in paths for x in "de"]

    def change(n):
        for i in range(n):
            path = rng.choice(paths)
            if b.exists(path) is None:
                b.ensure_path(path)
            elif rng.random() < 0.5:
                b.delete(path, recursive=True)
            else:
                b.set(path, b"%d" % i)

    change(30 * w.rounds)
    weather.do("cut")
    change(15)
    weather.do("heal")
    change(5)
    want = real("/tree")
    for cache in caches:
        eventually(lambda: cached(cache, "/tree") == want, "the cache is as the tree")
    assert TreeEvent.CONNECTION_SUSPENDED in counts[1] and TreeEvent.CONNECTION_RECONNECTED in counts[1]
    for cache in caches:
        cache.close()


SCENARIOS = scenarios([one_shot_watches, data_watch, children_watch, patient_watch, tree_cache])
