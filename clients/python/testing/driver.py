"""The Python client as the shared suite drives it: JSON commands on stdin, JSON events on stdout. --asyncio takes the locks so."""

import asyncio
import json
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import lockkeeper  # noqa: E402

_mutex = threading.Lock()
_shared = []


class Cancelled(BaseException):
    """The caller gives up, as KeyboardInterrupt would in the main thread."""


class Boom(Exception):
    """The work fails."""


def emit(id, event, **more):
    line = json.dumps({"id": id, "event": event, **more}) + "\n"
    with _mutex:
        os.write(1, line.encode())


def client_of(command):
    if "url" not in command and "token" not in command and "token_file" not in command:
        if not _shared:
            _shared.append(lockkeeper.Client.from_env())
        return _shared[0]
    return lockkeeper.Client(command.get("url") or "http://127.0.0.1:8080", token=command.get("token") or "",
                             token_file=command.get("token_file") or "")


def guard_of(command):
    id, locks = command["id"], command["locks"]
    seconds = lambda name: command[name] / 1000 if command.get(name) is not None else None  # noqa: E731
    options = dict(ttl=seconds("ttl_ms"), wait=seconds("wait_ms"), margin=seconds("margin_ms"), owner=command.get("owner") or "",
                   metadata=command.get("metadata") or "", lock_delay=seconds("lock_delay_ms") or 0, reason=command.get("reason") or "",
                   at_least=seconds("at_least_ms") or 0, once_per=seconds("once_per_ms") or 0,
                   period=command.get("period") or "", done_on=command.get("done_on") or "",
                   on_revoke=lambda reason: emit(id, "revoke", reason=reason), on_queued=lambda n: emit(id, "queued", position=n))
    each = [dict(ns=x.get("ns") or "", shared=x.get("mode") == "shared",
                 permits=(x.get("permits") or 1) if x.get("mode") == "semaphore" else 0,
                 limit=(x.get("limit") or 0) if x.get("mode") == "semaphore" else 0) for x in locks]
    client = client_of(command)
    if len(locks) == 1:
        return client.lock(locks[0]["lock"], **each[0], **options)
    return client.lock_all([{k: v for k, v in x.items() if v} for x in locks], **options)


class Call:
    """One command: the same work, in a thread or in a task."""

    def __init__(self, command):
        self.command, self.id, self.word, self.ended, self.guard = command, command["id"], None, False, None

    def steps(self, lease):
        """The work. It yields between its steps, and ends itself by what the caller says."""
        work = self.command.get("work") or {}
        log = os.open(work["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if work.get("log") else None

        def write(what):
            if log is not None:
                os.write(log, f"{time.monotonic_ns()} {os.getpid()} {self.id} {lease.fence} {what}\n".encode())

        emit(self.id, "started", fence=lease.fence, lease_id=lease.id, t=time.monotonic_ns())
        end = time.monotonic() + work["for_ms"] / 1000 if work.get("for_ms") is not None else None
        try:
            write("start")
            while self.word != "finish" and (end is None or time.monotonic() < end):
                if self.word in ("fail", "cancel"):
                    raise Boom("boom") if self.word == "fail" else Cancelled()
                lease.check()
                write("step")
                yield (work.get("step_ms") or 10) / 1000
        finally:
            write("end")
            if log is not None:
                os.close(log)
            emit(self.id, "stopped", t=time.monotonic_ns())

    def run(self):
        try:
            self.guard = guard_of(self.command)
            if self.word == "cancel":
                raise Cancelled()
            with self.guard as lease:
                for pause in self.steps(lease):
                    time.sleep(pause)
            self.report(None)
        except BaseException as e:
            self.report(e)

    async def run_async(self):
        try:
            async with guard_of(self.command) as lease:
                for pause in self.steps(lease):
                    await asyncio.sleep(pause)
            self.report(None)
        except BaseException as e:
            self.report(e)

    def report(self, e):
        self.ended = True
        if e is None:
            emit(self.id, "done")
        elif isinstance(e, lockkeeper.Done):
            emit(self.id, "done", already=True, period=e.period, by=e.by, done_at=e.at)
        elif isinstance(e, lockkeeper.LeaseLost):
            emit(self.id, "failed", error="LeaseLost", lease_id=e.lease_id, reason=e.reason, by=e.by, detail=e.detail)
        elif isinstance(e, (Cancelled, asyncio.CancelledError)) or self.word == "cancel" and isinstance(e, (lockkeeper.NotAcquired, OSError)):
            emit(self.id, "failed", error="Cancelled")
        elif isinstance(e, lockkeeper.NotAcquired):
            emit(self.id, "failed", error="NotAcquired", lock=e.lock, holders=e.holders, queue_length=e.queue_length)
        elif isinstance(e, lockkeeper.Problem):
            emit(self.id, "failed", error="Problem", status=e.status, code=e.code, field=e.field, detail=e.detail)
        else:
            kind = {Boom: "Work", ValueError: "Invalid"}.get(type(e), "Other")
            emit(self.id, "failed", error=kind, detail=str(e))


def main():
    calls, loop = {}, None
    if "--asyncio" in sys.argv[1:]:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()

    def cancel(call):
        call.word = "cancel"
        if loop is not None:
            loop.call_soon_threadsafe(call.task.cancel)
        elif call.guard is not None:
            call.guard.cancel()

    async def begin(call):
        call.task = asyncio.ensure_future(call.run_async())

    for line in sys.stdin:
        command = json.loads(line)
        call = calls.get(command["id"])
        if command["do"] == "lock":
            call = calls[command["id"]] = Call(command)
            if loop is not None:
                asyncio.run_coroutine_threadsafe(begin(call), loop).result()
            else:
                threading.Thread(target=call.run, daemon=True).start()
        elif call is not None and not call.ended:
            if command["do"] == "cancel":
                cancel(call)
            call.word = command["do"]
    for call in calls.values():
        if not call.ended:
            cancel(call)
    end = time.monotonic() + 10
    while not all(call.ended for call in calls.values()) and time.monotonic() < end:
        time.sleep(0.01)


main()
