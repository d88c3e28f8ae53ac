"""Takes locks from a Lockkeeper gateway, and stops the work that they protect in time.

    import lockkeeper

    client = lockkeeper.Client.from_env()     # LOCKKEEPER_URL, LOCKKEEPER_TOKEN
    with client.lock("report") as lease:      # in asyncio: async with client.lock("report") as lease:
        write_report(fence=lease.fence)

The block runs while the lock is held. When the lease is lost, LeaseLost stops the block: within milliseconds when an
administrator ended the lease, and otherwise before another client can hold the lock. Every path releases the lock.

How a block is stopped
    LeaseLost is raised inside it. In the main thread the signal SIGURG makes blocking calls such as sleep and recv
    give way. In other threads, and on Windows, LeaseLost comes when the thread runs Python code again. An exception
    that the block swallows (except Exception) is raised again. In asyncio the task is cancelled, and its
    CancelledError leaves the block as LeaseLost. A block whose lease is lost always ends with LeaseLost.

What it cannot do
    It cannot interrupt C code that does not return, a blocked event loop, or a process that stands still (SIGSTOP, a
    suspended machine). on_lost="exit" ends the process in the first two cases, unless C code keeps the interpreter's
    lock (GIL). What must not happen even then is refused by what the lock protects: send it lease.fence, and let it
    refuse lower ones. Like KeyboardInterrupt, LeaseLost can come between any two steps of the block. Work that must
    not be torn apart sets on_lost to a function, and calls lease.check() between its steps.

Errors are LeaseLost, NotAcquired and Problem; ConnectionError when no gateway answered in time; ValueError for
arguments that make no sense. Times are in seconds. Heartbeats come from threads of their own, also in asyncio. A child
of fork() does not hold the leases of its parent. CPython 3.9 or later; no other package; made to be copied.
"""
from __future__ import annotations

import contextlib, ctypes, functools, http.client, json, logging, os, pathlib, queue, random, secrets  # noqa: E401
import signal, socket, ssl, sys, threading, time, urllib.parse, weakref  # noqa: E401
from typing import Any, Awaitable, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

__version__ = "1.0.0"
__all__ = ["Client", "Guard", "Lease", "Lock", "LeaseLost", "NotAcquired", "Problem"]
_T = TypeVar("_T")
_log = logging.getLogger("lockkeeper")
_LATE = 10.0  # how late an answer may be
_POLL = 25.0  # for which the gateway holds a look at a waiting lease
_TRY = 30.0  # for finding a gateway that answers an acquire that does not wait
_LEAVE, _RELEASE = 2.0, 5.0  # for leaving a queue, for a release
_LOOK = 0.25  # between two looks at the clock: a timer stands still while the machine sleeps
_PAUSE, _LONGEST = 0.05, 1.0  # between two tries of a request; _PAUSE also between two tries to interrupt a block
_MOST = 1 << 20  # bytes of an answer; a lease of 64 locks takes some 20 KiB
_SELF, _BEAT = "/v1/leases/self", "/v1/leases/self/heartbeat"
_REASONS = {"deadline": "no gateway confirmed it in time", "forked": "its holder is the parent process"}

class LeaseLost(Exception):
    """The lease ended before its holder released it, and the work had to stop.

    reason is the gateway's (expired, revoked, removed, destroyed, ...), "deadline" when no gateway confirmed the lease
    in time, "gone" when no gateway knows it, "forked" in a child process. by is who ended the lease, and detail
    a sentence for people, where the gateway tells."""

    def __init__(self, lease_id: str, reason: str, by: str = "", detail: str = "") -> None:
        self.lease_id, self.reason, self.by, self.detail = lease_id, reason, by, detail

    def __str__(self) -> str:
        by, detail = self.by and " by " + self.by, self.detail and f" ({self.detail})"
        return f"lease {self.lease_id} is lost: {self.reason}{by}{detail}"

class NotAcquired(Exception):
    """Others hold the lock, and the time for waiting is over. holders are as the gateway describes them (owner, lease_id,
    fencing_token, ...); nothing can change for another retry_after."""

    def __init__(self, lock: str, holders: Sequence[Any] = (), queue_length: int = 0, retry_after: float = 0) -> None:
        self.lock, self.holders, self.queue_length, self.retry_after = lock, list(holders), queue_length, retry_after

    def __str__(self) -> str:
        names = ", ".join(h.get("owner") or "another program" for h in self.holders)
        return f"{self.lock} is held{names and ' by ' + names}; {self.queue_length} wait"

class Problem(Exception):
    """The gateway refuses the request. Programs go by code (docs/errors.md), people by detail; body is all of it."""

    def __init__(self, status: int, body: Dict[str, Any], retry_after: float = 0) -> None:
        self.status, self.body, self.retry_after = status, body, retry_after
        self.code, self.detail, self.field, self.request_id = (
            str(body.get(member) or "") for member in ("code", "detail", "field", "request_id"))
        self._temporary = status >= 500 or status in (408, 429)
        self._final = status in (403, 404, 410)  # where the request has a lease token
        self._taken = self.code in ("held_by_other", "lock_delayed", "wait_elapsed")

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.detail or self.body.get('title')}"

class _NoAnswer(ConnectionError):
    """No gateway answered: no connection, nothing in time, or an answer that is not a gateway's."""

    _temporary, _final, _taken, retry_after = True, False, False, 0.0

def _clock(*clocks: Callable[[], float]) -> Callable[[], float]:
    """A clock that goes on while the machine sleeps. Where there is none: in each step as far as the furthest of two."""
    name = {"linux": "CLOCK_BOOTTIME", "darwin": "CLOCK_MONOTONIC"}.get(sys.platform, "")
    if not clocks and hasattr(time, name):
        return functools.partial(time.clock_gettime, getattr(time, name))
    mutex, now, last = threading.Lock(), 0.0, [c() for c in clocks or (time.monotonic, time.time)]

    def read() -> float:
        nonlocal now, last
        with mutex:
            before, last = last, [c() for c in clocks or (time.monotonic, time.time)]
            now += max(0.0, *(a - b for a, b in zip(last, before)))
            return now
    return read

_now = _clock()

class _Call:
    """The requests of one call, which follow each other. stop, from another thread, ends the call."""

    def __init__(self, client: Client) -> None:
        self.client, self.stopped, self.mutex = client, threading.Event(), threading.Lock()
        self.sock: Optional[socket.socket] = None

    def stop(self) -> None:
        with self.mutex, contextlib.suppress(OSError):
            self.stopped.set()
            if self.sock:  # not SSLSocket.shutdown, after which the reader would read on without TLS
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def use(self, sock: Optional[socket.socket]) -> None:
        with self.mutex:
            self.sock = sock
            if sock and self.stopped.is_set():
                raise _NoAnswer("stopped")

    def sleep(self, seconds: float, until: Optional[float] = None) -> bool:
        """Sleeps a little longer, but not beyond until. False: the call is over."""
        left = seconds if until is None else until - _now()
        stopped = self.stopped.wait(max(min(seconds * random.uniform(1, 1.25), left), 0))
        return not stopped and (until is None or _now() < until)

    def repeat(self, until: Optional[float], *request: Any, **more: Any) -> Tuple[float, Dict[str, Any]]:
        """Sends the request until a gateway answers with success, or with a refusal that a repeat does not change."""
        pause = _PAUSE
        while True:
            try:
                return self.send(*request, until=until, **more)
            except (Problem, _NoAnswer) as e:
                if not e._temporary or not self.sleep(max(pause, e.retry_after), until):
                    raise
                _log.log(logging.WARNING if pause == _PAUSE else logging.DEBUG, "%s; trying again", e)
                pause = min(2 * pause, _LONGEST)

    def send(self, method: str, path: str, lease: str = "", body: Any = None, key: str = "", *, hold: float = 0.0,
             late: float = _LATE, until: Optional[float] = None) -> Tuple[float, Dict[str, Any]]:
        """Sends a request, whose answer the gateway may hold for so long. Returns when it was sent, and the answer. After
        a failure that another gateway may not have, the next request goes to the next gateway."""
        client, at, connection, text, part = self.client, self.client._next, None, b"", b"-"
        file = client._token_file and not lease  # a lease token is all that a request needs
        token = pathlib.Path(client._token_file).read_text().strip() if file else "" if lease else client._token
        headers = _filled({"User-Agent": "lockkeeper-python/" + __version__, "Content-Type": body and "application/json",
                           "Lease-Token": lease, "Idempotency-Key": key, "Authorization": token and "Bearer " + token})
        url = client._urls[at % len(client._urls)]
        idle = client._idle.setdefault((os.getpid(), url), [])  # connections are their process's
        within = hold + late if until is None else max(min(hold + late, until - _now()), 0.001)
        sent, end = _now(), time.monotonic() + within
        try:
            with contextlib.suppress(IndexError):
                connection = idle.pop()
            connection = connection or _connect(url, min(late, within), client._tls)
            sock: Any = connection.sock
            self.use(sock)
            sock.settimeout(min(late, within))
            path = ("" if url.scheme == "unix" else url.path.rstrip("/")) + path
            connection.request(method, path, json.dumps(body).encode() if body else None, headers)
            sock.settimeout(within)
            answer = connection.getresponse()
            while part and len(text) <= _MOST:
                sock.settimeout(max(end - time.monotonic(), 0.001))
                part = answer.read1(1 << 16)
                text += part
            answer.close()  # else the connection would take no other request
            self.use(None)
            if not part and not answer.length and not answer.will_close and len(idle) < 32:
                idle.append(connection)
                connection = None
            if answer.status == 204 and method == "DELETE":
                return sent, {}
            retry = answer.headers.get("Retry-After", "")
            with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError):
                found = json.loads(text)
                if 200 <= answer.status < 300 and found.keys() & {"ttl_ms", "holders"}:
                    return sent, found
                if answer.status >= 400 and found["code"]:
                    raise Problem(answer.status, found, float(retry) if retry.isdigit() else 0)
            e = _NoAnswer(f"{method} {path} was answered with {answer.status}, not as a gateway answers")
            e.retry_after = float(retry) if retry.isdigit() else 0
            raise e
        except (Problem, OSError, http.client.HTTPException) as e:
            if not isinstance(e, Problem):
                idle.clear()  # what this gateway had open is likely to be as old
            if getattr(e, "_temporary", True) and client._next == at:
                client._next = at + 1
            if isinstance(e, (Problem, _NoAnswer)):
                raise
            raise _NoAnswer(f"{url.geturl()}: {e or type(e).__name__}") from e
        finally:
            self.use(None)
            if connection:
                connection.close()

def _connect(url: urllib.parse.SplitResult, timeout: float, tls: Optional[ssl.SSLContext]) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(url.hostname or "localhost", url.port, timeout=timeout)
    if url.scheme == "https":
        connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=timeout, context=tls)
    if url.scheme != "unix":
        connection.connect()
        return connection
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(timeout)
    connection.sock.connect(url.path)
    return connection

def _filled(members: Dict[str, Any]) -> Dict[str, Any]:
    return {k: v for k, v in members.items() if v}

class Lock(NamedTuple):
    """One of the locks of Client.lock_all. permits or limit make it a semaphore's; a limit of 0 is the lock's own."""

    name: str
    ns: str = ""
    shared: bool = False
    permits: int = 0
    limit: int = 0

    def _body(self) -> Dict[str, Any]:
        if self.shared and (self.permits or self.limit):
            raise ValueError(f"lock {self.name}: shared excludes permits and limit")
        mode = "shared" if self.shared else "semaphore" if self.permits or self.limit else ""
        return _filled({"ns": self.ns, "mode": mode, "permits": self.permits or self.limit and 1, "limit": self.limit})

class Client:
    """Takes locks from the gateways of one fleet. Threads may share it.

    urls are the gateways: http://, https:// or unix:/path. The next one is asked when one does not answer. token is the
    API token; token_file names a file that holds it, read for each acquire. tls replaces the system's certificates."""

    def __init__(self, urls: Union[str, Sequence[str]] = "http://127.0.0.1:8080", *, token: str = "",
                 token_file: str = "", tls: Optional[ssl.SSLContext] = None) -> None:
        self._urls = [urllib.parse.urlsplit(u.strip()) for u in (urls.split(",") if isinstance(urls, str) else urls)]
        for u in self._urls or [urllib.parse.urlsplit("")]:
            known = u.hostname and u.scheme in ("http", "https") or u.path and u.scheme == "unix" and hasattr(socket, "AF_UNIX")
            if not known or "@" in u.netloc or u.query or u.fragment:
                raise ValueError("the URL of a gateway must be like http://127.0.0.1:8080, https://locks.example.com or "
                                 "unix:/run/lockkeeper.sock, without user, query or fragment")
        if token and token_file:
            raise ValueError("only one of token and token_file (LOCKKEEPER_TOKEN, LOCKKEEPER_TOKEN_FILE) can be given")
        self._tls = tls or (ssl.create_default_context() if any(u.scheme == "https" for u in self._urls) else None)
        self._token, self._token_file, self._next = token, token_file, 0
        self._idle: Dict[Any, List[http.client.HTTPConnection]] = {}

    @classmethod
    def from_env(cls, tls: Optional[ssl.SSLContext] = None) -> Client:
        """A Client of LOCKKEEPER_URL (with commas between several), LOCKKEEPER_TOKEN or LOCKKEEPER_TOKEN_FILE."""
        env = os.environ.get
        return cls(env("LOCKKEEPER_URL") or "http://127.0.0.1:8080", token=env("LOCKKEEPER_TOKEN", ""),
                   token_file=env("LOCKKEEPER_TOKEN_FILE", ""), tls=tls)

    def lock(self, name: str, *, ns: str = "", shared: bool = False, permits: int = 0, limit: int = 0,
             ttl: Optional[float] = None, wait: Optional[float] = None, margin: Optional[float] = None, owner: str = "",
             metadata: str = "", lock_delay: float = 0, on_lost: Union[str, Callable[[LeaseLost], object]] = "raise",
             on_revoke: Optional[Callable[[str], object]] = None,
             on_queued: Optional[Callable[[int], object]] = None) -> Guard:
        """A block that runs while the lock is held, for `with` or `async with`.

        ns          the namespace of the lock
        shared      together with other readers
        permits     of a semaphore with this limit; a limit of 0 is the lock's own
        ttl         for so long others wait when this process dies: 30 s unless given, 1 s to 24 h
        wait        in the queue: None for as long as it takes, 0 to try; then NotAcquired
        margin      the lease counts as lost so long before its time is over: 1 s, or a fifth of a ttl below 5 s
        owner       a label for people; metadata is a text that every client can read at the lock
        lock_delay  keeps the lock free for so long after the lease
        on_lost     "raise" stops the block. "exit" does so, and ends the process with os._exit(76) when the block has
                    not ended shortly before the lease. A function is called instead, in a thread of its own.
        on_revoke   is called once, with the reason, when the holder is asked to release the lease. The block goes on.
        on_queued   is called with the place among the waiters. In asyncio both are called in the event loop."""
        return Guard(self, name, [Lock(name, ns, shared, permits, limit)], ttl, wait, margin, owner, metadata, lock_delay,
                     on_lost, on_revoke, on_queued)

    def lock_all(self, locks: Sequence[Union[str, Lock]], **options: Any) -> Guard:
        """As lock, for all the locks at once or none, with its options from ttl on. Two clients that name the same locks
        in different orders cannot block each other."""
        return Guard(self, "", [Lock(x) if isinstance(x, str) else x for x in locks], **options)

    def elect(self, name: str, lead: Callable[[Lease], _T], **options: Any) -> _T:
        """Calls lead while this client is the leader: the holder of the lock. A leader whose lease is lost is a candidate
        again. Returns what lead returns. The fencing token is the number of the term; the options are those of lock."""
        while True:
            with contextlib.suppress(LeaseLost), self.lock(name, **options) as lease:
                return lead(lease)

    async def aelect(self, name: str, lead: Callable[[Lease], Awaitable[_T]], **options: Any) -> _T:
        """elect for asyncio."""
        while True:
            with contextlib.suppress(LeaseLost):
                async with self.lock(name, **options) as lease:
                    return await lead(lease)

class Guard:
    """What Client.lock returns: with and async with take the lock, run their block, and release the lock."""

    def __init__(self, client: Client, name: str, locks: Sequence[Lock], ttl: Optional[float] = None,
                 wait: Optional[float] = None, margin: Optional[float] = None, owner: str = "", metadata: str = "",
                 lock_delay: float = 0, on_lost: Any = "raise", on_revoke: Any = None, on_queued: Any = None) -> None:
        self._lease: Any = None
        if on_lost not in ("raise", "exit") and not callable(on_lost):
            raise ValueError("on_lost must be 'raise', 'exit' or a function")
        _margin_of(margin, ttl or 30.0)
        self._margin, self._on_lost, self._on_revoke, self._on_queued = margin, on_lost, on_revoke, on_queued
        self._call, self._wait, self._unused, self._cancelled = _Call(client), wait, [True], False
        self._name = name or ",".join(x.name for x in locks)
        self._path = f"/v1/locks/{urllib.parse.quote(name, safe='')}/leases" if name else "/v1/leases"
        what = locks[0]._body() if name else {"locks": [{"lock": x.name, **x._body()} for x in locks]}
        self._body = {**what, **_filled({
            "ttl": ttl and f"{ttl * 1000:.0f}ms", "owner": owner, "metadata": metadata, "async": wait is None or wait > 0,
            "lock_delay": lock_delay and f"{lock_delay * 1000:.0f}ms"})}

    def cancel(self) -> None:
        """Ends the wait for the lock, from another thread: it ends with NotAcquired, and its place is given up."""
        self._call.stop()

    def __enter__(self) -> Lease:
        if not callable(self._on_lost) and "asyncio" in sys.modules and sys.modules["asyncio"]._get_running_loop():
            raise RuntimeError("a block in an event loop must be `async with`, so that the right task is stopped")
        try:
            self._acquire()
            self._lease._arm()
            return self._lease  # type: ignore[no-any-return]
        except BaseException:
            self.__del__()
            raise

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> bool:
        self._lease._part()
        self._lease._disarm()
        self._lease._await_release()
        return self._result(error)

    def __del__(self) -> None:
        """Ends the lease of a block that was left without __exit__: an exception can come between the two."""
        if self._lease:
            self._lease._part()

    async def __aenter__(self) -> Lease:
        import asyncio
        loop = asyncio.get_running_loop()
        self._on_revoke = self._on_revoke and functools.partial(_post, loop, self._on_revoke)
        self._on_queued = self._on_queued and functools.partial(_post, loop, self._on_queued)
        self._task: Any = asyncio.current_task()
        try:
            await _in_thread(self._acquire, self._call.stop)
        except BaseException:
            if self._lease:
                self._lease._end()
                await _in_thread(self._lease._await_release)
            raise
        self._cancelling = getattr(self._task, "cancelling", int)()
        self._lease._stop = functools.partial(_post, loop, self._cancel)
        return self._lease  # type: ignore[no-any-return]

    def _cancel(self) -> None:
        if not self._lease._over and not self._cancelled:
            self._cancelled = True
            self._task.cancel(_MARK)

    async def __aexit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> bool:
        import asyncio
        self._lease._end()
        alone = self._cancelled and isinstance(error, asyncio.CancelledError) and _MARK in error.args
        if self._cancelled and hasattr(self._task, "uncancel"):  # Python 3.9 and 3.10 do not count cancellations
            alone = self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)
        await _in_thread(self._lease._await_release)
        return self._result(error, alone)

    def _result(self, error: Optional[BaseException], ours: bool = False) -> bool:
        """Raises LeaseLost if the lease is lost. KeyboardInterrupt, SystemExit and others' cancellation stay what they are."""
        lease = self._lease
        if lease._pid != os.getpid():
            lease._lose("forked")
        if not lease._fate or not (error is None or ours or isinstance(error, Exception)):
            return False
        if isinstance(error, LeaseLost) and error.lease_id == lease.id:
            error.__class__ = LeaseLost
            return False
        raise lease._loss() from error

    def _acquire(self) -> None:
        if not self._unused:
            raise RuntimeError("a block can be entered once: call Client.lock for each")
        self._unused.pop()
        call, until = self._call, None if self._wait is None else _now() + max(self._wait, 0)
        waits = self._wait is None or self._wait > 0
        while True:
            post: Any = ("POST", self._path, "", self._body, secrets.token_hex(16))  # all repeats have one key
            token, polled, position = "", False, 0
            try:
                sent, grant = call.repeat(until if waits else _now() + _TRY, *post)
                token = grant["token"]
                while grant["state"] == "waiting":
                    if self._on_queued and grant.get("position", position) != position:
                        position = grant["position"]
                        self._on_queued(position)
                    rev, polled = urllib.parse.quote(grant.get("rev", ""), safe=""), True
                    _, grant = call.repeat(until, "GET", f"{_SELF}?wait={_POLL:g}s&since={rev}", token, hold=_POLL)
                ttl, waited = grant["ttl_ms"] / 1000, grant.get("waited_ms")
                if polled or waited is None:  # the TTL began before this answer was asked for: a heartbeat begins it anew
                    (sent, _), waited = call.repeat(_now() + ttl, "POST", _BEAT, token), 0
                self._lease = Lease(self, token, grant, sent + waited / 1000 + ttl)
                return self._lease._start(call)
            except BaseException as e:
                if token or not isinstance(e, Problem) or e._temporary:
                    self._leave(token, post)
                if not isinstance(e, (Problem, _NoAnswer)):
                    raise
                if call.stopped.is_set():
                    raise NotAcquired(self._name) from None
                # Again when the place was lost, or when the lock cannot be waited for in its queue now.
                again = token and e._final or waits and e._taken
                if again and call.sleep(max(_PAUSE, e.retry_after), until):
                    continue
                if again or e._taken or token and until is not None and _now() >= until:
                    raise self._not_acquired(e) from None
                raise

    def _leave(self, token: str, post: Any) -> None:
        """Gives up a place or a lease. A repeat with its idempotency key tells the token of what was taken unheard."""
        call, end = _Call(self._call.client), _now() + _LEAVE
        with contextlib.suppress(Problem, OSError):  # else the place passes on when its time is over
            token = token or call.repeat(end, *post)[1]["token"]
            call.repeat(end, "DELETE", _SELF, token, late=_LEAVE)

    def _not_acquired(self, e: Any) -> NotAcquired:
        seen = e.body if isinstance(e, Problem) else {}
        if not seen.get("holders") and "locks" not in self._body:
            ns = "?ns=" + urllib.parse.quote(self._body["ns"]) if "ns" in self._body else ""
            with contextlib.suppress(Problem, OSError):
                seen = _Call(self._call.client).send("GET", self._path[:-len("/leases")] + ns, late=_LEAVE)[1]
        return NotAcquired(self._name, seen.get("holders", ()), seen.get("queue_length", 0), e.retry_after)

class Lease:
    """A lock that is held, while its block runs.

    id is its name in logs. fence is the fencing token: each holder of the lock has a higher one than the holder before.
    fences has one for each lock of lock_all, by its name, or NAMESPACE/NAME outside the default namespace."""

    def __init__(self, guard: Guard, token: str, grant: Dict[str, Any], until: float) -> None:
        self.id: str = grant["lease_id"]
        self.fence: int = grant["fencing_token"]
        self.fences: Dict[str, int] = {x["lock"] if x["ns"] == "default" else x["ns"] + "/" + x["lock"]: x["fencing_token"]
                                       for x in grant.get("locks", ())}
        self._ttl: float = grant["ttl_ms"] / 1000
        self._margin = _margin_of(guard._margin, self._ttl)
        self._on_lost, self._on_revoke = guard._on_lost, guard._on_revoke
        self._token, self._until, self._pid = token, until, os.getpid()
        self._fate: Dict[str, LeaseLost] = {}  # "lost": the first loss, which stays
        self._over = self._parted = False  # the block has ended; and nothing will be raised in it any more
        # SimpleQueue, not Event: nothing in it breaks when an exception comes at any moment.
        self._wake, self._parting, self._release = queue.SimpleQueue(), queue.SimpleQueue(), queue.SimpleQueue()  # type: Any, Any, Any
        self._beats, self._last = _Call(guard._call.client), _Call(guard._call.client)
        self._stop: Callable[[], object] = int  # interrupts the block; called again and again
        self._raised: Callable[[], object] = lambda: None  # the exception that was raised in the block, while it lives
        self._keeper = threading.Thread(target=self._keep, name="lockkeeper", daemon=True)

    @property
    def held(self) -> bool:
        """Whether the work may go on now, for a step that takes less than the margin."""
        return not (self._over or self._fate or self._pid != os.getpid()) and self._left() > 0

    def check(self) -> None:
        """Raises LeaseLost when the lease is not held."""
        if not self.held:
            self._lose("deadline" if self._pid == os.getpid() else "forked")
            raise self._loss()

    def _left(self) -> float:
        return self._until - self._margin - _now()

    def _lose(self, reason: str, by: str = "", detail: str = "") -> None:
        self._fate.setdefault("lost", LeaseLost(self.id, reason, by, detail or _REASONS.get(reason, "")))
        self._wake.put(None)

    def _lose_by(self, e: Any) -> None:
        self._lose(e.body.get("reason") or "gone", e.body.get("by") or "", e.detail)

    def _loss(self) -> LeaseLost:
        return LeaseLost(*self._fate["lost"].args)

    def _start(self, call: _Call) -> None:
        self._keeper.start()
        threading.Thread(target=self._beat, name="lockkeeper-beat", daemon=True).start()
        if call.stopped.is_set():  # the caller has given up meanwhile
            self._end()

    def _beat(self) -> None:
        """Sends one heartbeat after the other until the lease is over."""
        third, pause, asked = min(self._ttl / 3, 240.0), _PAUSE, False  # the gateway holds none for longer than 5 minutes
        while not (self._over or self._fate):
            hold = third if pause == _PAUSE and self._left() > third + self._ttl / 20 else 0.0
            try:
                sent, answer = self._beats.send("POST", _BEAT + (f"?wait={hold * 1000:.0f}ms" if hold else ""), self._token,
                                                hold=hold, late=min(_LATE, max(self._ttl / 6, 0.1)))
            except (Problem, _NoAnswer) as e:
                if e._final:
                    return self._lose_by(e)
                self._beats.sleep(min(pause, self._ttl / 20))
                pause = min(2 * pause, _LONGEST)
                continue
            self._until, pause = max(self._until, sent + answer["ttl_ms"] / 1000), _PAUSE
            ask = answer.get("revoke_requested")
            if ask and not asked and self._on_revoke:
                asked = True
                threading.Thread(target=self._on_revoke, args=(ask.get("reason") or "",), daemon=True).start()
            self._beats.sleep(_PAUSE)  # an early answer, such as one about new waiters, must not make a busy loop

    def _keep(self) -> None:
        """Ends the lease at its deadline, stops the block, releases the lease. It alone interrupts the block."""
        while not (self._over or self._fate):
            if self._left() <= 0:
                self._lose("deadline")
            self._doze(min(max(self._left(), 0), _LOOK))
        latest = _now() + 0.8 * self._margin
        if self._fate and callable(self._on_lost):
            threading.Thread(target=self._on_lost, args=(self._loss(),), daemon=True).start()
        while not self._over:
            if not callable(self._on_lost):
                self._stop()
            if self._on_lost == "exit" and _now() >= latest:
                os.write(2, f"lockkeeper: {self._loss()}; its block does not end, so the process ends\n".encode())
                os._exit(76)  # as lockctl run does
            self._doze(_PAUSE)
        if self._fate:
            self._stop()  # takes back what has not been raised yet
        self._parted, left = True, self._left()
        self._parting.put(None)
        try:
            if not self._fate or self._fate["lost"].reason == "deadline":
                self._last.repeat(_now() + _RELEASE, "DELETE", _SELF, self._token, late=_LEAVE)
        except (Problem, _NoAnswer) as e:
            if e._final or left <= 0:
                self._lose_by(e) if e._final else self._lose("deadline")
            _log.warning("lease %s is not released, and ends by itself within %g s: %s", self.id, self._ttl, e)
        self._beats.stop()
        self._release.put(None)

    def _doze(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._wake.get(timeout=seconds)

    def _end(self) -> None:
        self._over = True
        self._wake.put(None)

    def _part(self) -> None:
        """Ends the block. When it returns, nothing will be raised in the block any more."""
        while not self._parted and self._pid == os.getpid() and self._keeper.ident != threading.get_ident():
            try:
                self._end()
                self._parting.get(timeout=1)
            except queue.Empty:
                pass
            except LeaseLost as e:
                if e.lease_id != self.id:
                    raise

    def _await_release(self) -> None:
        if not self._fate and self._pid == os.getpid():
            self._release.get(timeout=2 * _RELEASE)

    def _arm(self) -> None:
        """Has the block, which runs in this thread, interrupted."""
        lease, ident, thread = self, threading.get_ident(), threading.current_thread()
        main = thread is threading.main_thread() and hasattr(signal, "SIGURG")

        class Interrupt(LeaseLost):
            def __init__(self) -> None:
                super().__init__(*lease._fate["lost"].args)
                self.args, lease._raised = lease._fate["lost"].args, weakref.ref(self)

        def stop() -> None:
            if thread.is_alive() and (lease._over or not lease._raised()):  # not raised yet, or swallowed
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(ident), ctypes.py_object() if lease._over else ctypes.py_object(Interrupt))
                if main and not lease._over:
                    signal.pthread_kill(ident, signal.SIGURG)

        Interrupt.__name__ = Interrupt.__qualname__ = "LeaseLost"
        if main:
            _armed.add(self.id)
            if signal.getsignal(signal.SIGURG) in (signal.SIG_DFL, signal.SIG_IGN):
                _replaced.append(signal.signal(signal.SIGURG, _woken))
        self._stop = stop

    def _disarm(self) -> None:
        _armed.discard(self.id)
        if not _armed and _replaced and threading.current_thread() is threading.main_thread():
            time.sleep(0)  # a signal that is on its way arrives here
            if signal.getsignal(signal.SIGURG) is _woken:
                signal.signal(signal.SIGURG, _replaced[0])
            _replaced.clear()

_armed: Any = set()  # the leases whose blocks run in the main thread
_replaced: List[Any] = []  # the handler of SIGURG before _woken
_MARK = "the lease is lost"

def _woken(*_: object) -> None:
    """Handles SIGURG. The signal makes a blocking call run Python code, and so notice what is to be raised."""

def _margin_of(margin: Optional[float], ttl: float) -> float:
    if margin is not None and not 0 <= 2 * margin < ttl:
        raise ValueError(f"margin ({margin:g} s) must be at least 0 and less than half of the ttl ({ttl:g} s)")
    return min(1.0, ttl / 5) if margin is None else margin

def _post(loop: Any, f: Callable[..., object], *args: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(f, *args)

async def _in_thread(f: Callable[[], object], stop: Callable[[], object] = int) -> None:
    """Runs f in a thread, and raises its error. When it is cancelled, it calls stop, and waits for f all the same."""
    import asyncio
    loop = asyncio.get_running_loop()
    done, errors = loop.create_future(), []  # type: Any, List[BaseException]

    def run() -> None:
        try:
            f()
        except BaseException as e:
            errors.append(e)
        _post(loop, lambda: done.done() or done.set_result(None))

    threading.Thread(target=run, name="lockkeeper-async", daemon=True).start()
    try:
        await asyncio.wait([done])
    except BaseException:
        stop()
        await asyncio.wait([done])
        raise
    if errors:
        raise errors[0]
