"""Runs scenarios of Kazoo's recipes against one ZooKeeper.

usage: python3 main.py HOST:PORT CONTROL ROUNDS

The first line on stdout is "scenarios" and the names of all. Those that shall run come on stdin, one on a line, and run at
the same time. Each ends with one line on stdout: "ok NAME", or "fail NAME TRACE" with the trace as a JSON string. Exit code: 0 when all went well, 1 when one failed. CONTROL is where
a proxy for bad weather can be had (world.Weather); ROUNDS multiplies the work of scenarios that contend.
"""

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import traceback

import basics
import locks
import sessions
import shared
import watches
from world import World

SCENARIOS = {}
for module in (basics, locks, sessions, shared, watches):
    SCENARIOS.update(module.SCENARIOS)


def run(name, addr, control, rounds, said):
    world = World(name, addr, control, rounds)
    try:
        try:
            SCENARIOS[name](world)
        finally:
            world.close()
        line, good = "ok " + name, True
    except BaseException:
        line, good = "fail %s %s" % (name, json.dumps(traceback.format_exc())), False
    with said:
        print(line, flush=True)
    return good


def main():
    addr, control, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(threadName)s %(message)s")
    faulthandler.register(signal.SIGQUIT, all_threads=True)  # how the test asks where everybody hangs
    print("scenarios", *SCENARIOS, flush=True)
    said, failed, running = threading.Lock(), threading.Event(), []
    for name in iter(sys.stdin.readline, ""):
        def body(name=name.strip()):
            if not run(name, addr, control, rounds, said):
                failed.set()
        t = threading.Thread(target=body, daemon=True)
        t.start()
        running.append(t)
    for t in running:
        t.join()
    sys.stdout.flush()
    os._exit(1 if failed.is_set() else 0)  # Kazoo's threads may still be about; nothing of theirs is worth a wait


main()
