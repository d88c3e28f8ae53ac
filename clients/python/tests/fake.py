"""A gateway of one lock for the tests: it answers as it is told, and keeps what it was asked."""

import http.server
import itertools
import json
import os
import socketserver
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lockkeeper  # noqa: E402,F401

_ids = itertools.count(1)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def address_string(self):
        return "client"

    def serve(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.server.gateway.answer(self, json.loads(self.rfile.read(length) or b"{}"))

    do_GET = do_POST = do_DELETE = serve

    def reply(self, status, body=None):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(text)))
            self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(text)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass  # clients cut connections


class UnixServer(Server):
    address_family = getattr(__import__("socket"), "AF_UNIX", None)

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "unix", 0


class Gateway:
    """Grants each acquire at once, while waiting is 0. end ends a lease; frozen heartbeats are not answered."""

    def __init__(self, path=None, tls=None):
        self.mutex = threading.Condition()
        self.requests, self.keys, self.released, self.ended = [], [], [], {}
        self.ttl_ms, self.waiting, self.frozen, self.refuse = 30_000, 0, False, None
        self.server = UnixServer(path, Handler) if path else Server(("127.0.0.1", 0), Handler)
        self.url = "unix:" + path if path else "http://127.0.0.1:%d" % self.server.server_port
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
            self.url = self.url.replace("http:", "https:")
        self.server.gateway = self
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def client(self, **more):
        return lockkeeper.Client(self.url, **more)

    def end(self, lease_id, reason="revoked", by="token:ops"):
        with self.mutex:
            self.ended[lease_id] = {"status": 410, "code": "lease_ended", "reason": reason, "by": by, "detail": "it is over"}
            self.mutex.notify_all()

    def await_released(self, count=1, within=10):
        with self.mutex:
            assert self.mutex.wait_for(lambda: len(self.released) >= count, within), (self.released, self.requests[-5:])

    def answer(self, h, body):
        path, lease = h.path.partition("?")[0], h.headers.get("Lease-Token")
        with self.mutex:
            self.requests.append((h.command, h.path, dict(h.headers), body))
            self.mutex.notify_all()
            if self.refuse:
                return h.reply(*self.refuse)
            if h.command == "DELETE":
                self.released.append(lease)
                if lease not in self.ended:
                    self.ended[lease] = {"status": 410, "code": "lease_ended", "reason": "released"}
                self.mutex.notify_all()
                return h.reply(204)
            if path.endswith("/heartbeat"):
                hold = float(h.path.partition("wait=")[2].rstrip("ms") or 0) / 1000
                self.mutex.wait_for(lambda: lease in self.ended or self.frozen, hold)
                if self.frozen:
                    self.mutex.wait_for(lambda: not self.frozen, 60)
                if lease in self.ended:
                    return h.reply(410, self.ended[lease])
                return h.reply(200, {"state": "held", "ttl_ms": self.ttl_ms})
            if path == "/v1/leases/self":
                self.mutex.wait_for(lambda: self.waiting == 0 or lease in self.ended, 25)
                if lease in self.ended:
                    return h.reply(410, self.ended[lease])
                return h.reply(200, {"lease_id": lease, "state": "held", "fencing_token": 7, "ttl_ms": self.ttl_ms, "rev": "2"})
            if h.command == "GET":
                return h.reply(200, {"holders": [{"owner": "other"}], "queue_length": 1})
            self.keys.append(h.headers.get("Idempotency-Key"))
            grant = {"lease_id": "L%d" % next(_ids), "fencing_token": 7, "ttl_ms": self.ttl_ms, "rev": "1"}
            grant["token"] = grant["lease_id"]
            if not self.waiting:
                return h.reply(201, {**grant, "state": "held", "waited_ms": 0})
            if not body.get("async"):
                return h.reply(409, {"status": 409, "code": "held_by_other", "holders": [{"owner": "other"}], "queue_length": 2})
            h.reply(202, {**grant, "state": "waiting", "position": self.waiting})


def until(what, within=10):
    end = time.monotonic() + within
    while not what():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.005)
