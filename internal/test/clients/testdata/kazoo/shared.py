"""Counter, Queue, LockingQueue, Barrier, DoubleBarrier, Party, ShallowParty, SetPartitioner."""

import threading

from kazoo.recipe.partitioner import PartitionState

from world import BRIEF_SESSION, Later, eventually, scenarios, together


def counter(w):
    clients, rounds = w.clients(3), 12 * w.rounds

    def add(c):
        n, f = c.Counter("/int"), c.Counter("/float", default=0.0)
        for _ in range(rounds):
            n += 2
            f += 0.5
            n -= 1

    together(*[lambda c=c: add(c) for c in clients])
    assert clients[0].Counter("/int").value == 3 * rounds
    assert clients[0].Counter("/float", default=0.0).value == 1.5 * rounds
    n = clients[1].Counter("/int")
    n += 5
    assert (n.pre_value, n.post_value) == (3 * rounds, 3 * rounds + 5)


def queue(w):
    clients, each = w.clients(4), 15 * w.rounds
    first = clients[0].Queue("/ordered")
    for value, priority in ((b"c", 100), (b"d", 100), (b"a", 1), (b"e", 999), (b"b", 50)):
        first.put(value, priority)
    assert len(first) == 5
    assert [first.get() for _ in range(6)] == [b"a", b"b", b"c", b"d", b"e", None]

    got, done = [[], []], threading.Event()

    def produce(c, name):
        q = c.Queue("/queue")
        for i in range(each):
            q.put(b"%s-%05d" % (name, i))

    def consume(c, into):
        q = c.Queue("/queue")
        while True:
            last = done.is_set()
            item = q.get()
            if item is not None:
                into.append(item)
            elif last:
                return

    consumers = [Later(lambda i=i: consume(clients[i], got[i])) for i in range(2)]
    together(lambda: produce(clients[2], b"x"), lambda: produce(clients[3], b"y"))
    done.set()
    for c in consumers:
        c.get()
    want = [b"%s-%05d" % (name, i) for name in (b"x", b"y") for i in range(each)]
    assert sorted(got[0] + got[1]) == want, "each item is got once"
    for items in got:
        for name in (b"x", b"y"):
            assert [i for i in items if i.startswith(name)] == sorted(i for i in items if i.startswith(name))


def locking_queue(w):
    weather = w.weather()
    doomed = w.client(BRIEF_SESSION, weather)
    a, b = w.clients(2)
    queues = [c.LockingQueue("/queue") for c in (doomed, a, b)]
    queues[1].put_all([b"1", b"2", b"3"])
    queues[1].put(b"0", priority=1)
    assert len(queues[2]) == 4
    assert queues[0].get(10) == b"0" and queues[1].get(10) == b"1" and queues[2].get(10) == b"2"
    assert queues[0].holds_lock() and queues[0].get(1) == b"0"
    assert queues[1].consume() and not queues[1].consume()
    assert queues[2].release()
    assert queues[1].get(10) == b"2" and queues[1].consume()
    assert queues[1].get(10) == b"3"
    assert queues[2].get(0.3) is None  # the one that is left is another's
    waiting = Later(lambda: queues[2].get(30))
    weather.do("cut")  # its owner dies
    assert waiting.get() == b"0"
    assert queues[2].consume() and queues[1].consume()
    assert len(queues[1]) == 0


def barrier(w):
    clients = w.clients(4)
    barrier = clients[0].Barrier("/barrier")
    assert barrier.wait(0)
    barrier.create()
    assert not clients[1].Barrier("/barrier").wait(0.1)
    waiting = [Later(lambda c=c: c.Barrier("/barrier").wait(30)) for c in clients[1:]]
    assert all(later.running() for later in waiting)
    assert barrier.remove()
    assert all(later.get() for later in waiting)
    assert not barrier.remove()


def double_barrier(w):
    clients = w.clients(3)
    mu, entered, left = threading.Lock(), [0], [0]
    # Kazoo 2.8 may put the mark "ready" back when one leaves while another still enters. Members work in between.
    work = threading.Barrier(3)

    def member(c, i):
        b = c.DoubleBarrier("/barrier", 3, "member")
        with mu:
            entered[0] += 1
        b.enter()
        assert b.participating
        assert entered[0] == 3, "entered alone"
        work.wait(30)
        with mu:
            left[0] += 1
        b.leave()
        assert left[0] == 3, "left alone"
        assert not b.participating

    for i in range(w.rounds):
        entered[0] = left[0] = 0
        early = [Later(lambda c=c, i=i: member(c, i)) for i, c in enumerate(clients[:2])]
        eventually(lambda: clients[2].exists("/barrier") and len(clients[2].get_children("/barrier")) == 2, "two at the barrier")
        assert all(m.running() for m in early)
        member(clients[2], 2)
        for m in early:
            m.get()
        assert clients[0].get_children("/barrier") == []


def party(w):
    weather = w.weather()
    doomed = w.client(BRIEF_SESSION, weather)
    a, b = w.clients(2)
    for kind in ("Party", "ShallowParty"):
        path = "/" + kind.lower()
        parties = [getattr(c, kind)(path, name) for c, name in ((doomed, "doomed"), (a, "a"), (b, "b"))]
        for p in parties:
            p.join()
        assert sorted(parties[1]) == ["a", "b", "doomed"] and len(parties[2]) == 3
        parties[1].leave()
        assert sorted(parties[1]) == ["b", "doomed"]
    weather.do("cut")
    for kind in ("Party", "ShallowParty"):
        eventually(lambda: sorted(getattr(b, kind)("/" + kind.lower())) == ["b"], "the dead one has left")


def partitioner(w):
    things = tuple(range(9))
    clients = w.clients(3)
    sets, stop = {}, threading.Event()

    def member(c, i):
        p = c.SetPartitioner("/partition", things, identifier=str(i), time_boundary=0.3)
        while not stop.is_set():
            state = p.state
            if state == PartitionState.ALLOCATING:
                p.wait_for_acquire(0.2)
            elif state == PartitionState.ACQUIRED:
                sets[i] = list(p)
                stop.wait(0.05)
            elif state == PartitionState.RELEASE:
                sets.pop(i, None)
                p.release_set()
            else:
                raise AssertionError("lost its part")
        p.finish()
        sets.pop(i, None)

    def divided(n):
        now = dict(sets)
        return len(now) == n and sorted(sum(now.values(), [])) == list(things)

    members = [Later(lambda c=c, i=i: member(c, i)) for i, c in enumerate(clients[:2])]
    eventually(lambda: divided(2), "divided among two")
    members.append(Later(lambda: member(clients[2], 2)))
    eventually(lambda: divided(3), "divided among three")
    stop.set()
    for m in members:
        m.get()


SCENARIOS = scenarios([counter, queue, locking_queue, barrier, double_barrier, party, partitioner])
