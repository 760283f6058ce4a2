"""A server between a store and who reads it, that fails as networks and stores do."""

from __future__ import annotations

import http.client
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

KINDS = ("throttled", "error", "slow", "reset", "cut off")
_STATUS = {"throttled": (503, "SlowDown"), "error": (500, "InternalError")}
_OF_A_HOP = ("transfer-encoding", "content-length", "connection", "expect", "date", "server")
Chosen = Callable[[str, str], str | None]  # of a request's method and path: what goes wrong, None: nothing


class Faults:
    """What goes wrong: every so many requests one kind after another; or what `of` says of each request."""

    def __init__(self, every: int = 0, of: Chosen | None = None) -> None:
        self.made: Counter[str] = Counter()
        self.requests = 0
        self.of = of
        self._every, self._lock = every, Lock()

    def next(self, method: str, path: str) -> str | None:
        with self._lock:
            self.requests += 1
            turn, rest = divmod(self.requests, self._every) if self._every else (0, 1)
            kind = self.of(method, path) if self.of is not None else None if rest else KINDS[turn % len(KINDS)]
            if kind is not None:
                self.made[kind] += 1
            return kind


@contextmanager
def failing(host: str, port: int, faults: Faults) -> Iterator[int]:
    """Serve what a server serves, with faults; give the port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            kind = faults.next(self.command, self.path)
            body = self.body()
            if kind == "reset":
                return self.reset()
            if kind in _STATUS:
                status, code = _STATUS[kind]
                text = f"<Error><Code>{code}</Code><Message>of tests</Message></Error>".encode()
                return self.reply(status, {"Content-Type": "application/xml"}, text, len(text))
            if kind == "slow":
                time.sleep(0.3)
            asked = http.client.HTTPConnection(host, port, timeout=30)
            sent = {name: value for name, value in self.headers.items() if name.lower() not in _OF_A_HOP}
            asked.request(self.command, self.path, body, sent)
            found = asked.getresponse()
            content = found.read()
            asked.close()
            headers = {name: value for name, value in found.getheaders() if name.lower() not in _OF_A_HOP}
            length = int(found.getheader("Content-Length") or len(content))
            if kind == "cut off" and len(content) > 1:
                self.reply(found.status, headers, content[: len(content) // 2], length)
                return self.reset()
            return self.reply(found.status, headers, content, length)

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            chunks = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():  # trailers
                pass
            return b"".join(chunks)

        def reply(self, status: int, headers: dict[str, str], content: bytes, length: int) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else content)
            self.wfile.flush()

        def reset(self) -> None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

        def finish(self) -> None:
            with suppress(OSError, ValueError):  # it was reset
                super().finish()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
