"""Takes locks from a Lockkeeper gateway, and stops the work that they protect in time.

    import lockkeeper

    client = lockkeeper.Client.from_env()             # LOCKKEEPER_URL, LOCKKEEPER_TOKEN
    with client.lock("report") as lease:              # or: async with client.lock("report") as lease:
        write_report(fence=lease.fence)

The block runs while the lock is held. When the lease is lost, LeaseLost is raised inside the block: at once when somebody
ended the lease, and otherwise before another client can have the lock. The block leaves the lock on every path.

How the block is stopped
    In the main thread LeaseLost also interrupts blocking calls such as sleep and recv: signal SIGURG wakes them up. In other
    threads, and on Windows, LeaseLost is raised when the thread runs Python code again. In asyncio the task is cancelled, and
    its CancelledError leaves the block as LeaseLost. An exception that the block swallows (except Exception) is raised again,
    and the block never ends as if all was well. on_lost says what else to do: see Client.lock.

What it cannot do
    C code that does not return, an event loop that is blocked, and a process that stands still (SIGSTOP, a suspended machine)
    cannot be interrupted. on_lost="exit" ends the process in the first two cases, unless C code keeps the interpreter's lock.
    What must not happen even then is refused by what the lock protects: send it lease.fence, and let it refuse lower ones.
    LeaseLost can come between any two steps of the block, as KeyboardInterrupt can. Work that must not be torn apart asks
    lease.held or lease.check() between its steps, with on_lost set to a function that does nothing.

Errors are LeaseLost, NotAcquired and Problem, all of them Error; ConnectionError when no gateway answered; ValueError for
arguments that make no sense. Times are seconds. Heartbeats come from threads of their own, also in asyncio. A child of fork()
does not hold the leases of its parent. Needs CPython 3.9 or later and no package; the file may be copied.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import http.client
import inspect
import json
import logging
import os
import queue
import random
import secrets
import signal
import socket
import ssl
import sys
import threading
import time
import urllib.parse
from collections import deque
from types import TracebackType
from typing import (Any, Awaitable, Callable, Deque, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple, Type,
                    TypeVar, Union)

__version__ = "1.0.0"
__all__ = ["Client", "Guard", "Lease", "Lock", "Holder", "Error", "LeaseLost", "NotAcquired", "Problem"]

_log = logging.getLogger("lockkeeper")
_T = TypeVar("_T")
_OnLost = Union[str, Callable[["LeaseLost"], object]]

_LATE = 10.0  # how late an answer may be
_POLL = 25.0  # for which the gateway holds a look at a waiting lease
_LEAVE = 2.0  # for leaving a queue
_TRY = 30.0  # for finding a gateway that answers an acquire that does not wait
_RELEASE = 5.0  # for a release
_LOOK = 0.25  # between two looks at the clock: a timer stands still while the machine sleeps
_AGAIN = 0.05  # between two tries to interrupt a block
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # between two tries of a request
_MOST = 1 << 20  # bytes of an answer. A lease of 64 locks takes some 20 KiB
_TAKEN = ("held_by_other", "lock_delayed", "wait_elapsed")
_EXIT = 76  # what on_lost="exit" ends the process with, as lockctl run does


class Error(Exception):
    """The errors of this module."""


class LeaseLost(Error):
    """The lease ended before its holder released it, and the work had to stop.

    reason is the gateway's (expired, revoked, removed, destroyed, ...), "deadline" when no gateway confirmed the lease in time,
    "gone" when no gateway knows it, "forked" in a child process, "exit" when the interpreter ends. by is who ended the lease
    and detail a sentence for people, where the gateway tells."""

    def __init__(self, lease_id: str, reason: str, by: str = "", detail: str = "") -> None:
        super().__init__(f"lease {lease_id} is lost: {reason}{by and ' by ' + by}{detail and ' (' + detail + ')'}")
        self.lease_id, self.reason, self.by, self.detail = lease_id, reason, by, detail

    def __reduce__(self) -> Tuple[Any, ...]:
        return LeaseLost, (self.lease_id, self.reason, self.by, self.detail)


class Holder(NamedTuple):
    """One who holds a lock. lease_id is empty, and fencing_token 0, for a program that locks in ZooKeeper itself."""

    owner: str
    lease_id: str
    fencing_token: int


class NotAcquired(Error):
    """Others hold the lock, and the time for waiting is over. retry_after is the least time after which that can change."""

    def __init__(self, lock: str, holders: Sequence[Holder] = (), queue_length: int = 0, retry_after: float = 0) -> None:
        names = ", ".join(h.owner or h.lease_id for h in holders)
        super().__init__(f"{lock} is held{names and ' by ' + names}; {queue_length} wait")
        self.lock, self.holders, self.queue_length, self.retry_after = lock, list(holders), queue_length, retry_after

    def __reduce__(self) -> Tuple[Any, ...]:
        return NotAcquired, (self.lock, self.holders, self.queue_length, self.retry_after)


class Problem(Error):
    """The gateway refuses the request. Programs go by code (docs/errors.md), people by detail. body is the whole answer."""

    def __init__(self, status: int, body: Dict[str, Any], retry_after: float = 0) -> None:
        text: Callable[[str], str] = lambda member: str(body.get(member) or "")
        super().__init__(f"{status} {text('code')}: {text('detail') or text('title')}")
        self.status, self.body, self.retry_after = status, body, retry_after
        self.code, self.detail, self.field, self.request_id = map(text, ("code", "detail", "field", "request_id"))

    def __reduce__(self) -> Tuple[Any, ...]:
        return Problem, (self.status, self.body, self.retry_after)

    @property
    def _temporary(self) -> bool:
        return self.status >= 500 or self.status in (408, 429)

    @property
    def _final(self) -> bool:
        return self.status in (403, 404, 410)


class _NoAnswer(ConnectionError):
    """No gateway answered: no connection, no answer in time, or one that is not a gateway's."""

    retry_after = 0.0


class _PlaceLost(Exception):
    """A waiting lease ended before it was granted to this client."""


def _make_clock() -> Callable[[], float]:
    """A clock in seconds that goes on while the machine sleeps."""
    for system, name in (("linux", "CLOCK_BOOTTIME"), ("darwin", "CLOCK_MONOTONIC")):
        if sys.platform == system and hasattr(time, name):
            return functools.partial(time.clock_gettime, getattr(time, name))
    return _Further(time.monotonic, time.time)


class _Further:
    """Two clocks in one: in each step it goes as far as the one that went further."""

    def __init__(self, *clocks: Callable[[], float]) -> None:
        self._clocks, self._mutex, self._now = clocks, threading.Lock(), 0.0
        self._last = [c() for c in clocks]

    def __call__(self) -> float:
        with self._mutex:
            at = [c() for c in self._clocks]
            self._now += max(0.0, *(a - b for a, b in zip(at, self._last)))
            self._last = at
            return self._now


_now = _make_clock()


class _Scope:
    """The requests of one call. stop ends the one that is under way, and lets no other begin."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._mutex = threading.Lock()
        self._socket: Optional[socket.socket] = None

    def use(self, sock: Optional[socket.socket]) -> None:
        with self._mutex:
            self._socket = sock
        if sock is not None and self.stopped.is_set():
            raise _NoAnswer("stopped")

    def stop(self) -> None:
        self.stopped.set()
        with self._mutex:
            if self._socket is not None:
                try:  # not SSLSocket's: that would let the reader go on without TLS
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
                except OSError:
                    pass


class _UnixConnection(http.client.HTTPConnection):
    path = ""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class _Request(NamedTuple):
    method: str
    path: str
    lease: str = ""  # the lease token; a request without one carries the client's own token
    body: Optional[Dict[str, Any]] = None
    key: str = ""  # the idempotency key
    late: float = _LATE  # how late the answer may be
    hold: float = 0.0  # for which the gateway was asked to hold it


class _Gateway:
    """One base URL, and the idle connections to it."""

    def __init__(self, url: str, tls: Optional[ssl.SSLContext]) -> None:
        self.url, self._tls, self._pid = url, tls, os.getpid()
        self._idle: Deque[http.client.HTTPConnection] = deque()
        u = urllib.parse.urlsplit(url)
        self._scheme, self._host, self._port = u.scheme, u.hostname or "", u.port
        self.path = u.path if u.scheme == "unix" else u.path.rstrip("/")
        if u.scheme == "unix":
            if not u.path or not hasattr(socket, "AF_UNIX"):
                raise ValueError(f"{url!r} cannot be used: it must be like unix:/run/lockkeeper.sock, on a system that has such sockets")
            return
        if u.scheme not in ("http", "https") or not u.hostname:
            raise ValueError(f"{url!r} is no URL of a gateway: it must be like http://127.0.0.1:8080 or unix:/run/lockkeeper.sock")
        if u.username is not None or u.query or u.fragment:
            raise ValueError("the URL of a gateway must have no user, query or fragment; the token goes into LOCKKEEPER_TOKEN")

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._scheme == "unix":
            connection = _UnixConnection("localhost", timeout=timeout)
            connection.path = self.path
        elif self._scheme == "https":
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        connection.connect()
        return connection

    def send(self, scope: _Scope, r: _Request, headers: Dict[str, str], within: float) -> Tuple[float, int, str, bytes]:
        """Returns when the request was sent, the status, Retry-After and the body."""
        if self._pid != os.getpid():  # connections are their process's
            self._idle, self._pid = deque(), os.getpid()
        body = None if r.body is None else json.dumps(r.body).encode()
        path = r.path if self._scheme == "unix" else self.path + r.path
        while True:
            sent = _now()
            end = time.monotonic() + within
            connection: Optional[http.client.HTTPConnection] = None
            try:
                connection = self._idle.pop()
            except IndexError:
                pass
            idle = connection is not None
            try:
                connection = connection or self._connect(min(r.late, within))
                sock = connection.sock
                scope.use(sock)
                sock.settimeout(min(r.late, within))
                connection.request(r.method, path, body, headers)
                sock.settimeout(within)
                answer = connection.getresponse()
                text = b""
                while len(text) <= _MOST:
                    sock.settimeout(max(end - time.monotonic(), 0.001))
                    part = answer.read1(1 << 16)
                    if not part:
                        break
                    text += part
                if len(text) > _MOST:
                    raise _NoAnswer("the answer is too long")
                scope.use(None)
                if answer.will_close or len(self._idle) >= 32:
                    connection.close()
                else:
                    self._idle.append(connection)
                return sent, answer.status, answer.headers.get("Retry-After", ""), text
            except BaseException as e:
                scope.use(None)
                if connection is not None:
                    connection.close()
                if not isinstance(e, (OSError, http.client.HTTPException)):
                    raise
                # The gateway had closed the idle connection. All requests can be repeated.
                if idle and not isinstance(e, (socket.timeout, _NoAnswer)) and not scope.stopped.is_set():
                    continue
                raise _NoAnswer(f"{self.url}: {e or type(e).__name__}") from e


class Lock(NamedTuple):
    """One of the locks of Client.lock_all. permits or limit make it a semaphore's; a limit of 0 is the lock's own."""

    name: str
    ns: str = ""
    shared: bool = False
    permits: int = 0
    limit: int = 0

    def _body(self) -> Dict[str, Any]:
        counted = self.permits or self.limit
        if self.shared and counted or min(self.permits, self.limit) < 0:
            raise ValueError(f"lock {self.name}: shared and permits exclude each other, and permits and limit cannot be negative")
        body = {"ns": self.ns, "mode": "shared" if self.shared else "semaphore" if counted else "",
                "permits": counted and max(self.permits, 1), "limit": self.limit}
        return {k: v for k, v in body.items() if v}


class _Want(NamedTuple):
    """What one call of lock asks for."""

    name: str
    path: str
    ns: str
    body: Dict[str, Any]
    wait: Optional[float]
    margin: Optional[float]
    on_lost: _OnLost
    on_revoke: Optional[Callable[[str], object]]
    on_queued: Optional[Callable[[int], object]]


def _margin(margin: Optional[float], ttl: float) -> float:
    if margin is None:
        return min(1.0, ttl / 5)
    if not 0 <= 2 * margin < ttl:
        raise ValueError(f"margin ({margin:g} s) must be at least 0 and less than half of the ttl ({ttl:g} s)")
    return margin


class Client:
    """Takes locks from the gateways of one fleet. Threads may share it.

    urls are the gateways: http://, https:// or unix:/path. The next one is asked when one does not answer. token is the API
    token; token_file a file that holds it, read for each acquire. tls is for https, instead of the system's certificates."""

    def __init__(self, urls: Union[str, Sequence[str]] = "http://127.0.0.1:8080", *, token: str = "", token_file: str = "",
                 tls: Optional[ssl.SSLContext] = None) -> None:
        if token and token_file:
            raise ValueError("both a token and a token file are given (LOCKKEEPER_TOKEN, LOCKKEEPER_TOKEN_FILE): leave one out")
        urls = [u.strip() for u in (urls.split(",") if isinstance(urls, str) else urls)]
        if any(u.startswith("https:") for u in urls):
            tls = tls or ssl.create_default_context()
        self._gateways = [_Gateway(u, tls) for u in urls]
        if not self._gateways:
            raise ValueError("urls is empty: give the URL of a gateway, such as http://127.0.0.1:8080")
        self._token, self._token_file, self._next = token, token_file, 0

    @classmethod
    def from_env(cls, tls: Optional[ssl.SSLContext] = None) -> Client:
        """A Client of LOCKKEEPER_URL (with commas between several), LOCKKEEPER_TOKEN or LOCKKEEPER_TOKEN_FILE."""
        env = os.environ.get
        return cls(env("LOCKKEEPER_URL") or "http://127.0.0.1:8080", token=env("LOCKKEEPER_TOKEN", ""),
                   token_file=env("LOCKKEEPER_TOKEN_FILE", ""), tls=tls)

    def lock(self, name: str, *, ns: str = "", shared: bool = False, permits: int = 0, limit: int = 0,
             ttl: Optional[float] = None, wait: Optional[float] = None, margin: Optional[float] = None, owner: str = "",
             metadata: str = "", lock_delay: float = 0, on_lost: _OnLost = "raise",
             on_revoke: Optional[Callable[[str], object]] = None,
             on_queued: Optional[Callable[[int], object]] = None) -> Guard:
        """A block that runs while the lock is held: `with`, `async with`, or a decorator of a function.

        shared      together with other readers
        permits     of a semaphore with this limit; a limit of 0 is the lock's own
        ttl         for so long others wait when this process dies: 30 s unless given, 1 s to 24 h
        wait        in the queue: None for as long as it takes, 0 to try; then NotAcquired
        margin      so long before its time is over the lease counts as lost, because stopping takes time: 1 s, or a fifth of
                    a ttl below 5 s
        owner       a label for people; metadata is a text that every client can read at the lock
        lock_delay  keeps the lock free for so long after the lease
        on_lost     "raise" raises LeaseLost in the block. "exit" does so, and ends the process with os._exit(76) when the
                    block has not ended shortly before the lease. A function is called instead, with the LeaseLost, in
                    a thread of its own. In all cases the block ends with LeaseLost.
        on_revoke   is called once, with a reason, when the holder is asked to release the lease. The block goes on.
        on_queued   is called with the place among the waiters. Callbacks come from other threads, in asyncio from the loop.
        """
        lock = Lock(name, ns, shared, permits, limit)
        return self._guard(name, f"/v1/locks/{urllib.parse.quote(name, safe='')}/leases", ns, lock._body(), ttl, wait, margin,
                           owner, metadata, lock_delay, on_lost, on_revoke, on_queued)

    def lock_all(self, locks: Sequence[Union[str, Lock]], *, ttl: Optional[float] = None, wait: Optional[float] = None,
                 margin: Optional[float] = None, owner: str = "", metadata: str = "", lock_delay: float = 0,
                 on_lost: _OnLost = "raise", on_revoke: Optional[Callable[[str], object]] = None,
                 on_queued: Optional[Callable[[int], object]] = None) -> Guard:
        """As lock, for all the locks at once. Two clients that name the same locks in different orders do not block each other."""
        all_ = [Lock(x) if isinstance(x, str) else x for x in locks]
        body = {"locks": [{"lock": x.name, **x._body()} for x in all_]}
        return self._guard(",".join(x.name for x in all_), "/v1/leases", "", body, ttl, wait, margin, owner, metadata,
                           lock_delay, on_lost, on_revoke, on_queued)

    def elect(self, name: str, lead: Callable[[Lease], _T], **options: Any) -> _T:
        """Calls lead while this client is the leader: the holder of the lock. The options are those of lock. A leader whose
        lease is lost is a candidate again. Returns what lead returns; the fencing token is the number of its term."""
        while True:
            try:
                with self.lock(name, **options) as lease:
                    return lead(lease)
            except LeaseLost as lost:
                _log.warning("%s: no longer the leader: %s", name, lost)

    async def aelect(self, name: str, lead: Callable[[Lease], Awaitable[_T]], **options: Any) -> _T:
        """elect for asyncio."""
        while True:
            try:
                async with self.lock(name, **options) as lease:
                    return await lead(lease)
            except LeaseLost as lost:
                _log.warning("%s: no longer the leader: %s", name, lost)

    def _guard(self, name: str, path: str, ns: str, body: Dict[str, Any], ttl: Optional[float], wait: Optional[float],
               margin: Optional[float], owner: str, metadata: str, lock_delay: float, on_lost: _OnLost,
               on_revoke: Optional[Callable[[str], object]], on_queued: Optional[Callable[[int], object]]) -> Guard:
        if on_lost not in ("raise", "exit") and not callable(on_lost):
            raise ValueError("on_lost must be 'raise', 'exit' or a function")
        if margin is not None:
            _margin(margin, ttl or 30.0)
        more = {"ttl": ttl and _ms(ttl), "owner": owner, "metadata": metadata, "lock_delay": lock_delay and _ms(lock_delay),
                "async": wait is None or wait > 0}
        body.update((k, v) for k, v in more.items() if v)
        return Guard(self, _Want(name, path, ns, body, wait, margin, on_lost, on_revoke, on_queued))

    def _once(self, scope: _Scope, r: _Request, until: Optional[float] = None) -> Tuple[float, Dict[str, Any]]:
        """Sends the request to one gateway. After a failure that another may not have, the next request goes to the next one."""
        headers = {"User-Agent": "lockkeeper-python/" + __version__}
        token = "" if r.lease else self._token
        if not r.lease and self._token_file:
            with open(self._token_file, encoding="utf-8") as f:
                token = f.read().strip()
        headers.update((k, v) for k, v in (
            ("Content-Type", r.body is not None and "application/json"), ("Idempotency-Key", r.key),
            ("Lease-Token", r.lease), ("Authorization", token and "Bearer " + token)) if v)
        at = self._next
        within = r.hold + r.late
        if until is not None:
            within = max(min(within, until - _now()), 0.001)
        try:
            if scope.stopped.is_set():
                raise _NoAnswer("stopped")
            sent, status, retry, text = self._gateways[at % len(self._gateways)].send(scope, r, headers, within)
            return sent, _read(r, status, float(retry) if retry.isdigit() else 0.0, text)
        except (Problem, _NoAnswer) as e:
            if _temporary(e) and self._next == at:
                self._next = at + 1
            raise

    def _repeated(self, scope: _Scope, r: _Request, until: Optional[float]) -> Tuple[float, Dict[str, Any]]:
        """Sends the request until a gateway answers with success, or with a refusal that a repeat does not change."""
        pause = _PAUSE
        while True:
            try:
                return self._once(scope, r, until)
            except (Problem, _NoAnswer) as e:
                if not _temporary(e) or until is not None and _now() >= until:
                    raise
                if pause == _PAUSE:
                    _log.warning("%s %s: %s; trying again", r.method, r.path.partition("?")[0], e)
                wait = _jitter(max(pause, e.retry_after))
                if until is not None:
                    wait = min(wait, max(until - _now(), 0))
                if scope.stopped.wait(wait) or until is not None and _now() >= until:
                    raise
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _acquire(self, want: _Want, scope: _Scope, take: Callable[[Lease], None]) -> None:
        """Waits for the lease and hands it over to take, which must see to its end."""
        until = None if want.wait is None else _now() + max(want.wait, 0)
        waits = bool(want.body.get("async"))
        while True:
            queued: List[bool] = []
            try:
                return self._attempt(want, scope, until if waits else _now() + _TRY, until, take, queued)
            except (Problem, _NoAnswer, _PlaceLost) as e:
                if scope.stopped.is_set():
                    raise NotAcquired(want.name) from None
                over = until is not None and _now() >= until
                taken = isinstance(e, Problem) and e.code in _TAKEN
                again = waits and taken or isinstance(e, _PlaceLost)
                if again and not over:
                    # The lock cannot be waited for in its queue now, or the place was lost.
                    wait = _jitter(max(_PAUSE, getattr(e, "retry_after", 0)))
                    scope.stopped.wait(wait if until is None else min(wait, max(until - _now(), 0)))
                elif again or taken or waits and over and queued:
                    raise self._not_acquired(want, e) from None
                else:
                    raise

    def _attempt(self, want: _Want, scope: _Scope, asking: Optional[float], until: Optional[float],
                 take: Callable[[Lease], None], queued: List[bool]) -> None:
        """Takes the lock, or one place in its queue and waits there. All repeats have one idempotency key."""
        r = _Request("POST", want.path, body=want.body, key=secrets.token_hex(16))
        token = ""
        try:
            sent, answer = self._repeated(scope, r, asking)
            token = answer["token"]
            ticket, position = answer, 0
            while ticket["state"] == "waiting":
                queued.append(True)
                if want.on_queued and ticket.get("position", position) != position:
                    position = ticket["position"]
                    want.on_queued(position)
                look = f"/v1/leases/self?wait={_POLL:g}s&since={urllib.parse.quote(ticket.get('rev', ''), safe='')}"
                try:
                    _, ticket = self._repeated(scope, _Request("GET", look, token, hold=_POLL), until)
                except Problem as e:
                    raise _PlaceLost() if e._final else e
            if ticket["state"] != "held":
                raise _PlaceLost()
            ttl, waited = ticket["ttl_ms"] / 1000, ticket.get("waited_ms")
            if ticket is not answer or waited is None:
                # The TTL began before this answer was asked for: a heartbeat begins it anew.
                try:
                    sent, _ = self._repeated(scope, _Request("POST", "/v1/leases/self/heartbeat", token), _now() + ttl)
                except Problem as e:
                    raise _PlaceLost() if e._final else e
                waited = 0
            lease = Lease(self, want, token, ticket, sent + waited / 1000 + ttl)
            take(lease)
            lease._start()
        except BaseException as e:
            if token or not isinstance(e, Problem) or e._temporary:
                self._leave(token, r)
            raise

    def _leave(self, token: str, r: _Request) -> None:
        """Gives up a place or a lease. A repeat with its idempotency key tells the token of what was taken without an answer."""
        end = _now() + _LEAVE
        try:
            token = token or self._repeated(_Scope(), r, end)[1]["token"]
            self._repeated(_Scope(), _Request("DELETE", "/v1/leases/self", token, late=_LEAVE), end)
        except (Problem, OSError):
            pass  # the place passes on when its time is over

    def _not_acquired(self, want: _Want, e: Exception) -> NotAcquired:
        seen = e.body if isinstance(e, Problem) else {}
        if not seen.get("holders") and "locks" not in want.body:
            path = want.path[: -len("/leases")] + (want.ns and "?ns=" + urllib.parse.quote(want.ns))
            try:
                seen = self._once(_Scope(), _Request("GET", path, late=_LEAVE))[1]
            except (Problem, OSError):
                pass
        holders = [Holder(h.get("owner", ""), h.get("lease_id", ""), h.get("fencing_token", 0)) for h in seen.get("holders", ())]
        return NotAcquired(want.name, holders, seen.get("queue_length", 0), getattr(e, "retry_after", 0))


def _read(r: _Request, status: int, retry_after: float, text: bytes) -> Dict[str, Any]:
    """The answer to r. An answer that a gateway does not give is none."""
    if status == 204:
        return {}
    try:
        body = json.loads(text)
        if 200 <= status < 300 and isinstance(body, dict) and (not r.lease and r.method == "GET" or "ttl_ms" in body):
            return body
        if status >= 400 and body["code"]:
            raise Problem(status, body, retry_after)
    except (ValueError, TypeError, LookupError):
        pass
    e = _NoAnswer(f"{r.method} {r.path.partition('?')[0]} was answered with {status}, and not as a gateway does")
    e.retry_after = retry_after
    raise e


def _temporary(e: Exception) -> bool:
    return e._temporary if isinstance(e, Problem) else True


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _jitter(seconds: float) -> float:
    return seconds * random.uniform(1, 1.25)


class Lease:
    """A lock that is held, while its block runs."""

    def __init__(self, client: Client, want: _Want, token: str, grant: Dict[str, Any], until: float) -> None:
        self.id: str = grant["lease_id"]
        self.fence: int = grant["fencing_token"]
        """The fencing token: each holder has a higher one than the holder before. Of several locks, the highest."""
        self._locks = grant.get("locks", ())
        self._client, self._want, self._token, self._until, self._pid = client, want, token, until, os.getpid()
        self._ttl = grant["ttl_ms"] / 1000
        self._margin = _margin(want.margin, self._ttl)
        self._fate: Dict[str, LeaseLost] = {}  # "lost": why. The first one stays
        self._over = False  # the block has ended
        self._parted = False  # and nothing will be raised in it any more
        self._scope = _Scope()  # of the heartbeats
        self._inbox: queue.SimpleQueue[None] = queue.SimpleQueue()  # wakes the keeper
        self._acks: queue.SimpleQueue[None] = queue.SimpleQueue()  # _parted
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()  # released
        self._on_done: Callable[[], object] = lambda: None
        self._stop: Callable[[], object] = lambda: None  # interrupts the block, again and again
        self._thread: Optional[threading.Thread] = None  # of the block, if it is to be interrupted
        self._ident = 0
        self._guard_id = 0
        self._landed = False
        self._sent = False
        self._keeper = threading.Thread(target=self._keep, name="lockkeeper-keeper", daemon=True)

    def __repr__(self) -> str:
        return f"<Lease {self.id} fence={self.fence} held={self.held}>"

    @property
    def held(self) -> bool:
        """Whether the work may go on now, for a step that takes less than the margin."""
        return not (self._over or self._fate or self._pid != os.getpid()) and self._left() > 0

    def check(self) -> None:
        """Raises LeaseLost when the lease is not held."""
        if not self.held:
            if self._pid == os.getpid():
                self._lose("deadline", detail="no gateway confirmed it in time")
            raise self._loss()

    def fence_of(self, lock: str, ns: str = "default") -> int:
        """The fencing token of one lock of lock_all."""
        return next(int(x["fencing_token"]) for x in self._locks if (x["lock"], x["ns"]) == (lock, ns))

    def _left(self) -> float:
        return self._until - self._margin - _now()

    def _lose(self, reason: str, by: str = "", detail: str = "") -> None:
        self._fate.setdefault("lost", LeaseLost(self.id, reason, by, detail))
        self._inbox.put(None)

    def _lose_by(self, p: Problem) -> None:
        self._lose(p.body.get("reason") or "gone", p.body.get("by") or "", p.detail)

    def _loss(self) -> LeaseLost:
        lost = self._fate.get("lost") or LeaseLost(self.id, "forked", detail="the lease is the parent process's")
        return LeaseLost(lost.lease_id, lost.reason, lost.by, lost.detail)

    def _start(self) -> None:
        _open[self._keeper] = lambda: self._lose("exit", detail="the interpreter ends")
        self._keeper.start()
        threading.Thread(target=self._beat, name="lockkeeper-heartbeats", daemon=True).start()

    def _beat(self) -> None:
        """Sends one heartbeat after the other until the lease is over."""
        held = min(self._ttl / 3, 240.0)  # the gateway holds none for longer than 5 minutes
        hold, pause, asked = held, _PAUSE, False
        while not (self._over or self._fate):
            path = "/v1/leases/self/heartbeat" + (f"?wait={_ms(hold)}" if hold else "")
            r = _Request("POST", path, self._token, hold=hold, late=min(_LATE, max(self._ttl / 6, 0.1)))
            try:
                sent, answer = self._client._once(self._scope, r)
            except (Problem, _NoAnswer) as e:
                if isinstance(e, Problem) and e._final:
                    return self._lose_by(e)
                self._scope.stopped.wait(_jitter(min(pause, self._ttl / 20)))
                hold, pause = 0.0, min(2 * pause, _LONGEST_PAUSE)
                continue
            self._until = max(self._until, sent + answer["ttl_ms"] / 1000)
            hold, pause = held, _PAUSE
            ask = answer.get("revoke_requested")
            if ask and not asked and self._want.on_revoke:
                asked = True
                threading.Thread(target=self._want.on_revoke, args=(ask.get("reason", ""),), daemon=True).start()
            # An early answer that says nothing about this lease, such as one about new waiters, must not make a busy loop.
            self._scope.stopped.wait(_PAUSE)

    def _doze(self, seconds: float) -> None:
        try:
            self._inbox.get(timeout=seconds)
        except queue.Empty:
            pass

    def _keep(self) -> None:
        """Ends the lease at its deadline, stops the block, releases the lease. It alone interrupts the block."""
        while not (self._over or self._fate):
            left = self._left()
            if left <= 0:
                self._lose("deadline", detail="no gateway confirmed it in time")
            else:
                self._doze(min(left, _LOOK))
        self._scope.stop()
        if self._fate:
            self._stop_block(self._fate["lost"])
        if self._sent and self._thread and self._thread.is_alive():
            _raise_in(self._ident, None)  # what has not landed yet
        self._parted = True
        self._acks.put(None)
        if self._fate.get("lost", LeaseLost("", "deadline")).reason in ("deadline", "exit"):
            self._release()
        self._done.put(None)
        self._on_done()
        _open.pop(self._keeper, None)

    def _stop_block(self, lost: LeaseLost) -> None:
        on_lost = self._want.on_lost
        latest = _now() + 0.8 * self._margin
        if callable(on_lost):
            threading.Thread(target=on_lost, args=(self._loss(),), daemon=True).start()
        while not self._over:
            if not callable(on_lost):
                self._stop()
            if on_lost == "exit" and _now() >= latest:
                os.write(2, f"lockkeeper: {lost}, and its block did not end: this process ends\n".encode())
                os._exit(_EXIT)
            self._doze(_AGAIN)

    def _release(self) -> None:
        ended = _now()
        try:
            r = _Request("DELETE", "/v1/leases/self", self._token, late=_LEAVE)
            self._client._repeated(_Scope(), r, ended + _RELEASE)
        except Problem as e:
            if e._final:
                self._lose_by(e)
        except OSError as e:
            if self._until - self._margin <= ended:
                self._lose("deadline", detail="no gateway confirmed it in time")
            _log.warning("lease %s could not be released, and ends by itself within %g s: %s", self.id, self._ttl, e)

    def _end(self) -> None:
        self._over = True
        self._inbox.put(None)

    def _part(self) -> None:
        """Ends the block. When it returns nothing will be raised in the block any more."""
        while not self._parted and self._keeper.is_alive() and self._pid == os.getpid():
            try:
                self._end()
                self._acks.get(timeout=1)
            except queue.Empty:
                pass
            except LeaseLost as e:
                if e.lease_id != self.id:
                    raise

    def _interrupt(self) -> None:
        """Raises LeaseLost in the thread of the block, unless it is on its way there already."""
        if self._landed or self._thread is None or not self._thread.is_alive():
            return
        self._sent = True
        _raise_in(self._ident, self._landing)
        if self._thread is threading.main_thread() and hasattr(signal, "SIGURG"):
            signal.pthread_kill(self._ident, signal.SIGURG)

    def _arm(self, guard: Guard) -> None:
        lease = self

        class Landing(LeaseLost):
            """Says when it has been raised in the block, and when the block has swallowed it."""

            def __init__(self) -> None:
                lost = lease._loss()
                super().__init__(lost.lease_id, lost.reason, lost.by, lost.detail)
                lease._landed = True

            def __del__(self) -> None:
                trace = self.__traceback__
                while trace is not None:
                    frame = trace.tb_frame
                    if frame.f_code in _ends and id(frame.f_locals.get("self")) == lease._guard_id:
                        lease._over = True  # it came between the block and _part
                    trace = trace.tb_next
                lease._landed = False

        Landing.__name__, Landing.__qualname__ = "LeaseLost", "LeaseLost"
        self._landing, self._guard_id = Landing, id(guard)
        self._ident, self._thread = threading.get_ident(), threading.current_thread()
        if self._thread is threading.main_thread():
            _wake_up(self.id)
        self._stop = self._interrupt


def _raise_in(ident: int, error: Optional[Type[BaseException]]) -> None:
    """Raises error in a thread the next time it runs Python code; None takes back what has not been raised yet."""
    what = ctypes.py_object(error) if error is not None else ctypes.py_object()
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), what)


_wakers: Dict[str, None] = {}  # leases of the main thread that rely on _woken
_open: Dict[threading.Thread, Callable[[], object]] = {}  # threads that have something to give back, and how they are told to


def _woken(*_: object) -> None:
    """A signal handler that does nothing: the signal makes blocking calls run Python code, and so what was raised."""


def _wake_up(lease_id: str) -> None:
    if hasattr(signal, "SIGURG"):
        _wakers[lease_id] = None
        if signal.getsignal(signal.SIGURG) in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGURG, _woken)


def _sleep_on(lease_id: str) -> None:
    if _wakers.pop(lease_id, 0) is None and not _wakers and threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGURG) is _woken:
            time.sleep(0)  # a signal that is on its way arrives here
            signal.signal(signal.SIGURG, signal.SIG_DFL)


class Guard:
    """What Client.lock returns: `with` and `async with` take the lock, run their block and release the lock."""

    def __init__(self, client: Client, want: _Want) -> None:
        self._client, self._want = client, want
        self._lease: Optional[Lease] = None
        self._scope = _Scope()
        self._task: Any = None
        self._cancelling = 0
        self._cancelled = False
        self._ours = False

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorates a function, or a coroutine function, so that each call of it runs under the lock."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("a generator function cannot be decorated: its work begins after the call")

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            with Guard(self._client, self._want):
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def async_guarded(*args: Any, **kwargs: Any) -> Any:
            async with Guard(self._client, self._want):
                return await function(*args, **kwargs)

        return async_guarded if inspect.iscoroutinefunction(function) else guarded

    def __enter__(self) -> Lease:
        self._begin()
        if _in_event_loop() and not callable(self._want.on_lost):
            raise RuntimeError("an event loop runs in this thread: use `async with`, so that LeaseLost finds its task")
        try:
            self._client._acquire(self._want, self._scope, self._take)
            lease = self._lease
            assert lease is not None
            lease._arm(self)
            return lease
        except BaseException:
            self.__del__()
            raise

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> bool:
        lease = self._lease
        assert lease is not None
        lease._part()
        _sleep_on(lease.id)
        if lease._pid == os.getpid() and not lease._fate:
            try:
                lease._done.get(timeout=_RELEASE + 1)
            except queue.Empty:
                pass
        return self._finish(lease, error)

    def cancel(self) -> None:
        """Ends the wait for the lock, from another thread: it raises NotAcquired, and its place in the queue is given up."""
        self._scope.stop()

    def _begin(self) -> None:
        if self._lease is not None:
            raise RuntimeError("this block has been entered already: call Client.lock for each")
        self._scope = _Scope()

    def _take(self, lease: Lease) -> None:
        self._lease = lease
        if self._scope.stopped.is_set():
            lease._end()

    def __del__(self) -> None:
        """Ends the lease of a block that was left without __exit__, as an exception between block and __exit__ can do."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease._end()

    def _finish(self, lease: Lease, error: Optional[BaseException]) -> bool:
        self._lease = None
        lost = bool(lease._fate) or lease._pid != os.getpid()
        if not lost or error is not None and not isinstance(error, Exception) and not self._ours:
            return False  # KeyboardInterrupt, SystemExit and cancellation from outside stay what they are
        if isinstance(error, LeaseLost) and error.lease_id == lease.id:
            error.__class__ = LeaseLost
            return False
        raise lease._loss() from error

    # asyncio

    async def __aenter__(self) -> Lease:
        import asyncio

        self._begin()
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        granted = loop.create_future()

        def posted(f: Optional[Callable[[Any], object]]) -> Optional[Callable[[Any], object]]:
            return f and (lambda *args: _post(loop, f, *args))

        want = self._want._replace(on_revoke=posted(self._want.on_revoke), on_queued=posted(self._want.on_queued))

        def settle(error: Optional[BaseException]) -> None:
            if granted.done():
                return
            if error is None:
                granted.set_result(None)
            else:
                granted.set_exception(error)

        def acquire() -> None:
            error: Optional[BaseException] = None
            try:
                self._client._acquire(want, self._scope, self._take)
            except BaseException as e:
                error = e
            _open.pop(threading.current_thread(), None)
            if not _post(loop, settle, error):
                self.__del__()

        worker = threading.Thread(target=acquire, name="lockkeeper-acquire", daemon=True)
        _open[worker] = self._scope.stop
        worker.start()
        try:
            await granted
        except BaseException:
            self._scope.stop()  # the worker leaves the queue, or gives back what it got meanwhile
            self.__del__()
            raise
        lease = self._lease
        assert lease is not None
        self._cancelled = False
        self._cancelling = self._task.cancelling() if hasattr(self._task, "cancelling") else 0
        lease._on_done = lambda: _post(loop, lambda: released.done() or released.set_result(None))
        released = self._released = loop.create_future()
        asked = []

        def stop() -> None:
            if not asked:
                asked.append(_post(loop, self._cancel, lease))

        lease._stop = stop
        return lease

    def _cancel(self, lease: Lease) -> None:
        if not lease._over:
            self._cancelled = True
            self._task.cancel(_MARK)

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> bool:
        lease = self._lease
        assert lease is not None
        lease._end()
        if self._cancelled:
            import asyncio

            self._ours = isinstance(error, asyncio.CancelledError) and (
                self._task.uncancel() <= self._cancelling if hasattr(self._task, "uncancel") else error.args[:1] == (_MARK,))
        if not lease._fate and lease._pid == os.getpid():
            await self._released
        return self._finish(lease, error)



_MARK = "the lease is lost"


def _post(loop: Any, f: Callable[..., object], *args: Any) -> bool:
    """Calls f in the loop; False when the loop is closed."""
    try:
        loop.call_soon_threadsafe(f, *args)
        return True
    except RuntimeError:
        return False


def _in_event_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    try:
        return asyncio is not None and asyncio.get_running_loop() is not None
    except RuntimeError:
        return False


def _at_exit() -> None:
    end = time.monotonic() + _LEAVE
    for stop in list(_open.values()):
        stop()
    for thread in list(_open):
        thread.join(max(0.0, end - time.monotonic()))


_ends = (Guard.__enter__.__code__, Guard.__exit__.__code__)
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open.clear)
