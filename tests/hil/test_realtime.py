"""What the system grants a loop, how it is undone, and which remedy a refusal names."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hil.loop import realtime
from hil.loop.realtime import Grant, RealtimeError, die_with_parent, prepare

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux only")


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    """The suite keeps what collecting has left away from the collector; `prepare` gives back all that is kept away."""
    gc.unfreeze()
    yield
    gc.freeze()


def state() -> dict[str, Any]:
    """The settings of this thread and process that `prepare` may change."""
    status = Path("/proc/self/status").read_text().splitlines()
    return {
        "policy": os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK,
        "priority": os.sched_getparam(0).sched_priority,
        "affinity": os.sched_getaffinity(0),
        "collector": gc.isenabled(),
        "frozen": gc.get_freeze_count(),
        "slack": realtime._call("prctl", 30, 0, 0, 0, 0),
        "locked": int(next(line.split()[1] for line in status if line.startswith("VmLck:"))),
    }


def test_everything_granted_takes_effect_and_is_undone_at_the_end() -> None:
    cpu = max(os.sched_getaffinity(0))
    before = state()
    with prepare(priority=5, cpu=cpu) as granted:
        during = state()
        said = {each.name: each.granted for each in granted}
    assert list(said) == ["collector", "timers", "memory", "cpu", "priority"]
    assert said["collector"] and not during["collector"] and during["frozen"] > 0
    assert said["timers"] == (during["slack"] <= 1)
    assert said["memory"] == (during["locked"] > 0)
    assert said["cpu"] == (during["affinity"] == {cpu})
    assert said["priority"] == (during["policy"] == os.SCHED_FIFO and during["priority"] == 5)
    assert state() == before


def test_everything_is_undone_after_an_error() -> None:
    before = state()
    with pytest.raises(ZeroDivisionError), prepare(priority=5):
        raise ZeroDivisionError
    assert state() == before


def test_no_cpu_is_taken_without_a_request() -> None:
    before = state()
    with prepare(priority=5) as granted:
        during = state()
    assert [each.name for each in granted] == ["collector", "timers", "memory", "priority"]
    assert during["affinity"] == before["affinity"]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes the system refuse everything."""

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(realtime, "_lock_limit", lambda: 65536)
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    yield


@pytest.mark.usefixtures("refused")
def test_a_refusal_names_its_remedy_and_raises_only_where_the_caller_needs_all() -> None:
    with prepare() as granted:
        memory, priority = [each for each in granted if not each.granted]
        assert memory.sentence.startswith("memory may be paged out: only 64 kB may be locked (as root, or with ")
        assert priority.sentence.startswith("SCHED_FIFO is not permitted (as root, or with '@realtime - rtprio 99'")
    before, refusal = state(), r"real time: memory: .*\nreal time: priority: SCHED_FIFO is not"
    with pytest.raises(RealtimeError, match=refusal), prepare(require=True):
        raise AssertionError
    assert state() == before


def test_where_everything_is_granted_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realtime, "_locked", lambda undo: Grant("memory", True, "memory is locked"))
    monkeypatch.setattr(realtime, "_exact_timers", lambda undo: Grant("timers", True, "timer slack 1 ns"))
    monkeypatch.setattr(realtime, "_first", lambda undo, priority: Grant("priority", True, "SCHED_FIFO"))
    with prepare(require=True) as granted:
        assert all(each.granted for each in granted)


def test_for_a_cpu_that_is_not_available_those_that_are_get_listed() -> None:
    with prepare(cpu=100_000) as granted:
        (cpu,) = [each for each in granted if each.name == "cpu"]
        there_are = ", ".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))
        assert cpu.sentence == f"CPU 100000 is not available (this process may use {there_are})"


def test_for_a_priority_that_does_not_exist_the_range_is_given() -> None:
    with prepare(priority=200) as granted:
        (sentence,) = [each.sentence for each in granted if each.name == "priority"]
    assert sentence.startswith("SCHED_FIFO 200: ") and sentence.endswith("(expected 1 to 99)")


CHILD = """
import os, signal, sys
from hil.loop.realtime import die_with_parent
assert die_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
signal.pause()
"""
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])
child.wait()
"""


def test_a_child_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    try:  # the pipe ends when all who could write to it are gone: the child was one
        assert parent.communicate(timeout=30) == (b"", None)
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_a_child_whose_parent_has_ended_ends_at_once() -> None:
    run = subprocess.run([sys.executable, "-c", CHILD, "1" if os.getpid() != 1 else "2"], capture_output=True)
    assert run.returncode == -signal.SIGTERM
    assert run.stdout == b""


def test_on_another_system_it_returns_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not die_with_parent(os.getppid())
    with prepare(cpu=0) as granted:
        missing = [each for each in granted if not each.granted]
        assert [each.name for each in missing] == ["system"]
        assert all(each.sentence.endswith("Linux only") for each in missing)
