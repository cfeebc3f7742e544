"""The page's server: HTTP on loopback, a token in every address, and nothing for who does not have it.

Design: a thread per connection of the standard library's server, and few connections. A request has a deadline, and
who has not shown the token yet makes way for who comes next, so that nobody can keep the stop button from its owner.
Every viewer has a thread that
sends the newest picture when the last one is through; a browser that does not read blocks that thread alone, misses
pictures, and after a while loses its connection. Pictures are Server-Sent Events: one way, plain HTTP, reconnected by
the browser itself.
"""

import hmac
import io
import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Lock
from typing import Any

HOST = "127.0.0.1"

WEB = Path(__file__).parent / "web"
LIBRARY = Path(__file__).parents[2] / "servoctl" / "report" / "web"
ASSETS = {
    "": (WEB / "live.html", "text/html; charset=utf-8"),
    "live.css": (WEB / "live.css", "text/css; charset=utf-8"),
    "live.js": (WEB / "live.js", "text/javascript; charset=utf-8"),
    "style.css": (LIBRARY / "style.css", "text/css; charset=utf-8"),
    "scales.js": (LIBRARY / "scales.js", "text/javascript; charset=utf-8"),
    "plots.js": (LIBRARY / "plots.js", "text/javascript; charset=utf-8"),
    "uPlot.iife.min.js": (LIBRARY / "uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    "uPlot.min.css": (LIBRARY / "uPlot.min.css", "text/css; charset=utf-8"),
}

CONNECTIONS = 24
"""At a time."""

RESERVE = 4
"""More of them, for who presses a button while all those places are taken by viewers."""

REQUEST_TIME = 5.0
"""Time for a whole request to come in [s]."""

PATIENCE = 10.0
"""How long a viewer may take nothing [s]."""

BUFFER = 1 << 16
"""What the system keeps for a viewer that does not read [byte]."""

LARGEST_WISH = 1024
"""[byte]."""

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

Act = Callable[[str, Mapping[str, Any]], str | None]
"""Takes an action and its values; what is wrong with it, or None."""


class Broadcast:
    """What viewers are shown: one thread changes it, each viewer's waits for that.

    Attributes:
        about: What does not change, for the page to begin with.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = json.dumps(about).encode()
        self._changed = Condition()
        self._picture, self._number, self._over = b"{}", 0, False
        self._events: list[Any] = []
        self._dropped = 0
        self._viewers = self._waiting = 0

    @property
    def wanted(self) -> bool:
        """Whether a viewer waits for a picture: one that does not read is none."""
        return self._waiting > 0

    def change(self, picture: Mapping[str, Any], events: list[Any], dropped: int, over: bool = False) -> None:
        """A new picture, and all events but the `dropped` first; `over`: there will be no other."""
        data = json.dumps(picture, allow_nan=False).encode()
        with self._changed:
            self._picture, self._number, self._over = data, self._number + 1, over
            self._events, self._dropped = events, dropped
            self._changed.notify_all()

    def watch(self, send: Callable[[str, bytes], None]) -> None:
        """Sends pictures, the newest each time, and every event once, until the last.

        Args:
            send: Takes the kind of a message and its text; may block, and raise OSError.
        """
        told = 0
        with self._changed:
            self._viewers += 1
            seen = self._number  # which may be old: nobody makes pictures that nobody waits for
        try:
            while True:
                with self._changed:
                    self._waiting += 1
                    while self._number == seen and not self._over:
                        self._changed.wait()
                    self._waiting -= 1
                    picture, seen, over = self._picture, self._number, self._over
                    events, told = self._events[max(0, told - self._dropped) :], self._dropped + len(self._events)
                if events:
                    send("events", json.dumps(events).encode())
                send("over" if over else "picture", picture)
                if over:
                    return
        finally:
            with self._changed:
                self._viewers -= 1
                self._changed.notify_all()

    def wait_for_viewers(self, seconds: float) -> None:
        """Until every viewer has seen the last picture, at most for so long [s]."""
        with self._changed:
            self._changed.wait_for(lambda: not self._viewers, timeout=seconds)


class PageServer(ThreadingHTTPServer):
    """Serves one run's page.

    Attributes:
        address: Of the page, with its token: who has it may stop the run.
    """

    daemon_threads = True
    allow_reuse_address = False
    request_queue_size = CONNECTIONS

    def __init__(self, token: str, show: Broadcast, act: Act) -> None:
        """Listens on a port that is free.

        Raises:
            OSError: There is none.
        """
        super().__init__((HOST, 0), Handler)
        self.token, self.show, self.act = token.encode(), show, act
        port = self.server_address[1]
        self.hosts = {f"{HOST}:{port}", f"localhost:{port}"}
        self.address = f"http://{HOST}:{port}/{token}/"
        self._lock = Lock()
        self._seats: dict[socket.socket, bool] = {}  # connection -> whether it has shown the token; the oldest first

    def process_request(self, request: Any, client_address: Any) -> None:
        """Takes a connection; on top of `CONNECTIONS` the oldest that has not shown the token goes for it."""
        with self._lock:
            stranger = next((each for each, known in self._seats.items() if not known), None)
            if len(self._seats) >= CONNECTIONS and stranger is not None:
                del self._seats[stranger]
                with suppress(OSError):  # it has gone already
                    stranger.shutdown(socket.SHUT_RDWR)
            room = len(self._seats) < CONNECTIONS + RESERVE
            if room:
                self._seats[request] = False
        if not room:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._seats.pop(request, None)

    def admit(self, request: socket.socket) -> None:
        """Lets a connection stay: it has shown the token."""
        with self._lock:
            if request in self._seats:
                self._seats[request] = True

    @property
    def crowded(self) -> bool:
        """Whether there is room left for buttons alone."""
        return len(self._seats) > CONNECTIONS

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks concerns nobody else."""


class _Request(io.RawIOBase):
    """What comes in on a connection, until the request has had its time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._end = connection, time.monotonic() + REQUEST_TIME

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(PATIENCE)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: PageServer
    server_version, sys_version = "servoctl", ""
    timeout = PATIENCE

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Request(self.connection))

    def do_GET(self) -> None:
        path = self._path()
        if path is None or self.server.crowded:
            return
        if path == "about":
            self._answer(HTTPStatus.OK, self.server.show.about, "application/json")
        elif path == "stream":
            self._stream()
        elif path in ASSETS:
            file, kind = ASSETS[path]
            self._answer(HTTPStatus.OK, file.read_bytes(), kind)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_POST(self) -> None:
        path = self._path()
        if path is None:
            return
        origin = self.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self.server.hosts:
            return self._refuse(HTTPStatus.FORBIDDEN, "from another page")
        if self.headers.get_content_type() != "application/json":
            return self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected application/json")
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            return self._refuse(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
        if int(length) > LARGEST_WISH:
            return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {LARGEST_WISH} bytes")
        try:
            values = json.loads(self.rfile.read(int(length)))
        except ValueError:
            values = None
        if not isinstance(values, dict):
            return self._refuse(HTTPStatus.BAD_REQUEST, "expected a JSON object")
        if path not in ("stop", "gain"):
            return self._refuse(HTTPStatus.NOT_FOUND, "there is no such action")
        problem = self.server.act(path, values)
        if problem is not None:
            return self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY, problem)
        self._answer(HTTPStatus.OK, b"{}", "application/json")

    def _path(self) -> str | None:
        """What is asked for, behind the token; None, and refused, for who may not ask."""
        if self.headers.get("Host") not in self.server.hosts:  # a name of somebody else's that leads here
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "not by this name")
            return None
        _, token, path = (*self.path.partition("?")[0].split("/", 2), "", "")[:3]
        if not hmac.compare_digest(token.encode(errors="replace"), self.server.token):
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            return None
        self.server.admit(self.connection)
        return path

    def _answer(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self._begin(status, kind, {"Content-Length": str(len(content))})
        self.wfile.write(content)

    def _begin(self, status: HTTPStatus, kind: str, further: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **further, **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, json.dumps({"problem": why}).encode(), "application/json")

    def _stream(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self._begin(HTTPStatus.OK, "text/event-stream", {})

        def send(kind: str, text: bytes) -> None:
            self.wfile.write(b"event: %s\ndata: %s\n\n" % (kind.encode(), text))

        self.server.show.watch(send)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the address holds the token."""
