"""The live page's server: HTTP on the loopback interface, a token in every address, 404 without it.

Design: one thread of the standard library's server per connection. Every viewer's thread sends the newest picture when
the previous one has gone out. A browser that does not read blocks only that thread and misses pictures. Pictures are
Server-Sent Events: one direction, plain HTTP, and the browser reconnects by itself.
"""

import hmac
import json
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition
from typing import Any


class Broadcast:
    """Passes pictures and events from one thread to the threads of all viewers."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = json.dumps(about).encode()  # constant values for the page, as JSON
        self._changed = Condition()
        self._picture, self._number, self._over = b"{}", 0, False
        self._events: list[Any] = []
        self._dropped = 0
        self._viewers = self._waiting = 0

    @property
    def wanted(self) -> bool:
        """Whether a viewer waits for a picture; one that does not read does not count."""
        return self._waiting > 0

    def change(
        self,
        picture: Mapping[str, Any],  # plain values
        events: list[Any],  # all events but the first ones that were dropped
        dropped: int,  # number of dropped events
        over: bool = False,  # whether this picture is the last
    ) -> None:
        data = json.dumps(picture, allow_nan=False).encode()
        with self._changed:
            self._picture, self._number, self._over = data, self._number + 1, over
            self._events, self._dropped = events, dropped
            self._changed.notify_all()

    def watch(self, send: Callable[[str, bytes], None]) -> None:
        """Sends every event once, and always the newest picture, until the last one.

        `send`: sends a message; takes its kind and its text, may block, and may raise OSError.
        """
        sent = 0
        with self._changed:
            self._viewers += 1
            seen = self._number  # skip the present picture: it is old if no viewer has waited for pictures
        try:
            while True:
                with self._changed:
                    self._waiting += 1
                    while self._number == seen and not self._over:
                        self._changed.wait()
                    self._waiting -= 1
                    picture, seen, over = self._picture, self._number, self._over
                    events, sent = self._events[max(0, sent - self._dropped) :], self._dropped + len(self._events)
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
        """Waits until every viewer has got the last picture, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._viewers, timeout=seconds)


HOST = "127.0.0.1"

WEB = Path(__file__).parent / "web"
LIBRARY = Path(__file__).parents[2] / "servoctl" / "report" / "web"
SHARED = ("style.css", "scales.js", "bodies.js", "scene.js", "plots.js", "uPlot.iife.min.js", "uPlot.min.css")
"""Files that the live page shares with the page of a run."""

ASSETS = {"": WEB / "live.html"} | {name: WEB / name for name in ("live.css", "live.js")}
ASSETS |= {name: LIBRARY / name for name in SHARED}
"""Path below the token -> file."""

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

BUFFER = 1 << 16  # [byte] send buffer of a viewer

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

Act = Callable[[str, Mapping[str, Any]], str | None]  # performs an action with its values; returns the problem, or None


class PageServer(ThreadingHTTPServer):
    """Serves the page of one run on a free port.

    `token`: secret part of the address; `act`: performs a viewer's action.

    Raises OSError if no port is free.
    """

    daemon_threads = True
    allow_reuse_address = False
    request_queue_size = 128  # of the usual 5 the sixth of a burst, as the stop button, is tried again after a second

    def __init__(self, token: str, broadcast: Broadcast, act: Act) -> None:
        super().__init__((HOST, 0), Handler)
        self.token, self.broadcast, self.act = token.encode(), broadcast, act
        port = self.server_address[1]
        self.hosts = {f"{HOST}:{port}", f"localhost:{port}"}
        # address of the page with its token; anyone with it can stop the run
        self.address = f"http://{HOST}:{port}/{token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a broken connection; the others go on."""


class Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "servoctl", ""

    def do_GET(self) -> None:
        path = self._path()
        if path is None:
            return
        if path == "about":
            self._answer(HTTPStatus.OK, self.server.broadcast.about, "application/json")
        elif path == "stream":
            self._stream()
        elif path in ASSETS:
            file = ASSETS[path]
            self._answer(HTTPStatus.OK, file.read_bytes(), f"{TYPES[file.suffix]}; charset=utf-8")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_POST(self) -> None:
        path = self._path()
        if path is None:
            return
        origin = self.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self.server.hosts:
            return self._refuse(HTTPStatus.FORBIDDEN, "the request comes from another page")
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            return self._refuse(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
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
        """Path after the token; None, after a refusal, if the host name or the token is wrong."""
        if self.headers.get("Host") not in self.server.hosts:  # DNS rebinding: a foreign name that points here
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "wrong host name")
            return None
        _, token, path = (*self.path.partition("?")[0].split("/", 2), "", "")[:3]
        if not hmac.compare_digest(token.encode(errors="replace"), self.server.token):
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            return None
        return path

    def _answer(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self._start_answer(status, kind, {"Content-Length": str(len(content))})
        self.wfile.write(content)

    def _start_answer(self, status: HTTPStatus, kind: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers, **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, json.dumps({"problem": why}).encode(), "application/json")

    def _stream(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self._start_answer(HTTPStatus.OK, "text/event-stream", {})

        def send(kind: str, text: bytes) -> None:
            self.wfile.write(b"event: %s\ndata: %s\n\n" % (kind.encode(), text))

        self.server.broadcast.watch(send)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the address contains the token."""
