"""Kazoo's locks: python3 worker.py HOST:PORT SESSION_MS. What it is told on stdin and what it says is in doc.go."""

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock
from kazoo.security import make_digest_acl

client = None


class NamedLock(Lock):
    """Kazoo's Lock with the names of Curator's mutex and go-zookeeper's: docs/operate/interop.md."""
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


def private(*others):
    """A client whose nodes are for itself alone, and for those others to read."""
    acl = [make_digest_acl("kazoo", "secret", all=True)] + [make_digest_acl(*who, read=True) for who in others]
    c = KazooClient(hosts=sys.argv[1], timeout=int(sys.argv[2]) / 1000, default_acl=acl, auth_data=[("digest", "kazoo:secret")])
    c.start(40)
    return c


saying = threading.Lock()
stops = {}


def say(*words):
    with saying:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()


def count(counter, pause):
    """Reads, waits, writes: what comes in between is lost."""
    n = int(os.pread(counter, 12, 0))
    time.sleep(pause)
    os.pwrite(counter, b"%012d" % (n + 1), 0)


def locked(lock):
    def run(section):
        with lock:
            section()
    return run


def recipe(kind, path):
    """A function that acquires, calls what it is given, and releases."""
    if kind == "kazoo-lock":
        return locked(client.Lock(path, "worker"))
    if kind == "kazoo-lock-extra":
        return locked(client.Lock(path, "worker", extra_lock_patterns=["-lock-"]))
    if kind == "kazoo-lock-named":
        return locked(NamedLock(client, path, "worker"))
    if kind == "kazoo-semaphore":
        return locked(client.Semaphore(path, "worker", max_leases=2))
    if kind == "kazoo-write":
        return locked(client.WriteLock(path, "worker"))
    if kind == "kazoo-read":
        return locked(client.ReadLock(path, "worker"))
    if kind == "kazoo-private":
        return locked(private().Lock(path, "worker"))
    if kind == "kazoo-shown":
        return locked(private(("fleet", "sesame")).Lock(path, "worker"))
    if kind == "kazoo-election":
        return client.Election(path, "worker").run
    raise ValueError(kind)


def job(words, stop):
    """"loop JOB KIND PATH COUNTER PAUSE_US" or "hold JOB KIND PATH"."""
    verb, name, kind, path = words[:4]
    try:
        run = recipe(kind, path)
        if verb == "hold":
            def section():
                say("held", name, time.monotonic_ns())
                stop.wait()
            run(section)
        else:
            counter, pause = os.open(words[4], os.O_RDWR), int(words[5]) / 1e6

            def section():
                begin = time.monotonic_ns()
                count(counter, pause)
                say("section", name, begin, time.monotonic_ns())
            while not stop.is_set():
                run(section)
            os.close(counter)
        say("done", name)
    except BaseException:
        say("fail", name, traceback.format_exc().replace("\n", " | "))


def main():
    global client
    logging.basicConfig(level=logging.WARNING)
    faulthandler.register(signal.SIGQUIT, all_threads=True)
    client = KazooClient(hosts=sys.argv[1], timeout=int(sys.argv[2]) / 1000)
    client.start(40)
    say("ready")
    for line in iter(sys.stdin.readline, ""):
        words = line.split()
        if words[0] == "stop":
            stops[words[1]].set()
            continue
        stops[words[1]] = threading.Event()
        threading.Thread(target=job, args=(words, stops[words[1]]), daemon=True).start()
    os._exit(0)


main()
