"""Connections that break and sessions that end."""

import socket
import struct
import threading
import time

from kazoo.client import KazooState
from kazoo.exceptions import NoNodeError
from kazoo.security import CREATOR_ALL_ACL

from world import BRIEF_SESSION, PATIENCE, SESSION, Later, eventually, scenarios


def reconnect(w):
    """After a cut: the same session, its ephemerals, and the watches, which tell what happened meanwhile."""
    weather = w.weather()
    a, b = w.client(weather=weather), w.client()
    states, data, children, fired = [], [], [], []
    a.add_listener(states.append)
    a.create("/data", b"0")
    a.create("/children")
    a.create("/mine", ephemeral=True)
    for name in ("changed", "deleted", "quiet"):
        a.create("/" + name)
        a.get("/" + name, watch=lambda e: fired.append((e.type, e.path)))
    a.exists("/created", watch=lambda e: fired.append((e.type, e.path)))
    a.get_children("/children", watch=lambda e: fired.append((e.type, e.path)))
    a.DataWatch("/data", lambda value, stat: data.append(value))
    a.ChildrenWatch("/children", lambda names: children.append(names))
    session = a.client_id[0]

    weather.do("cut")
    eventually(lambda: states == [KazooState.SUSPENDED], "suspended")
    b.set("/data", b"1")
    b.create("/children/c")
    b.set("/changed", b"new")
    b.delete("/deleted")
    b.create("/created")
    assert b.exists("/mine")
    weather.do("heal")

    eventually(lambda: states == [KazooState.SUSPENDED, KazooState.CONNECTED], "connected again")
    assert a.client_id[0] == session
    assert a.exists("/mine").ephemeralOwner == session
    eventually(lambda: data[-1] == b"1" and children[-1] == ["c"], "what changed meanwhile")
    # Kazoo does not set plain watches again: they hear NONE at the cut, and nothing of what the old connection watched.
    assert fired == [("NONE", None)] * 5, fired

    # A storm: the session survives, and the work goes on.
    for i in range(5):
        weather.do("reset")
        assert a.retry(a.set, "/data", b"s%d" % i).version >= i
    assert a.client_id[0] == session
    eventually(lambda: data[-1] == b"s4", "the last change of the storm")
    assert b.exists("/mine")


def expiry_by_silence(w):
    """A network that goes silent: the server ends the session after its timeout and not before."""
    weather = w.weather()
    a, b = w.client(BRIEF_SESSION, weather), w.client()
    states = []
    a.add_listener(states.append)
    heard = time.monotonic()  # at the earliest; the server counts from the last it hears
    a.create("/mine", ephemeral=True)
    gone = threading.Event()
    assert b.exists("/mine", watch=lambda e: gone.set())
    session = a.client_id[0]
    weather.do("stall")
    assert gone.wait(PATIENCE)
    waited = time.monotonic() - heard
    assert waited >= BRIEF_SESSION, "ended after %.1f s of %d" % (waited, BRIEF_SESSION)
    assert b.exists("/mine") is None
    weather.do("heal")
    eventually(lambda: KazooState.LOST in states and states[-1] == KazooState.CONNECTED, "lost, and connected again")
    assert a.client_id[0] != session
    a.create("/mine", ephemeral=True)
    assert b.exists("/mine").ephemeralOwner == a.client_id[0]


def expiry_from_elsewhere(w):
    """Another connection takes the session over by its id and password, and closes it."""
    weather = w.weather()
    a, b = w.client(weather=weather), w.client()
    states, data = [], []
    a.add_listener(states.append)
    a.create("/mine", ephemeral=True)
    a.DataWatch("/data", lambda value, stat: data.append(value))
    session = a.client_id
    weather.do("cut")
    eventually(lambda: states == [KazooState.SUSPENDED], "suspended")
    thief = w.client(client_id=session)
    assert thief.client_id == session
    assert b.exists("/mine")
    thief.create("/also", ephemeral=True)
    assert b.exists("/also").ephemeralOwner == session[0]
    thief.stop()
    assert b.exists("/mine") is None and b.exists("/also") is None
    b.create("/data", b"1")
    weather.do("heal")
    eventually(lambda: KazooState.LOST in states and states[-1] == KazooState.CONNECTED, "lost, and connected again")
    assert a.client_id != session
    eventually(lambda: data[-1] == b"1", "the watch goes on in the new session")


def wrong_password(w):
    a = w.client()
    a.create("/mine", ephemeral=True)
    stranger = w.client(client_id=(a.client_id[0], b"\x01" * 16))
    assert stranger.client_id[0] != a.client_id[0]
    assert a.exists("/mine").ephemeralOwner == a.client_id[0]


def session_moves(w):
    """The newest connection has the session; the older one is closed, and may take it back."""
    a, b = w.clients(2)
    states = []
    a.add_listener(states.append)
    a.create("/mine", ephemeral=True)
    id, password = a.client_id
    host, port = w.addr.split(":")
    with socket.create_connection((host, int(port)), 30) as mover:
        mover.sendall(struct.pack(">iiqiqi16s", 44, 0, 0, SESSION * 1000, id, 16, password))
        reply = mover.recv(40, socket.MSG_WAITALL)
        length, _, timeout, got, _, got_password = struct.unpack(">iiiqi16s", reply)
        assert (length, timeout, got, got_password) == (36, SESSION * 1000, id, password)
        eventually(lambda: KazooState.SUSPENDED in states, "the older connection is closed")
        assert mover.recv(1) == b"", "it has come back, and this one is closed"
    eventually(lambda: states == [KazooState.SUSPENDED, KazooState.CONNECTED], "it goes on")
    assert a.client_id == (id, password)
    assert b.exists("/mine").ephemeralOwner == id


def stop_removes_ephemerals(w):
    a, b = w.clients(2)
    for i in range(50):
        a.create("/e%d" % i, ephemeral=True)
    a.stop()
    assert b.get_children("/") == []
    try:
        b.get("/e0")
        raise AssertionError("there")
    except NoNodeError:
        pass


def restart_of_the_server(w):
    """Runs alone. Sessions, locks, ephemerals and numbers go on; credentials are given again."""
    weather = w.weather()
    a, b = w.client(weather=weather), w.client(weather=weather)
    a.add_auth("digest", "a:secret")
    a.create("/secret", b"1", acl=CREATOR_ALL_ACL)
    a.create("/mine", ephemeral=True)
    a.create("/seq/n-", sequence=True, makepath=True)
    data = []
    b.DataWatch("/data", lambda value, stat: data.append(value))
    held = a.Lock("/lock", "a")
    held.acquire()
    waiting = Later(b.Lock("/lock", "b").acquire)
    eventually(lambda: held.contenders() == ["a", "b"], "b in the queue")
    sessions, zxid = (a.client_id, b.client_id), a.exists("/mine").czxid

    # No client connects meanwhile: a ZooKeeper that is just starting may take a connection and never answer on it.
    for order in ("cut", "restart", "heal"):
        weather.do(order)

    assert a.retry(a.get, "/secret")[0] == b"1"
    eventually(lambda: a.client_id and b.client_id, "both connected")
    assert (a.client_id, b.client_id) == sessions
    assert a.exists("/mine").ephemeralOwner == a.client_id[0] and a.exists("/mine").czxid == zxid
    assert a.create("/seq/n-", sequence=True) == "/seq/n-0000000001"
    stat = a.retry(a.create, "/data", b"1", include_data=True)[1]
    assert stat.czxid > zxid
    eventually(lambda: data[-1] == b"1", "the watch goes on")
    assert held.contenders() == ["a", "b"] and waiting.running()
    held.release()
    assert waiting.get()
    assert w.client().create("/new", ephemeral=True) == "/new"


SCENARIOS = scenarios([
    reconnect, expiry_by_silence, expiry_from_elsewhere, wrong_password, session_moves, stop_removes_ephemerals,
    restart_of_the_server,
])
