"""What every scenario needs: clients in a place of their own, bad weather, waiting, contention."""

import contextlib
import socket
import threading
import time
import uuid

from kazoo.client import KazooClient

PATIENCE = 40  # seconds: a bound for a loaded machine, not an expectation
SESSION = 20  # seconds: for sessions that shall survive the scenario
BRIEF_SESSION = 5  # seconds: for sessions that shall end in it


def scenarios(functions):
    """The scenarios of a module, by their names with dashes."""
    return {f.__name__.replace("_", "-"): f for f in functions}


class World:
    """One scenario's world: a part of the tree that no other scenario uses, and clients that are closed with it."""

    def __init__(self, name, addr, control, rounds):
        self.addr, self.control, self.rounds = addr, control, rounds
        self.root = "/kazoo-%s-%s" % (name, uuid.uuid4().hex[:8])
        self._clients, self._weathers = [], []

    def client(self, timeout=SESSION, weather=None, **options):
        """A started client whose "/" is the scenario's own."""
        retry = dict(max_tries=-1, delay=0.02, backoff=1.5, max_jitter=0.02, max_delay=0.3)
        c = KazooClient(
            hosts=(weather.addr if weather else self.addr) + self.root,
            timeout=timeout, connection_retry=dict(retry), command_retry=dict(retry), **options)
        self._clients.append(c)
        c.start(PATIENCE)
        c.ensure_path("/")
        return c

    def clients(self, n):
        return [self.client() for _ in range(n)]

    def weather(self):
        w = Weather(self.control)
        self._weathers.append(w)
        return w

    def close(self):
        # First the weather: a client whose network is gone would wait for the end of its session.
        for w in self._weathers:
            w.do("heal")
        for c in self._clients:
            c.stop()
            c.close()
        for w in self._weathers:
            w.close()


class Weather:
    """A proxy before the server, to connect through. The test that runs this program holds it; orders are lines:
    cut, stall, reset, heal, fail-reply OP; and restart, for the server itself."""

    def __init__(self, control):
        host, port = control.rsplit(":", 1)
        self._sock = socket.create_connection((host, int(port)))
        self._lines = self._sock.makefile("rw", encoding="ascii", newline="\n")
        self.addr = self._lines.readline().strip()

    def do(self, order):
        self._lines.write(order + "\n")
        self._lines.flush()
        answer = self._lines.readline().strip()
        assert answer == "ok", answer

    def close(self):
        self._lines.close()
        self._sock.close()


def eventually(cond, what):
    """Waits until cond() is true."""
    end = time.monotonic() + PATIENCE
    while not cond():
        assert time.monotonic() < end, "not within %d s: %s" % (PATIENCE, what)
        time.sleep(0.01)


def together(*bodies):
    """Runs each body in a thread of its own and waits for all. The first failure is raised here."""
    failures = []

    def guarded(body):
        try:
            body()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=guarded, args=(b,), daemon=True) for b in bodies]
    for t in threads:
        t.start()
    end = time.monotonic() + PATIENCE
    for t in threads:
        while t.is_alive() and not failures:
            t.join(0.05)
            assert time.monotonic() < end, "still running after %d s" % PATIENCE
    if failures:
        raise failures[0]


class Later:
    """A body in a thread of its own whose result is asked for later."""

    def __init__(self, body):
        self._failure = None

        def guarded():
            try:
                self.result = body()
            except BaseException as e:
                self._failure = e

        self._thread = threading.Thread(target=guarded, daemon=True)
        self._thread.start()

    def running(self):
        return self._thread.is_alive()

    def get(self):
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "still running after %d s" % PATIENCE
        if self._failure:
            raise self._failure
        return self.result


class Tally:
    """A counter in ZooKeeper that only mutual exclusion keeps right: it is read, and later set to one more, whatever it
    is then. How many are in the section at once is counted beside it."""

    def __init__(self, client, most=1):
        client.ensure_path("/tally")
        client.set("/tally", b"0")
        self.most, self.inside, self.peak = most, 0, 0
        self._mu = threading.Lock()

    @contextlib.contextmanager
    def entered(self):
        with self._mu:
            self.inside += 1
            self.peak = max(self.peak, self.inside)
            assert self.inside <= self.most, "%d inside, at most %d may be" % (self.inside, self.most)
        try:
            yield
        finally:
            with self._mu:
                self.inside -= 1

    def add(self, client):
        with self.entered():
            value, _ = client.get("/tally")
            client.set("/tally", b"%d" % (int(value) + 1))

    def value(self, client):
        return int(client.get("/tally")[0])
