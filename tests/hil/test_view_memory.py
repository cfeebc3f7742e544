"""Looking on at a ring while another process writes it, and wishes on their way to the loop."""

import os
import subprocess
import sys
import time
from multiprocessing.connection import Pipe

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hil.recorder.memory import Capacity, Ring, SharedRings
from hil.view import SIGNAL, STOP, PageSettings
from hil.view.process import Operator
from hil.view.scene import MARGIN, RingReader
from hil.view.view import Requests

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
