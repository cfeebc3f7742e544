"""The live page: who may see it and act, a viewer that does not read, the rows that it looks at, wishes to the loop."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from multiprocessing.connection import Pipe
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hil.recorder.memory import Capacity, Ring, SharedRings
from hil.view import SIGNAL, STOP, PageSettings
from hil.view.process import Operator
from hil.view.scene import MARGIN, RingReader
from hil.view.server import ASSETS, Broadcast, PageServer
from hil.view.view import Requests
from tests.hil.live_page import messages

TOKEN = "the-token"
JSON = {"Content-Type": "application/json"}


class Page:
    """A server, what it was asked to do, and requests to it."""

    def __init__(self) -> None:
        self.done: list[tuple[str, dict[str, Any]]] = []
        self.broadcast = Broadcast({"config": "test"})
        self.server = PageServer(TOKEN, self.broadcast, self._act)
        self.port = self.server.server_address[1]
        self.viewers: list[socket.socket] = []
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def _act(self, action: str, values: Mapping[str, Any]) -> str | None:
        self.done.append((action, dict(values)))
        return "no" if values.get("bad") else None

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.headers)
        finally:
            connection.close()

    def change(self, picture: Mapping[str, Any], events: list[Any], dropped: int = 0, over: bool = False) -> None:
        """A new picture, once somebody waits for one."""
        end = time.monotonic() + 20
        while not self.broadcast.wanted:
            assert time.monotonic() < end, "nobody waits"
            time.sleep(0.001)
        self.broadcast.change(picture, events, dropped, over)

    def stream(self) -> socket.socket:
        """A viewer that has asked for pictures."""
        viewer = socket.socket()
        self.viewers.append(viewer)
        viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        viewer.settimeout(20)
        viewer.connect(("127.0.0.1", self.port))
        viewer.sendall(f"GET /{TOKEN}/stream HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
        return viewer


@pytest.fixture
def page() -> Iterator[Page]:
    found = Page()
    yield found
    found.broadcast.change({}, [], 0, over=True)
    found.server.shutdown()
    found.server.server_close()
    for viewer in found.viewers:
        viewer.close()


@pytest.mark.parametrize("path", list(ASSETS))
def test_the_token_gives_the_page_and_nothing_from_another_host(page: Page, path: str) -> None:
    status, content, headers = page.ask("GET", f"/{TOKEN}/{path}")
    assert (status, len(content)) == (200, int(headers["Content-Length"]))
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"  # the address is the key
    assert not any(name.startswith("Access-Control") for name in headers)
    if "uPlot" not in path:
        assert b"http" not in content.replace(b"http-equiv", b"")


@pytest.mark.parametrize("path", ["/", "/the-toke/", "/the-tokenn/", "/x/the-token/", "/THE-TOKEN/", "/about", "/é/"])
def test_without_the_token_there_is_nothing(page: Page, path: str) -> None:
    address = path.encode().decode("latin-1")
    for method in ("GET", "POST"):
        connection = socket.create_connection(("127.0.0.1", page.port), 20)
        head = f"{method} {address} HTTP/1.0\r\nHost: 127.0.0.1:{page.port}\r\nContent-Length: 2\r\n"
        connection.sendall(head.encode("latin-1") + b"Content-Type: application/json\r\n\r\n{}")
        first = connection.makefile("rb").readline()
        connection.close()
        assert first.split()[1] in (b"404", b"400"), first
    assert not page.done


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil:{port}", ""]
)
def test_by_another_name_it_is_not_here(page: Page, host: str) -> None:
    """A page of somebody else's whose name was made to lead to this machine brings its own name along."""
    headers = {"Host": host.format(port=page.port), **JSON}
    assert page.ask("GET", f"/{TOKEN}/", headers=headers)[0] == 421
    assert page.ask("POST", f"/{TOKEN}/stop", b"{}", headers)[0] == 421
    assert not page.done


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "stop", None, {}, 404),
        ("POST", "about", b"{}", JSON, 404),
        ("POST", "", b"{}", JSON, 404),
        ("PUT", "stop", b"{}", JSON, 501),
        ("OPTIONS", "stop", None, {}, 501),
        ("POST", "stop", b"{", JSON, 400),
        ("POST", "stop", b"[]", JSON, 400),
        ("POST", "stop", b"\xff", JSON, 400),
        ("POST", "stop", b"{}", {**JSON, "Content-Length": "-1"}, 411),
        ("POST", "stop", b"{}", {**JSON, "Origin": "http://evil.example"}, 403),
        ("POST", "stop", b"{}", {**JSON, "Origin": "null"}, 403),
        ("GET", "../live.js", None, {}, 404),
        ("GET", "%2e%2e/server.py", None, {}, 404),
    ],
)
def test_an_unknown_action_does_nothing(
    page: Page, method: str, path: str, body: bytes | None, headers: dict[str, str], status: int
) -> None:
    assert page.ask(method, f"/{TOKEN}/{path}", body, headers)[0] == status
    assert not page.done


def test_actions_reach_the_loop_and_a_refusal_is_shown(page: Page) -> None:
    origin = {**JSON, "Origin": f"http://localhost:{page.port}"}
    assert page.ask("POST", f"/{TOKEN}/stop", b"{}", origin)[0] == 200
    status, content, _ = page.ask("POST", f"/{TOKEN}/gain", b'{"bad": 1}', JSON)
    assert (status, json.loads(content)) == (422, {"problem": "no"})
    assert page.done == [("stop", {}), ("gain", {"bad": 1})]


def test_it_listens_on_loopback_alone(page: Page) -> None:
    assert page.server.socket.getsockname()[0] == "127.0.0.1"
    assert page.server.address == f"http://127.0.0.1:{page.port}/{TOKEN}/"


def test_a_viewer_sees_new_pictures_and_every_event_once(page: Page) -> None:
    page.broadcast.change({"n": 0}, [{"text": "a"}], 0)  # before anybody came: old by now
    seen = messages(page.stream())
    page.change({"n": 1}, [{"text": "a"}, {"text": "b"}])
    assert [next(seen), next(seen)] == [("events", [{"text": "a"}, {"text": "b"}]), ("picture", {"n": 1})]
    page.change({"n": 2}, [{"text": "b"}, {"text": "c"}], 1)  # the oldest was dropped meanwhile
    assert [next(seen), next(seen)] == [("events", [{"text": "c"}]), ("picture", {"n": 2})]
    page.change({"n": 3}, [{"text": "c"}], 2, over=True)
    assert list(seen) == [("over", {"n": 3})]
    assert list(messages(page.stream())) == [("events", [{"text": "c"}]), ("over", {"n": 3})]  # who comes too late


def test_a_viewer_that_reads_nothing_delays_no_other_and_uses_no_memory(page: Page) -> None:
    stuck, large = page.stream(), "x" * 100_000
    page.change({"n": -1}, [])
    for n in range(300):  # 30 MB, of which the system keeps a little and the server one picture
        page.broadcast.change({"n": n, "pad": large}, [], 0)
    end = time.monotonic() + 20
    while page.broadcast.wanted:  # until it is stuck indeed; no picture is made for it from then on
        assert time.monotonic() < end
        page.broadcast.change({"n": n, "pad": large}, [], 0)
    seen = messages(page.stream())
    page.change({"n": 300}, [])
    assert next(seen) == ("picture", {"n": 300})
    page.broadcast.change({"n": 301}, [], 0, over=True)
    late = list(messages(stuck))
    assert late[-1] == ("over", {"n": 301})  # it sees the end, and little of what was between
    assert len(late) < 50


def test_a_burst_of_connections_finds_room_before_the_server_takes_the_first() -> None:
    """The system tries one that finds none again after a second: so late the stop button was heard behind others."""
    server = PageServer(TOKEN, Broadcast({}), lambda action, values: None)
    with ExitStack() as opened:
        opened.callback(server.server_close)
        for _ in range(24):
            opened.enter_context(socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=0.9))


def test_connections_without_the_token_do_not_block_the_stop_button(page: Page) -> None:
    for _ in range(24):  # they have begun a request and do not go on
        stranger = socket.create_connection(("127.0.0.1", page.port), timeout=20)
        page.viewers.append(stranger)
        stranger.sendall(b"G")
    assert page.ask("POST", f"/{TOKEN}/stop", b"{}", JSON)[0] == 200
    assert page.done == [("stop", {})]
    assert page.ask("GET", f"/{TOKEN}/about")[0] == 200


COLUMNS, CAPACITY, ROWS = 60, 16, 60_000

WRITER = f"""
import sys, numpy as np
from hil.recorder.memory import Capacity, SharedRings
memory = SharedRings({COLUMNS}, Capacity({CAPACITY}, 8, 64), int(sys.argv[1]))
ring = memory.rows
table = np.frombuffer(ring.slots, count={CAPACITY} * {COLUMNS}).reshape({CAPACITY}, {COLUMNS})
for n in range(1, {ROWS} + 1):
    table[ring.head % {CAPACITY}] = n
    ring._counts[0] = n  # nothing ever keeps the writer
"""


def test_no_row_is_ever_torn_while_a_process_writes_as_fast_as_it_can() -> None:
    """Every row has one number in all its columns; a ring so small is overwritten all the time."""
    memory = SharedRings(COLUMNS, Capacity(CAPACITY, 8, 64))
    reader = RingReader(SharedRings(COLUMNS, Capacity(CAPACITY, 8, 64), memory.descriptor, writable=False).rows)
    words = [sys.executable, "-c", WRITER, str(memory.descriptor)]
    writer = subprocess.Popen(words, pass_fds=(memory.descriptor,))
    seen, missed, last, gap, end = 0, 0, 0, 0, time.monotonic() + 60.0
    while seen + missed < ROWS and time.monotonic() < end:
        data, lost = reader.look()
        table = np.frombuffer(data).reshape(-1, COLUMNS)
        assert (table == table[:, :1]).all()
        numbers, gap = table[:, 0], gap + lost
        if len(numbers):
            assert numbers[0] == last + 1 + gap  # what it says is missing is what is missing
            assert (np.diff(numbers) == 1).all()
            last, gap = int(numbers[-1]), 0
        seen, missed = seen + len(numbers), missed + lost
    assert writer.wait(60.0) == 0
    assert seen + missed == ROWS
    assert last + gap == ROWS
    assert seen > 10
    del table


class Writer:
    """Puts numbered records into a ring, also in the middle of somebody's copying."""

    def __init__(self, capacity: int) -> None:
        self.ring = Ring(memoryview(bytearray(Ring.footprint(1, capacity))), 1, capacity)
        self.put, self.during, self._slots = 0, 0, self.ring.slots
        self.ring.slots = self  # type: ignore[assignment]

    def write(self, count: int) -> None:
        for _ in range(count):
            self._slots[self.put % self.ring.capacity] = self.put % 251
            self.put += 1
            self.ring._counts[0] = self.put

    def __getitem__(self, part: slice) -> memoryview:
        """A part of the memory, which changes while it is being read."""
        self.write(self.during)
        self.during = 0
        return self._slots[part]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=30))
def test_records_come_once_in_order_and_the_missing_are_counted(bursts: list[tuple[int, int]]) -> None:
    """Bursts of any length, between looks and in the middle of one."""
    writer = Writer(16)
    reader, shown = RingReader(writer.ring), []
    for before, during in [*bursts, (0, 0), (0, 0)]:
        writer.write(before)
        writer.during = during
        data, missed = reader.look()
        shown += [-1] * missed + list(data)
        assert len(data) <= 16 - MARGIN
    assert len(shown) == writer.put
    assert all(byte in (-1, n % 251) for n, byte in enumerate(shown))


def test_a_reader_cannot_write() -> None:
    memory = SharedRings(2, Capacity(4, 4, 64))
    other = SharedRings(2, Capacity(4, 4, 64), memory.descriptor, writable=False)
    with pytest.raises((TypeError, ValueError), match="read-only"):
        other.rows.slots[0] = 1


def test_requests_arrive_once_and_a_stop_stays() -> None:
    loop, page = Pipe()
    requests = Requests(loop)
    assert (requests.gains(), requests.stopped) == ((), False)
    page.send((1, 2.5))
    page.send((1, 3.5))
    assert requests.gains() == ((1, 3.5),), "the last value counts"
    assert requests.gains() == ()
    page.send((0, float("nan")))
    page.send((STOP, 0.0))
    assert requests.stopped and requests.stopped
    ((number, value),) = requests.gains()
    assert number == 0 and value != value, "a look for the stop loses no gain"
    page.close()
    assert requests.stopped and requests.gains() == (), "a page that has ended asks for nothing"


def test_a_stop_finds_room_however_many_gains_were_asked_for_while_the_loop_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = Pipe()
    signals: list[int] = []
    monkeypatch.setattr("hil.view.process.GAIN_INTERVAL", 0.0)
    monkeypatch.setattr("hil.view.process.os.kill", lambda process, number: signals.append(number))
    settings = PageSettings(0, Capacity(), [], {"law.alpha": (0.0, 1.0)}, {}, None, os.getppid())
    operator = Operator(settings, there)
    answers = [operator.act("gain", {"path": "law.alpha", "value": 0.5}) for _ in range(3000)]
    assert answers[0] is None and answers[-1] == "law.alpha: the loop takes no requests yet (wait until it runs)"
    assert operator.act("stop", {}) is None and signals == [SIGNAL]
    requests = Requests(here)
    assert requests.stopped and list(requests.gains()) == [(0, 0.5)]
    assert operator.act("gain", {"path": "law.alpha", "value": 0.7}) is None and list(requests.gains()) == [(0, 0.7)]
