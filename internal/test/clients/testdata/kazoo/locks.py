"""Lock, ReadLock, WriteLock, Semaphore, Election, leases."""

import datetime
import threading

from kazoo.exceptions import CancelledError, LockTimeout

from world import BRIEF_SESSION, Later, Tally, eventually, scenarios, together


def lock(w):
    clients, rounds = w.clients(4), 6 * w.rounds
    tally = Tally(clients[0])

    def contend(c):
        for _ in range(rounds):
            with c.Lock("/lock", "me"):
                tally.add(c)

    together(*[lambda c=c: contend(c) for c in clients])
    assert tally.value(clients[0]) == 4 * rounds
    assert clients[0].get_children("/lock") == []


def lock_order(w):
    clients = w.clients(5)
    held = clients[0].Lock("/lock", "0")
    assert held.acquire()
    assert not clients[1].Lock("/lock", "impatient").acquire(blocking=False)
    try:
        clients[1].Lock("/lock", "impatient").acquire(timeout=0.2)
        raise AssertionError("acquired a lock that another holds")
    except LockTimeout:
        pass
    eventually(lambda: held.contenders() == ["0"], "those who gave up have left the queue")

    got, waiting = [], []

    def wait(c, name):
        with c.Lock("/lock", name):
            got.append(name)

    for i, c in enumerate(clients[1:], 1):
        waiting.append(Later(lambda c=c, i=i: wait(c, str(i))))
        eventually(lambda: len(held.contenders()) == i + 1, "waiter %d in the queue" % i)
    assert held.contenders() == ["0", "1", "2", "3", "4"]
    assert got == []
    held.release()
    for later in waiting:
        later.get()
    assert got == ["1", "2", "3", "4"], got


def lock_cancelled(w):
    a, b = w.clients(2)
    held, waits = a.Lock("/lock", "a"), b.Lock("/lock", "b")
    held.acquire()
    waiting = Later(waits.acquire)
    eventually(lambda: held.contenders() == ["a", "b"], "b in the queue")
    waits.cancel()
    try:
        waiting.get()
        raise AssertionError("a cancelled lock was acquired")
    except CancelledError:
        pass
    eventually(lambda: held.contenders() == ["a"], "b out of the queue")


def lock_killed_holder(w):
    weather = w.weather()
    doomed, heir = w.client(BRIEF_SESSION, weather), w.client()
    states = []
    doomed.add_listener(states.append)
    lost = doomed.Lock("/lock", "doomed")
    lost.acquire()
    waiting = Later(heir.Lock("/lock", "heir").acquire)
    eventually(lambda: lost.contenders() == ["doomed", "heir"], "the heir in the queue")
    weather.do("cut")
    assert waiting.running()
    assert waiting.get()
    assert heir.Lock("/lock").contenders() == ["heir"]
    weather.do("heal")
    eventually(lambda: "LOST" in states, "the dead one hears of its end")


def lock_lost_reply(w):
    """The create is done, its reply is lost: the lock finds its node again and does not queue behind itself."""
    weather = w.weather()
    a, b = w.client(weather=weather), w.client()
    a.ensure_path("/lock")
    weather.do("fail-reply 1")
    mine = a.Lock("/lock", "a")
    assert mine.acquire()
    assert b.Lock("/lock").contenders() == ["a"]
    assert not b.Lock("/lock", "b").acquire(blocking=False)
    mine.release()
    assert b.Lock("/lock", "b").acquire(blocking=False)


def read_write_lock(w):
    clients, rounds = w.clients(5), 4 * w.rounds
    tally = Tally(clients[0])
    clients[0].ensure_path("/copy")
    clients[0].set("/copy", b"0")
    mu, reading = threading.Lock(), [0]

    def write(c):
        for _ in range(rounds):
            with c.WriteLock("/lock"):
                assert reading[0] == 0, "a reader while a writer writes"
                tally.add(c)
                c.set("/copy", c.get("/tally")[0])

    def read(c):
        for _ in range(rounds):
            lock = acquire_read(c)
            try:
                with mu:
                    reading[0] += 1
                assert tally.inside == 0, "a writer while a reader reads"
                assert c.get("/tally")[0] == c.get("/copy")[0]
                with mu:
                    reading[0] -= 1
            finally:
                lock.release()

    together(*[lambda c=c: write(c) for c in clients[:2]], *[lambda c=c: read(c) for c in clients[2:]])
    assert tally.value(clients[0]) == 2 * rounds

    # Readers share, for certain: all are inside before any leaves.
    inside = threading.Barrier(3)

    def share(c):
        with c.ReadLock("/lock"):
            inside.wait(30)

    together(*[lambda c=c: share(c) for c in clients[2:]])
    with clients[2].ReadLock("/lock"):
        assert not clients[0].WriteLock("/lock").acquire(blocking=False)
    with clients[0].WriteLock("/lock"):
        assert not clients[2].ReadLock("/lock").acquire(blocking=False)


def acquire_read(c):
    """A reader of Kazoo 2.8 waits for every writer that it sees, those behind it too, and they wait for it: it must give
    up its place from time to time."""
    while True:
        lock = c.ReadLock("/lock")
        try:
            if lock.acquire(timeout=0.2):
                return lock
        except LockTimeout:
            pass


def semaphore(w):
    clients, rounds = w.clients(5), 4 * w.rounds
    tally = Tally(clients[0], most=2)
    pair = threading.Barrier(2)

    def contend(c):
        for _ in range(rounds):
            with c.Semaphore("/semaphore", "me", max_leases=2), tally.entered():
                c.get("/tally")

    def fill(c):
        with c.Semaphore("/semaphore", "me", max_leases=2), tally.entered():
            assert c.Semaphore("/semaphore").lease_holders()
            pair.wait(30)

    together(*[lambda c=c: contend(c) for c in clients])
    together(*[lambda c=c: fill(c) for c in clients[:4]])
    assert tally.peak == 2

    # A lease ends with its client.
    one, two = clients[0].Semaphore("/single", "one"), clients[1].Semaphore("/single", "two")
    one.acquire()
    assert one.lease_holders() == ["one"]
    assert not two.acquire(blocking=False)
    waiting = Later(two.acquire)
    clients[0].stop()
    assert waiting.get()
    assert two.lease_holders() == ["two"]


def election(w):
    weather = w.weather()
    doomed = w.client(BRIEF_SESSION, weather)
    clients = [doomed] + w.clients(3)
    led, go, elections, runs = [], [threading.Event() for _ in clients], [], []

    def lead(i):
        led.append(i)
        assert go[i].wait(60)

    for i, c in enumerate(clients):
        e = c.Election("/election", str(i))
        elections.append(e)
        runs.append(Later(lambda e=e, i=i: e.run(lead, i)))
        eventually(lambda: len(elections[-1].contenders()) == i + 1, "candidate %d" % i)
    assert elections[3].contenders() == ["0", "1", "2", "3"]
    eventually(lambda: led == [0], "the first candidate leads")

    weather.do("cut")  # the leader dies
    eventually(lambda: led == [0, 1], "the next one leads")
    assert elections[3].contenders() == ["1", "2", "3"]

    elections[2].cancel()
    runs[2].get()
    eventually(lambda: elections[3].contenders() == ["1", "3"], "who withdraws is no candidate")

    go[1].set()
    runs[1].get()
    eventually(lambda: led == [0, 1, 3], "the last one leads")
    go[3].set()
    runs[3].get()
    weather.do("heal")
    go[0].set()
    runs[0].get()


def lease(w):
    a, b = w.clients(2)
    now = [datetime.datetime(2030, 1, 1)]
    minute = datetime.timedelta(minutes=1)

    def take(c, name):
        return bool(c.NonBlockingLease("/lease", minute, identifier=name, utcnow=lambda: now[0]))

    assert take(a, "a") and not take(b, "b") and take(a, "a")
    now[0] += 2 * minute
    assert take(b, "b") and not take(a, "a")

    def take_one(c, name):
        return bool(c.MultiNonBlockingLease(2, "/leases", minute, identifier=name, utcnow=lambda: now[0]))

    assert take_one(a, "a") and take_one(b, "b") and not take_one(b, "c")


SCENARIOS = scenarios([
    lock, lock_order, lock_cancelled, lock_killed_holder, lock_lost_reply, read_write_lock, semaphore, election, lease,
])
