"""Takes locks from a Lockkeeper gateway, and stops the work that they protect in time.

    import lockkeeper

    client = lockkeeper.Client.from_env()     # LOCKKEEPER_URL, LOCKKEEPER_TOKEN
    with client.lock("report") as lease:      # in asyncio: async with client.lock("report") as lease:
        write_report(fence=lease.fence)

The block runs while the lock is held. When the lease is lost, LeaseLost is raised inside the block: within milliseconds
when an administrator ended the lease, and otherwise before another client can hold the lock. In the main thread SIGURG
makes blocking calls give way; elsewhere it comes when the thread runs Python code again. A block that swallows it gets it
again. In asyncio the task is cancelled, and its CancelledError leaves as LeaseLost. Every path releases the lock.

Nothing interrupts C code that does not return, a blocked event loop, or a process that stands still (SIGSTOP): send
lease.fence to what the lock protects, and let it refuse lower ones. Like KeyboardInterrupt, LeaseLost can come between
any two steps. Work that must not be torn apart sets on_lost to a function, and calls lease.check() between its steps.

Errors are LeaseLost, NotAcquired and Problem; ConnectionError when no gateway answered in time; ValueError for arguments
that make no sense. Done is no error. Times are in seconds. CPython 3.9 or later; no other package; made to be copied.
"""
from __future__ import annotations
import asyncio, concurrent.futures, contextlib, ctypes, functools, http.client, json, logging, os, pathlib  # noqa: E401
import queue, random, secrets, signal, socket, ssl, threading, time, urllib.parse, weakref  # noqa: E401
from typing import Any, Awaitable, Callable, Iterator, Sequence, TypeVar

__version__ = "1.0.0"
__all__ = ["Client", "Done", "Guard", "Lease", "LeaseLost", "NotAcquired", "Problem"]
_T = TypeVar("_T")
_log = logging.getLogger("lockkeeper")
_LATE, _LEAVE, _RELEASE = 10.0, 2.0, 5.0  # how late an answer may be; for leaving a queue; for a release
_PAUSE, _MOST = 0.05, 1 << 20  # at least between two tries of a request or an interrupt; bytes of an answer (20 KiB for 64 locks)
_SELF, _BEAT, _STRANGE = "/v1/leases/self", "/v1/leases/self/heartbeat", "unexpected_answer"
_REASONS = {"deadline": "no gateway confirmed it in time", "forked": "its holder is the parent process"}
_EVER, _now = float("inf"), time.monotonic  # goes on while the machine sleeps, as CLOCK_MONOTONIC does on macOS
if hasattr(time, "clock_gettime"):
    _now = functools.partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

class LeaseLost(Exception):
    """The lease ended before its holder released it, and the work had to stop. reason is the gateway's (expired, revoked,
    removed, destroyed, ...), "deadline" when no gateway confirmed the lease in time, "gone" when no gateway knows it,
    "forked" in a child process. by is who ended it, and detail a sentence for people, where the gateway tells."""
    def __init__(self, lease_id: str, reason: str, by: str = "", detail: str = "") -> None:
        self.lease_id, self.reason, self.by, self.detail = lease_id, reason, by, detail
    def __str__(self) -> str:
        return f"lease {self.lease_id} is lost: {self.reason}" + (self.by and f" by {self.by}") + (self.detail and f" ({self.detail})")

class NotAcquired(Exception):
    """Others hold the lock, and the time for waiting is over. holders are as the gateway describes them (owner, lease_id,
    fencing_token, ...); nothing can change for another retry_after."""
    def __init__(self, lock: str, holders: Sequence[Any] = (), queue_length: int = 0, retry_after: float = 0) -> None:
        self.lock, self.holders, self.queue_length, self.retry_after = lock, list(holders), queue_length, retry_after
    def __str__(self) -> str:
        names = ", ".join(h.get("owner") or "another program" for h in self.holders)
        return f"{self.lock} is held{names and ' by ' + names}; {self.queue_length} wait"

class Done(Exception):
    """The work of the period is done (once_per), so the block does not run. `with contextlib.suppress(lockkeeper.Done):`
    around it goes on. period, by (an owner) and at (RFC 3339) are the gateway's."""
    def __init__(self, lock: str, answer: dict[str, Any]) -> None:
        self.lock, self.period, self.by, self.at = lock, *(str(answer.get(member) or "") for member in ("period", "by", "at"))
    def __str__(self) -> str:
        return f"{self.lock} is done in this period{self.by and ' by ' + self.by} at {self.at}"

class Problem(Exception):
    """The gateway refuses the request. Programs go by code (docs/errors.md), people by detail; body is all of it."""
    def __init__(self, status: int, body: dict[str, Any], retry_after: float = 0) -> None:
        self.status, self.body, self.retry_after = status, body, retry_after
        self.code, self.detail, self.field, self.request_id = (
            str(body.get(member) or "") for member in ("code", "detail", "field", "request_id"))
        self._temporary = status >= 500 or status in (408, 429) or self.code == _STRANGE
        self._final = status in (403, 404, 410) and self.code != _STRANGE  # where the request has a lease token
        self._why = str(body.get("reason") or "gone"), str(body.get("by") or ""), self.detail
        self._taken = self.code in ("held_by_other", "lock_delayed", "wait_elapsed")
    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.detail or self.body.get('title')}"

class _NoAnswer(ConnectionError):
    """No gateway answered: no connection, nothing in time, or an answer that is not a gateway's."""
    _temporary, _final, _taken, retry_after, code, _why, body = True, False, False, 0.0, "", ("", "", ""), dict[str, Any]()

class _Call:
    """The requests of one call, which follow each other. stop, from another thread, ends the call."""
    def __init__(self, client: Client, once: bool = False) -> None:  # once: an answer may be that the work is done
        self.client, self.once, self.stopped, self.mutex, self.sock = client, once, threading.Event(), threading.Lock(), None
    def stop(self) -> None:
        with self.mutex, contextlib.suppress(OSError):
            self.stopped.set()
            if self.sock:  # not SSLSocket.shutdown, after which the reader would read on without TLS
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
    def use(self, sock: Any) -> None:
        with self.mutex:
            self.sock = sock
            if sock and self.stopped.is_set():
                raise _NoAnswer("stopped")
    def sleep(self, seconds: float, until: float = _EVER) -> bool:
        """Sleeps a little longer, but not beyond until. False: the call is over."""
        return not self.stopped.wait(max(min(seconds * random.uniform(1, 1.25), until - _now()), 0)) and _now() < until
    def repeat(self, until: float, *request: Any, **more: Any) -> tuple[float, dict[str, Any]]:
        """Sends the request until a gateway answers with success, or with a refusal that a repeat does not change."""
        pause = _PAUSE
        while True:
            try:
                return self.send(*request, until=until, **more)
            except (Problem, _NoAnswer) as e:
                if not e._temporary or not self.sleep(max(pause, e.retry_after), until):
                    raise
                _log.log(logging.WARNING if pause == _PAUSE else logging.DEBUG, "%s; trying again", e)
                pause = min(2 * pause, 1.0)
    def send(self, method: str, path: str, lease: str = "", body: Any = None, key: str = "", *, hold: float = 0.0,
             late: float = _LATE, until: float = _EVER) -> tuple[float, dict[str, Any]]:
        """Sends a request, whose answer the gateway may hold for so long. Returns when it was sent, and the answer. After
        a failure that another gateway may not have, the next request goes to the next gateway."""
        client, at, connection, found = self.client, self.client._next, None, None  # type: Client, int, Any, Any
        url, token = client._urls[at % len(client._urls)], "" if lease else client._token()  # a lease token is enough
        headers = {"User-Agent": "lockkeeper-python/" + __version__, "Content-Type": body and "application/json",
                   "Lease-Token": lease, "Idempotency-Key": key, "Authorization": token and "Bearer " + token}
        idle = client._idle.setdefault((os.getpid(), url), [])  # connections are their process's
        within, sent = max(min(hold + late, until - _now()), 0.001), _now()
        try:
            with contextlib.suppress(IndexError):
                connection = idle.pop()
            if not connection:
                kind: Any = functools.partial(http.client.HTTPSConnection, context=client._tls)
                kind = kind if url.scheme == "https" else http.client.HTTPConnection
                connection = kind(url.hostname or "localhost", url.port, timeout=min(late, within))
                if url.scheme == "unix":
                    connection.sock = socket.socket(socket.AF_UNIX)
                    connection.sock.settimeout(connection.timeout)
                connection.sock.connect(url.path) if connection.sock else connection.connect()
            self.use(connection.sock)
            connection.sock.settimeout(within)
            connection.response_class = functools.partial(_answer, _now() + within)
            connection.request(method, (url.path.rstrip("/") if url.hostname else "") + path,
                               json.dumps(body).encode() if body else None, {k: v for k, v in headers.items() if v})
            answer = connection.getresponse()
            with contextlib.suppress(ValueError):
                found = json.loads(answer.read(_MOST) or "{}")
            self.use(None)
            if answer.isclosed() and not answer.will_close and not self.stopped.is_set():  # it has been read to its end
                connection = idle.append(connection)  # type: ignore[func-returns-value]
            retry, found = answer.headers.get("Retry-After", ""), found if isinstance(found, dict) else {}
            known = found.keys() & {"ttl_ms", "holders"} or self.once and found.get("done") is True and found.get("at")
            if answer.status < 300 and (known or (method, answer.status) == ("DELETE", 204)):
                return sent, found
            if answer.status < 400 or not found.get("code"):
                found = {"code": _STRANGE, "detail": f"{method} {path} was not answered as a gateway answers"}
            raise Problem(answer.status, found, float(retry) if retry.isdigit() else 0)
        except (Problem, OSError, http.client.HTTPException) as error:
            failure: Any = error if isinstance(error, Problem) else _NoAnswer(f"{url.geturl()}: {error or type(error).__name__}")
            if failure is not error:
                idle.clear()  # what this gateway had open is likely to be as old
            if failure._temporary and client._next == at:
                client._next = at + 1
            raise failure from None
        finally:
            self.use(None)
            if connection:
                connection.close()

class Client:
    """Takes locks from the gateways of one fleet. Threads may share it.
    urls are the gateways: http://, https:// or unix:/path. The next one is asked when one does not answer. token is the
    API token; token_file names a file that holds it, read for each acquire. tls replaces the system's certificates."""
    def __init__(self, urls: str | Sequence[str] = "http://127.0.0.1:8080", *, token: str = "",
                 token_file: str = "", tls: ssl.SSLContext | None = None) -> None:
        self._urls = [urllib.parse.urlsplit(u.strip()) for u in (urls.split(",") if isinstance(urls, str) else urls)]
        for u in self._urls or [urllib.parse.urlsplit("")]:
            known = u.hostname and u.scheme in ("http", "https") or u.path and u.scheme == "unix" and hasattr(socket, "AF_UNIX")
            if not known or "@" in u.netloc or u.query or u.fragment:
                raise ValueError("a URL must be like http://127.0.0.1:8080 or unix:/run/lockkeeper.sock, without user and query")
        if token and token_file:
            raise ValueError("only one of token and token_file (LOCKKEEPER_TOKEN, LOCKKEEPER_TOKEN_FILE) can be given")
        self._tls = tls or (ssl.create_default_context() if any(u.scheme == "https" for u in self._urls) else None)
        self._token: Callable[[], str] = lambda: pathlib.Path(token_file).read_text().strip() if token_file else token
        self._next, self._idle = 0, {}  # type: int, dict[Any, list[Any]]  # the URL that is asked next; connections
    @classmethod
    def from_env(cls, tls: ssl.SSLContext | None = None) -> Client:
        """A Client of LOCKKEEPER_URL (with commas between several), LOCKKEEPER_TOKEN or LOCKKEEPER_TOKEN_FILE."""
        url, token, file = (os.environ.get("LOCKKEEPER_" + name, "") for name in ("URL", "TOKEN", "TOKEN_FILE"))
        return cls(url or "http://127.0.0.1:8080", token=token, token_file=file, tls=tls)
    def lock(self, name: str, *, ns: str = "", shared: bool = False, permits: int = 0, limit: int = 0,
             ttl: float | None = None, wait: float | None = None, margin: float | None = None, owner: str = "",
             metadata: str = "", reason: str = "", lock_delay: float = 0, at_least: float = 0, once_per: float = 0,
             period: str = "", done_on: str = "", on_lost: str | Callable[[LeaseLost], object] = "raise",
             on_revoke: Callable[[str], object] | None = None, on_queued: Callable[[int], object] | None = None) -> Guard:
        """A block that runs while the lock is held, for `with` or `async with`.
        shared      together with other readers; permits are a semaphore's, a limit of 0 is the one that it has
        ttl         for so long others wait when this process dies: 30 s unless given, 1 s to 24 h
        wait        in the queue: None for as long as it takes, 0 to try; then NotAcquired
        margin      the lease counts as lost so long before its time is over: 1 s, or a fifth of a ttl below 5 s
        owner       a label for people, as reason is; metadata is a text that every client can read at the lock
        lock_delay  for so long others wait after a lease that was lost
        at_least    the lock stays taken for so long from the grant, whatever becomes of its holder: up to 7 days
        once_per    the block runs once in each period of this length, which period names; Done says that it did
        done_on     "release": the period is done when the block has succeeded. Otherwise when the lock is granted
        on_lost     "raise" stops the block. "exit" does so, and ends the process with os._exit(76) when the block has
                    not ended shortly before the lease. A function is called instead, in a thread of its own.
        on_revoke   is called once, with the reason, when the holder is asked to release the lease. The block goes on.
        on_queued   is called with the place among the waiters. In asyncio both are called in the event loop."""
        if on_lost not in ("raise", "exit") and not callable(on_lost) or shared and (permits or limit):
            raise ValueError("on_lost must be 'raise', 'exit' or a function; shared excludes permits and limit")
        body = {"ns": ns, "mode": "shared" if shared else "semaphore" if permits or limit else "", "limit": limit,
                "permits": permits or limit and 1, "owner": owner, "metadata": metadata, "reason": reason, "period": period,
                "done_on": done_on, "async": wait is None or wait > 0}
        for field, span in (("ttl", ttl), ("lock_delay", lock_delay), ("at_least", at_least), ("once_per", once_per)):
            body[field] = span and f"{span * 1000:.0f}ms"
        if margin is not None and not 0 <= 2 * margin < (ttl or 30):
            raise ValueError(f"margin ({margin:g} s) must be at least 0 and less than half of the ttl ({ttl or 30:g} s)")
        return Guard(self, name, {k: v for k, v in body.items() if v}, wait, margin, on_lost, on_revoke, on_queued)
    def lock_all(self, locks: Sequence[str | dict[str, Any]], **options: Any) -> Guard:
        """As lock, for all the locks at once or none: names, or dictionaries such as {"lock": "b", "ns": "eu", "mode":
        "semaphore", "permits": 1, "limit": 3}. Two clients that name them in different orders cannot block each other."""
        each = [{"lock": x} if isinstance(x, str) else x for x in locks]
        guard = self.lock(",".join(x["lock"] for x in each), **options)
        if guard._body.keys() & {"ns", "mode"}:
            raise TypeError("ns, shared, permits and limit must be given for each of the locks")
        guard._path, guard._body["locks"] = "/v1/leases", each
        return guard
    def elect(self, name: str, lead: Callable[[Lease], _T], **options: Any) -> _T:
        """Calls lead while this client is the leader: the holder of the lock. A leader whose lease is lost is a candidate
        again. Returns what lead returns. The fencing token is the number of the term; the options are those of lock."""
        while True:
            with _term(self.lock(name, **options)) as guard, guard as lease:
                return lead(lease)
    async def aelect(self, name: str, lead: Callable[[Lease], Awaitable[_T]], **options: Any) -> _T:
        """elect for asyncio."""
        while True:
            with _term(self.lock(name, **options)) as guard:
                async with guard as lease:
                    return await lead(lease)

class Guard:
    """What Client.lock returns: with and async with take the lock, run their block, and release the lock."""
    _lease = _task = None  # type: Any
    def __init__(self, client: Client, name: str, body: dict[str, Any], wait: float | None, margin: float | None, *hooks: Any) -> None:
        self._name, self._body, self._wait, self._margin, self._call = name, body, wait, margin, _Call(client, "once_per" in body)
        self._undone = _SELF + "?done=false" if body.get("done_on") == "release" else _SELF  # gives back what has not succeeded
        self._on_lost, self._on_revoke, self._on_queued = hooks
        self._path, self._unused, self._cancelled = f"/v1/locks/{urllib.parse.quote(name, safe='')}/leases", [True], False
    def cancel(self) -> None:
        """Ends the wait for the lock, from another thread: it ends with NotAcquired, and its place is given up."""
        self._call.stop()
    def __enter__(self) -> Lease:
        if asyncio._get_running_loop() and not callable(self._on_lost):
            raise RuntimeError("a block in an event loop must be `async with`, so that the right task is stopped")
        try:
            self._acquire()
            return self._lease._arm()  # type: ignore[no-any-return]
        except BaseException:
            self.__del__()
            raise
    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        self._lease._back = self._undone if error else _SELF
        self._lease._part()
        return self._result(error)
    def __del__(self) -> None:
        """Ends the lease of a block that was left without __exit__: an exception can come between the two."""
        if self._lease:
            self._lease._part(wait=False)
    async def __aenter__(self) -> Lease:
        loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._on_revoke, self._on_queued = (f and functools.partial(_post, loop, f) for f in (self._on_revoke, self._on_queued))
        try:
            await _in_thread(self._acquire, self._call.stop)
        except BaseException:
            if self._lease:
                await _in_thread(self._lease._part)
            raise
        self._cancelling = getattr(self._task, "cancelling", int)()
        self._lease._stop = functools.partial(_post, loop, self._cancel)
        return self._lease  # type: ignore[no-any-return]
    def _cancel(self) -> None:
        if not self._lease._over and not self._cancelled:
            self._cancelled = True
            self._task.cancel("the lease is lost")
    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        self._lease._back = self._undone if error else _SELF
        self._lease._end()
        alone = self._cancelled and isinstance(error, asyncio.CancelledError) and "the lease is lost" in error.args
        if self._cancelled and hasattr(self._task, "uncancel"):  # Python 3.9 and 3.10 do not count cancellations
            alone = self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)
        await _in_thread(self._lease._part)
        return self._result(error, alone)
    def _result(self, error: BaseException | None, ours: bool = False) -> bool:
        """Raises LeaseLost if the lease is lost. KeyboardInterrupt, SystemExit and others' cancellation stay what they are."""
        lease = self._lease
        if lease._pid != os.getpid():
            lease._lose("forked")
        if not lease._fate or not (error is None or ours or isinstance(error, Exception)):
            return False
        raise LeaseLost(*lease._fate["lost"]) from error
    def _acquire(self) -> None:
        if not self._unused or not self._unused.pop():
            raise RuntimeError("a block can be entered once: call Client.lock for each")
        call, waits = self._call, self._wait is None or self._wait > 0
        until = _EVER if self._wait is None else _now() + (self._wait if waits else 30.0)  # to find a gateway that answers
        while True:
            post: Any = ("POST", self._path, "", self._body, secrets.token_hex(16))  # all repeats have one key
            token, polled, position = "", False, 0
            try:
                sent, grant = call.repeat(until, *post)
                if "token" not in grant:
                    raise Done(self._name, grant)
                token = grant["token"]
                while grant["state"] == "waiting":
                    if self._on_queued and position != (position := grant.get("position", position)):
                        self._on_queued(position)
                    rev, polled = urllib.parse.quote(grant.get("rev", ""), safe=""), True
                    _, grant = call.repeat(until, "GET", f"{_SELF}?wait=25s&since={rev}", token, hold=25.0)
                if grant["state"] != "held":
                    raise Problem(410, {"code": "lease_ended"})
                ttl, waited = grant["ttl_ms"] / 1000, grant.get("waited_ms")
                if polled or waited is None:  # the TTL began before this answer was asked for: a heartbeat begins it anew
                    (sent, _), waited = call.repeat(_now() + ttl, "POST", _BEAT, token), 0
                self._lease = Lease(self, token, grant, sent + waited / 1000 + ttl)
                self._lease._keeper.start()
                threading.Thread(target=self._lease._beat, name="lockkeeper-beat", daemon=True).start()
                return self._lease._end() if call.stopped.is_set() else None  # the caller may have given up meanwhile
            except BaseException as e:
                if token or not isinstance(e, (Problem, Done)) or isinstance(e, Problem) and e._temporary:
                    self._leave(token, post)
                if not isinstance(e, (Problem, _NoAnswer)):
                    raise
                if call.stopped.is_set():
                    raise NotAcquired(self._name) from None
                # Again when the lease or its place was lost unheard, or when the queue is closed now.
                again = e._final and (token or e.code == "lease_ended") or waits and e._taken
                if again and call.sleep(max(_PAUSE, e.retry_after), until):
                    continue
                raise (self._not_acquired(e) if again or e._taken or token and _now() >= until else e) from None
    def _leave(self, token: str, post: Any) -> None:
        """Gives up a place or a lease. A repeat with its idempotency key tells the token of what was taken unheard."""
        call, end = _Call(self._call.client, self._call.once), _now() + _LEAVE
        with contextlib.suppress(Problem, OSError, KeyError):  # else the place passes on when its time is over
            call.repeat(end, "DELETE", self._undone, token or call.repeat(end, *post)[1]["token"], late=_LEAVE)
    def _not_acquired(self, e: Any) -> NotAcquired:
        seen, ns = e.body, urllib.parse.quote(self._body.get("ns", "default"))
        if not seen.get("holders") and "locks" not in self._body:
            with contextlib.suppress(Problem, OSError):
                seen = _Call(self._call.client).send("GET", f"{self._path[:-7]}?ns={ns}", late=_LEAVE)[1]
        return NotAcquired(self._name, seen.get("holders", ()), seen.get("queue_length", 0), e.retry_after)

class Lease:
    """A lock that is held, while its block runs. id is its name in logs. fence is the fencing token: each holder of the lock
    has a higher one than the holder before. For a lease of several locks it is the highest of theirs."""
    def __init__(self, guard: Guard, token: str, grant: dict[str, Any], until: float) -> None:
        self.id, self.fence = grant["lease_id"], grant["fencing_token"]  # type: str, int
        self._ttl, self._token, self._until, self._pid = grant["ttl_ms"] / 1000, token, until, os.getpid()
        self._margin = min(1.0, self._ttl / 5) if guard._margin is None else guard._margin
        self._on_lost, self._on_revoke, self._back = guard._on_lost, guard._on_revoke, guard._undone
        self._fate: dict[str, tuple[str, str, str, str]] = {}  # "lost": the first loss, which stays
        self._over = self._parted = False  # the block has ended; and nothing will be raised in it any more
        # The first wakes the keeper, the others are rung by it. An exception at any moment breaks nothing in a SimpleQueue.
        self._wake, self._parting, self._release = (queue.SimpleQueue() for _ in range(3))  # type: Any, Any, Any
        self._beats, self._last = _Call(guard._call.client), _Call(guard._call.client)
        self._stop: Callable[[], object] = int  # interrupts the block; called again and again
        self._raised: Callable[[], object] = lambda: None  # the exception that was raised in the block, while it lives
        self._handler: Any = None  # of SIGURG, if it was replaced
        self._keeper = threading.Thread(target=self._keep, name="lockkeeper", daemon=True)
    @property
    def held(self) -> bool:
        """Whether the work may go on now, for a step that takes less than the margin."""
        return not (self._over or self._fate or self._pid != os.getpid()) and self._left() > 0
    def check(self) -> None:
        """Raises LeaseLost when the lease is not held."""
        if not self.held:
            self._lose("deadline" if self._pid == os.getpid() else "forked")
            raise LeaseLost(*self._fate["lost"])
    def _left(self) -> float:
        return float(self._until - self._margin - _now())
    def _lose(self, reason: str, by: str = "", detail: str = "") -> None:
        self._fate.setdefault("lost", (self.id, reason, by, detail or _REASONS.get(reason, "")))
        self._wake.put(None)
    def _end(self) -> None:
        self._over = True
        self._wake.put(None)
    def _beat(self) -> None:
        """Sends one heartbeat after the other until the lease is over."""
        third, pause, tell = min(self._ttl / 3, 240.0), _PAUSE, self._on_revoke  # the gateway holds none for longer than 5 minutes
        while not (self._over or self._fate):
            hold = third if pause == _PAUSE and self._left() > third + self._ttl / 20 else 0.0
            try:
                sent, answer = self._beats.send("POST", _BEAT + (f"?wait={hold * 1000:.0f}ms" if hold else ""), self._token,
                                                hold=hold, late=min(_LATE, max(self._ttl / 6, 0.1)))
            except (Problem, _NoAnswer) as e:
                if e._final:  # after the block the answer to the release decides
                    return None if self._over else self._lose(*e._why)
                self._beats.sleep(min(pause, self._ttl / 20))
                pause = min(2 * pause, 1.0)
                continue
            self._until, pause = max(self._until, sent + answer["ttl_ms"] / 1000), _PAUSE
            if tell and (ask := answer.get("revoke_requested")):
                threading.Thread(target=tell, args=(ask.get("reason") or "",), daemon=True).start()
                tell = None
            self._beats.sleep(_PAUSE)  # an early answer, such as one about new waiters, must not make a busy loop
    def _keep(self) -> None:
        """Ends the lease at its deadline, stops the block, releases the lease. It alone interrupts the block."""
        latest = None
        while not self._over:
            left = self._left()
            if left <= 0 and not self._fate:
                self._lose("deadline")
            if self._fate and latest is None:
                latest = _now() + 0.8 * self._margin
                if callable(self._on_lost):
                    threading.Thread(target=self._on_lost, args=(LeaseLost(*self._fate["lost"]),), daemon=True).start()
            elif self._on_lost == "exit" and latest and _now() >= latest:
                os.write(2, f"lockkeeper: {LeaseLost(*self._fate['lost'])}; its block does not end, so the process ends\n".encode())
                os._exit(76)  # as lockctl run does
            if self._fate and not callable(self._on_lost):
                self._stop()
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=_PAUSE if self._fate else min(left, 0.25))  # a timer stands still while the machine sleeps
        if self._fate:
            self._stop()  # takes back what has not been raised yet
        self._parted, left = True, self._left()
        self._parting.put(None)
        try:
            if not self._fate or self._fate["lost"][1] == "deadline":
                self._last.repeat(_now() + _RELEASE, "DELETE", self._back, self._token, late=_LEAVE)
        except (Problem, _NoAnswer) as e:
            if e._final or left <= 0:
                self._lose(*(e._why if e._final else ("deadline",)))
            _log.warning("lease %s is not released, and ends by itself within %g s: %s", self.id, self._ttl, e)
        if self._fate:
            self._beats.stop()
        self._release.put(None)
    def _part(self, wait: bool = True) -> None:
        """Ends the block. When it returns, nothing will be raised in the block any more, and the lock is released."""
        while not self._parted and self._pid == os.getpid() and self._keeper.ident != threading.get_ident():
            try:
                self._end()
                self._parting.get(timeout=1)
            except (queue.Empty, LeaseLost):
                pass  # the loss of another lease is raised again
        if self._handler is not None and threading.current_thread() is threading.main_thread():
            time.sleep(0)  # a signal that is on its way arrives here
            signal.signal(signal.SIGURG, self._handler)
            self._handler = None
        with contextlib.suppress(queue.Empty):
            if wait and not self._fate and self._pid == os.getpid():
                self._release.get(timeout=2 * _RELEASE)
    def _arm(self) -> Lease:
        """Has the block, which runs in this thread, interrupted."""
        lease, ident, thread = self, threading.get_ident(), threading.current_thread()
        main = thread is threading.main_thread() and hasattr(signal, "SIGURG")
        class Interrupt(LeaseLost):
            def __init__(self) -> None:
                super().__init__(*lease._fate["lost"])
                self.args, lease._raised = lease._fate["lost"], weakref.ref(self)
        def stop() -> None:
            if thread.is_alive() and (lease._over or not lease._raised()):  # not raised yet, or swallowed
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(ident), ctypes.py_object() if lease._over else ctypes.py_object(Interrupt))
                if main and not lease._over:
                    signal.pthread_kill(ident, signal.SIGURG)
        Interrupt.__name__ = Interrupt.__qualname__ = "LeaseLost"
        if main and signal.getsignal(signal.SIGURG) in (signal.SIG_DFL, signal.SIG_IGN):
            self._handler = signal.signal(signal.SIGURG, lambda *_: None)  # enough to make blocking calls run Python code
        self._stop = stop
        return self

@contextlib.contextmanager
def _term(guard: Guard) -> Iterator[Guard]:
    try:
        yield guard
    except LeaseLost as e:  # the loss of another lease does not end the term: it is an error of what leads
        if not guard._lease or e.lease_id != guard._lease.id:
            raise
def _answer(until: float, sock: Any, *args: Any, **more: Any) -> Any:
    """An answer that must have been read by then. The timeout of a socket alone begins anew with each byte."""
    answer: Any = http.client.HTTPResponse(sock, *args, **more)
    def readinto(into: Any, read: Any = answer.fp.raw.readinto) -> Any:
        if (left := until - _now()) <= 0:
            raise TimeoutError("timed out")
        sock.settimeout(left)
        return read(into)
    answer.fp.raw.readinto = readinto
    return answer
def _post(loop: Any, f: Callable[..., object], *args: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(f, *args)
async def _in_thread(f: Callable[[], object], stop: Callable[[], object] = int) -> None:
    """Runs f in a thread, and raises its error. When it is cancelled, it calls stop, and waits for f all the same."""
    future: concurrent.futures.Future[object] = concurrent.futures.Future()
    def run() -> None:
        try:
            future.set_result(f())
        except BaseException as e:
            future.set_exception(e)
    threading.Thread(target=run, name="lockkeeper-async", daemon=True).start()
    done = asyncio.wrap_future(future)
    try:
        await asyncio.wait([done])
    except BaseException:
        stop()
        await asyncio.wait([done])
        done.exception()
        raise
    done.result()
