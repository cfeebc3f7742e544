"""Handshakes of several drives run in parallel at the pace of the ticks, and late drives are named."""

from collections.abc import Callable
from functools import partial

import pytest

from hil.drives import DriveError, HandshakeStep, Steps
from hil.frame import Frame
from hil.loop import VirtualClock
from hil.rig.handshake import BURST, Handshake
from tests.hil.test_monitor import Silent, settings

MS = 1_000_000


class Ordered:
    """Some drives, a clock, and what was sent."""

    def __init__(self, *verbs: Callable[["Ordered"], Steps], limit: float = 5.0) -> None:
        self.clock, self.sent = VirtualClock(), list[tuple[int, int]]()
        self.ready = False
        self.drives = [Silent(settings(f"u{i}"), 0.002) for i in range(len(verbs))]
        self.verbs = Handshake(
            {drive: verb(self) for drive, verb in zip(self.drives, verbs, strict=True)}, self._send, self.clock, limit
        )

    def _send(self, bus: str, frame: Frame) -> None:
        self.sent.append((self.clock.now(), frame.id))

    def tick(self) -> bool:
        over = self.verbs.advance()
        self.clock.sleep_until(self.clock.now() + MS)
        return over


def frames(first: int, count: int) -> list[Frame]:
    return [Frame(first + i) for i in range(count)]


def test_a_burst_is_spread_over_ticks_in_order() -> None:
    def verb(run: Ordered) -> Steps:
        yield HandshakeStep(frames(0x100, 7), lambda: True, 0.5, "")
        yield HandshakeStep(frames(0x200, 1), lambda: True, 0.5, "")

    run = Ordered(verb, verb)
    for _ in range(20):
        if run.tick():
            break
    per_tick = [sum(t == tick * MS for t, _ in run.sent) for tick in range(6)]
    assert max(per_tick) <= BURST
    assert sum(per_tick) == 16
    assert [i for _, i in run.sent if i >= 0x200] == [0x200, 0x200]


def test_the_time_of_a_step_counts_from_its_last_frame() -> None:
    def slow(run: Ordered) -> Steps:
        yield HandshakeStep(frames(0, 12 * BURST), lambda: True, 0.01, "")

    def waits(run: Ordered) -> Steps:
        yield HandshakeStep(frames(0x700, 1), lambda: run.clock.now() >= 15 * MS, 0.01, "patience")

    run = Ordered(slow, waits)
    while not run.tick():
        assert run.clock.now() < 100 * MS


def test_all_late_drives_are_named_and_none_stays_quiet() -> None:
    def never(run: Ordered) -> Steps:
        run.drives[0].quiet = True
        yield HandshakeStep([], lambda: False, 0.02, "operation enabled")

    run = Ordered(never, never)
    with pytest.raises(DriveError) as error:
        for _ in range(100):
            run.tick()
    assert str(error.value) == "u0: operation enabled within 0.02 s\nu1: operation enabled within 0.02 s"
    assert 20 * MS < run.clock.now() <= 23 * MS
    assert not run.drives[0].quiet


def test_all_together_must_be_over_in_time() -> None:
    def endless(run: Ordered) -> Steps:
        while True:
            until = run.clock.now() + 5 * MS
            yield HandshakeStep([], lambda until=until: run.clock.now() >= until, 1.0, "")  # type: ignore[misc]

    run = Ordered(endless, limit=0.05)
    with pytest.raises(DriveError, match=r"u0: not ready within 0.05 s"):
        for _ in range(100):
            run.tick()


def test_a_frame_that_is_not_answered_is_sent_again_and_the_error_has_the_whole_time() -> None:
    def asks(run: Ordered) -> Steps:
        yield HandshakeStep(frames(0x600, 1), lambda: False, 0.02, "an answer", attempts=3)

    run = Ordered(asks)
    with pytest.raises(DriveError, match=r"^u0: an answer within 0.06 s$"):
        for _ in range(100):
            run.tick()
    assert [t // MS for t, _ in run.sent] == [0, 21, 42]


def test_the_next_prompt_step_begins_at_its_answer_with_no_more_frames_under_way() -> None:
    answered: set[str] = set()

    def asks(run: Ordered, name: str) -> Steps:
        for _ in range(3):
            answered.discard(name)
            yield HandshakeStep(frames(0x600, 1), lambda: name in answered, 0.5, "an answer", prompt=True)

    run = Ordered(*[partial(asks, name=f"u{i}") for i in range(BURST)])
    assert not run.verbs.advance() and len(run.sent) == 1 and run.verbs.awaited("other") == "main"
    answered.add("u0")
    assert run.verbs.awaited("other") is None  # u0 goes on
    assert not run.verbs.advance(emptied=False) and len(run.sent) == 2
    assert not run.verbs.advance() and len(run.sent) == 3  # a period later the queue takes one frame more


def test_a_drive_that_refuses_ends_every_verb() -> None:
    closed = []

    def refuses(run: Ordered) -> Steps:
        yield HandshakeStep([], lambda: run.clock.now() >= 3 * MS, 1.0, "")
        raise DriveError("rated torque is 0.4 N m, the config says 0.5")

    def other(run: Ordered) -> Steps:
        try:
            yield HandshakeStep([], lambda: False, 1.0, "")
        finally:
            closed.append(True)

    run = Ordered(refuses, other)
    with pytest.raises(DriveError, match=r"^u0: rated torque is 0.4"):
        for _ in range(100):
            run.tick()
    assert closed
