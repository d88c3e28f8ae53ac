"""What the client asks gateways for, what it takes for an answer, and how it gives up."""

import contextlib
import http.client
import os
import pathlib
import pickle
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from fake import Gateway, lockkeeper, until

HERE = pathlib.Path(__file__).resolve().parent.parent


def drip(sock, piece, pause, again, stop):
    """Answers with the piece, and then for ever with one byte after the other, or with the piece again."""
    with contextlib.suppress(OSError), sock:
        sock.recv(4096)
        sock.sendall(piece)
        while not stop.wait(pause):
            sock.sendall(piece if again else b"x")


@contextlib.contextmanager
def trickle(piece, pause=0.05, again=False, tls=None):
    """The URL of a gateway whose answers trickle."""
    stop, listener = threading.Event(), socket.create_server(("127.0.0.1", 0))
    listener = tls.wrap_socket(listener, server_side=True) if tls else listener

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listener.accept()[0], piece, pause, again, stop), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    try:
        yield "http%s://127.0.0.1:%d" % (tls and "s" or "", listener.getsockname()[1])
    finally:
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


class Clients(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway()
        self.addCleanup(self.gateway.close)
        self.client = self.gateway.client()

    def test_the_file_has_at_most_500_lines(self):
        self.assertLessEqual(len((HERE / "lockkeeper.py").read_text().splitlines()), 500)

    def test_the_whole_request_of_a_lock(self):
        with self.client.lock("a b/c", ns="eu", permits=2, limit=3, ttl=20, wait=0, owner="me", metadata="m", lock_delay=1.5):
            pass
        method, path, headers, body = self.gateway.requests[0]
        self.assertEqual((method, path), ("POST", "/v1/locks/a%20b%2Fc/leases"))
        self.assertEqual(body, {"ns": "eu", "mode": "semaphore", "permits": 2, "limit": 3, "ttl": "20000ms", "owner": "me",
                                "metadata": "m", "lock_delay": "1500ms"})
        self.assertRegex(headers["Idempotency-Key"], "^[0-9a-f]{32}$")

    def test_several_locks_and_modes(self):
        with self.client.lock_all(["a", {"lock": "b", "mode": "shared"}], wait=5):
            pass
        with self.client.lock("c", shared=True), self.client.lock("d", limit=4):
            pass
        bodies = [r[3] for r in self.gateway.requests if r[3]]
        self.assertEqual(bodies, [{"locks": [{"lock": "a"}, {"lock": "b", "mode": "shared"}], "async": True},
                                  {"mode": "shared", "async": True},
                                  {"mode": "semaphore", "permits": 1, "limit": 4, "async": True}])

    def test_arguments_that_make_no_sense_are_refused_before_a_request(self):
        for f in (lambda: self.client.lock("a", margin=-1), lambda: self.client.lock("a", ttl=2, margin=1),
                  lambda: self.client.lock("a", on_lost="panic"), lambda: self.client.lock("a", shared=True, permits=1),
                  lambda: lockkeeper.Client([]), lambda: lockkeeper.Client("ftp://a"), lambda: lockkeeper.Client("http://u:p@a"),
                  lambda: lockkeeper.Client("http://a?b=c"), lambda: lockkeeper.Client("unix:"),
                  lambda: lockkeeper.Client(token="a", token_file="b")):
            self.assertRaises(ValueError, f)
        self.assertRaises(TypeError, self.client.lock_all, ["a"], shared=True)
        self.assertEqual(self.gateway.requests, [])

    def test_the_token_goes_with_the_acquire_and_the_lease_token_alone_with_the_rest(self):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("one\n")
            f.flush()
            client = self.gateway.client(token_file=f.name)
            with client.lock("a"):
                f.seek(0)
                f.write("two\n")
                f.flush()
            with client.lock("a"):
                pass
        seen = [(r[0], r[2].get("Authorization"), "Lease-Token" in r[2]) for r in self.gateway.requests]
        self.assertEqual([s for s in seen if s[1]], [("POST", "Bearer one", False), ("POST", "Bearer two", False)])
        self.assertIn(("DELETE", None, True), seen)

    def test_the_environment(self):
        old = dict(os.environ)
        try:
            os.environ.update(LOCKKEEPER_URL="http://127.0.0.1:1, " + self.gateway.url, LOCKKEEPER_TOKEN="t")
            with lockkeeper.Client.from_env().lock("a"):
                pass
        finally:
            os.environ.clear()
            os.environ.update(old)
        self.assertEqual(self.gateway.requests[0][2]["Authorization"], "Bearer t")

    def test_a_proxy_in_the_environment_is_not_used(self):
        os.environ["http_proxy"] = os.environ["HTTP_PROXY"] = "http://127.0.0.1:1"
        try:
            with self.client.lock("a", wait=0):
                pass
        finally:
            del os.environ["http_proxy"], os.environ["HTTP_PROXY"]

    @unittest.skipUnless(hasattr(socket, "AF_UNIX"), "no Unix sockets here")
    def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as dir:
            gateway = Gateway(path=dir + "/s")
            try:
                with lockkeeper.Client("unix:" + dir + "/s").lock("a") as lease:
                    self.assertTrue(lease.held)
                self.assertEqual(gateway.released, [lease.id])
            finally:
                gateway.close()

    @unittest.skipUnless(hasattr(socket, "AF_UNIX"), "no Unix sockets here")
    def test_a_unix_socket_that_takes_no_connection_is_given_up(self):
        with tempfile.TemporaryDirectory() as dir, socket.socket(socket.AF_UNIX) as listener, \
                socket.socket(socket.AF_UNIX) as first:
            listener.bind(dir + "/s")
            listener.listen(0)
            first.connect(dir + "/s")  # it is not accepted, and there is no place for another one
            asked = threading.Thread(target=lambda: self.assertRaises(ConnectionError, lockkeeper._Call(
                lockkeeper.Client("unix:" + dir + "/s")).send, "GET", "/v1/leases/self", "t", late=0.3), daemon=True)
            asked.start()
            asked.join(5)
            self.assertFalse(asked.is_alive())

    def test_tls_is_verified(self):
        with tempfile.TemporaryDirectory() as dir:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
                            "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", dir + "/key",
                            "-out", dir + "/cert"], check=True, stderr=subprocess.DEVNULL)
            server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server.load_cert_chain(dir + "/cert", dir + "/key")
            gateway = Gateway(tls=server)
            try:
                with self.assertRaises(ConnectionError):
                    with gateway.client().lock("a", wait=0.3):
                        pass
                self.assertEqual(gateway.requests, [])
                client = gateway.client(tls=ssl.create_default_context(cafile=dir + "/cert"))
                with self.assertRaises(lockkeeper.LeaseLost):
                    with client.lock("a") as lease:
                        gateway.end(lease.id)
                        time.sleep(20)
                with client.lock("a") as lease:
                    pass
                self.assertIn(lease.id, gateway.released)
                with trickle(b"", tls=server) as url:
                    begun = time.monotonic()
                    with self.assertRaisesRegex(ConnectionError, "timed out"):
                        lockkeeper._Call(lockkeeper.Client(url, tls=client._tls)).send("GET", "/v1/leases/self", "t", late=0.3)
                    self.assertLess(time.monotonic() - begun, 1.5)
            finally:
                gateway.close()

    def test_connections_are_kept_and_one_that_the_gateway_has_closed_costs_a_repeat_with_the_same_key(self):
        opened, connect = [], http.client.HTTPConnection.connect
        try:
            http.client.HTTPConnection.connect = lambda c: opened.append(c) or connect(c)
            for _ in range(10):
                with self.client.lock("a"):
                    pass
            self.assertLessEqual(len(opened), 4)
        finally:
            http.client.HTTPConnection.connect = connect
        for connections in self.client._idle.values():
            for connection in connections:
                connection.sock.shutdown(socket.SHUT_RDWR)
        with self.client.lock("a"):
            pass
        self.assertEqual(len(set(self.gateway.keys)), 11)

    def test_an_answer_that_is_too_long_is_none(self):
        self.gateway.refuse = (201, {"ttl_ms": 1, "token": "x" * (1 << 20)})
        with self.assertRaisesRegex(lockkeeper.Problem, "unexpected_answer"):
            lockkeeper._Call(self.client).send("POST", "/v1/locks/a/leases", body={"wait": 1})

    def test_an_answer_that_trickles_takes_as_long_as_one_that_does_not_come(self):
        pieces = {"head": b"HTTP/1.1 200 OK\r\nX-Slow: ", "body": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n{",
                  "interim": b"HTTP/1.1 100 Continue\r\n\r\n", "status": b""}
        for pause in (0.05, 0):  # also without one: then each read finds something at once
            for name, piece in pieces.items():
                with self.subTest(name, pause=pause), trickle(piece, pause, again=name == "interim") as url:
                    begun = time.monotonic()
                    with self.assertRaises(ConnectionError):
                        lockkeeper._Call(lockkeeper.Client(url)).send("GET", "/v1/leases/self", "t", late=0.3)
                    self.assertLess(time.monotonic() - begun, 1)

    def test_an_answer_that_trickles_is_bounded_on_a_connection_that_was_idle(self):
        lockkeeper._Call(self.client).repeat(time.monotonic() + 5, "GET", "/v1/locks/a")
        (connection,), = self.client._idle.values()
        theirs, ours = socket.socketpair()
        connection.sock = ours
        stop = threading.Event()
        threading.Thread(target=drip, args=(theirs, b"", 0.05, False, stop), daemon=True).start()
        begun = time.monotonic()
        with self.assertRaises(ConnectionError):
            lockkeeper._Call(self.client).send("GET", "/v1/locks/a", late=0.3)
        stop.set()
        self.assertLess(time.monotonic() - begun, 1)

    def test_a_gateway_that_trickles_costs_no_lease_where_another_one_answers(self):
        self.gateway.ttl_ms, answer = 2000, self.gateway.answer
        with trickle(b"") as url:
            client = lockkeeper.Client([url, self.gateway.url])

            def granted(h, body):  # the first heartbeat goes to the gateway that trickles
                client._next = 0 if h.path == "/v1/locks/a/leases" else client._next
                answer(h, body)
            self.gateway.answer, client._next = granted, 1
            with client.lock("a") as lease:
                time.sleep(2.2)
                self.assertTrue(lease.held)
        self.assertTrue(any("/heartbeat" in r[1] for r in self.gateway.requests))

    def test_others_hold_the_lock(self):
        self.gateway.waiting = 1
        for wait in (0, 0.2):
            with self.assertRaises(lockkeeper.NotAcquired) as refused:
                with self.client.lock("a", wait=wait):
                    pass
            self.assertEqual(refused.exception.holders[0]["owner"], "other")
            self.assertIn("a is held by other", str(refused.exception))
        self.assertEqual(len(self.gateway.released), 1)

    def test_a_wait_that_is_cancelled_from_another_thread_leaves_the_queue(self):
        self.gateway.waiting = 1
        guard = self.client.lock("a", on_queued=lambda place: threading.Timer(0.1, guard.cancel).start())
        begun = time.monotonic()
        with self.assertRaises(lockkeeper.NotAcquired):
            guard.__enter__()
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(len(self.gateway.released), 1)

    @unittest.skipUnless(hasattr(signal, "pthread_kill"), "no signals here")
    def test_keyboard_interrupt_while_waiting_leaves_the_queue_at_once(self):
        self.gateway.waiting = 1
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with self.assertRaises(KeyboardInterrupt):
                with self.client.lock("a", on_queued=lambda place: threading.Timer(
                        0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()):
                    self.fail("the lock is held by others")
        finally:
            signal.signal(signal.SIGINT, before)
        self.assertEqual(len(self.gateway.released), 1)

    def test_what_an_acquire_without_an_answer_took_is_given_back(self):
        self.gateway.refuse = (503, {"code": "zookeeper_unavailable"})
        threading.Timer(0.5, setattr, (self.gateway, "refuse", None)).start()
        with self.assertRaises(lockkeeper.Problem) as refused:
            with self.client.lock("a", wait=0.2):
                pass
        self.assertEqual((refused.exception.status, refused.exception.code), (503, "zookeeper_unavailable"))
        self.assertEqual((len(self.gateway.keys), len(self.gateway.released)), (1, 1))

    def test_an_election(self):
        terms = []

        def lead(lease):
            terms.append(lease.id)
            if len(terms) == 1:
                self.gateway.end(lease.id)
                time.sleep(20)
            return "done"
        self.assertEqual(self.client.elect("leader", lead, metadata="10.0.0.7"), "done")
        self.assertEqual(len(terms), 2)

    def test_the_loss_of_another_lease_ends_an_election(self):
        terms, others = [], []

        def lead(lease):
            terms.append(lease.id)
            self.assertEqual(len(terms), 1)
            with self.client.lock("other") as other:
                others.append(other.id)
                self.gateway.end(other.id)
                time.sleep(20)
        with self.assertRaises(lockkeeper.LeaseLost) as lost:
            self.client.elect("leader", lead)
        self.assertEqual([lost.exception.lease_id], others)
        self.assertEqual(self.gateway.released, terms)

    def test_a_holder_that_is_asked_to_release_is_told_once(self):
        asked, reply = [], self.gateway.answer

        def answer(h, body):
            send = h.reply
            h.reply = lambda status, b=None: send(status, {**b, "revoke_requested": {"reason": "deploy"}} if b else b)
            reply(h, body)
        self.gateway.answer, self.gateway.ttl_ms = answer, 1000
        with self.client.lock("a", on_revoke=asked.append):
            until(lambda: len(self.gateway.requests) > 4)
        self.assertEqual(asked, ["deploy"])

    def test_errors_can_be_sent_to_other_processes(self):
        lost = pickle.loads(pickle.dumps(lockkeeper.LeaseLost("L1", "revoked", "me", "why")))
        self.assertEqual((lost.lease_id, lost.reason, lost.by, lost.detail), ("L1", "revoked", "me", "why"))
        self.assertEqual(str(lost), "lease L1 is lost: revoked by me (why)")
        self.assertEqual(pickle.loads(pickle.dumps(lockkeeper.NotAcquired("a", [], 2, 1.0))).queue_length, 2)
        self.assertEqual(pickle.loads(pickle.dumps(lockkeeper.Problem(401, {"code": "x"}, 0))).code, "x")

    def test_the_lease_does_not_show_its_token(self):
        with self.client.lock("a") as lease:
            self.assertNotIn(lease._token + " ", repr(lease))
            self.assertFalse([name for name in dir(lease) if "token" in name and not name.startswith("_")])


class Documents(unittest.TestCase):
    """The examples of the documentation run, and pydoc shows the module as a whole."""

    def setUp(self):
        self.gateway = Gateway()
        self.addCleanup(self.gateway.close)

    def run_example(self, code):
        code = "import threading, time, asyncio, lockkeeper\n" \
               "def write_report(**_): pass\nclient = lockkeeper.Client.from_env()\nlease = None\n" + code
        done = subprocess.run([sys.executable, "-W", "error::SyntaxWarning", "-c", code], timeout=60, capture_output=True, text=True,
                              env={**os.environ, "LOCKKEEPER_URL": self.gateway.url, "PYTHONPATH": str(HERE)})
        self.assertEqual(done.returncode, 0, code + done.stderr)
        return done.stdout

    def test_each_example_of_the_readme_runs(self):
        examples = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.S)
        self.assertGreaterEqual(len(examples), 4)
        for code in examples:
            with self.subTest(code):
                self.run_example(code)
        self.assertTrue(self.gateway.released)

    def test_the_example_of_the_module_runs(self):
        code = lockkeeper.__doc__.split("\n\n")
        self.run_example("\n".join(line[4:] for part in code[1:3] for line in part.splitlines()))
        self.assertEqual(len(self.gateway.released), 1)

    def test_pydoc_shows_what_is_public_and_nothing_else(self):
        text = subprocess.run([sys.executable, "-m", "pydoc", "lockkeeper"], cwd=HERE, capture_output=True, text=True).stdout
        for word in ("Client.from_env()", "class LeaseLost", "on_lost", " elect(", " aelect(", "fence is the fencing token"):
            self.assertIn(word, text)
        for word in ("_Call", "class Interrupt", "_NoAnswer"):
            self.assertNotIn(word, text)
        


if __name__ == "__main__":
    unittest.main()
