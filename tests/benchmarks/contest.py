"""Times of programs that take turns at the same work, and how the results are printed.

Design: a call of microseconds is timed by the wall clock, because other processes do not affect its median. A run of
milliseconds is timed by the processor time of the process, because other processes would take a share of it.
"""

import gc
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.types import Array

Contestant = Callable[[int], Array]
"""(number of calls) -> time of each call [s]."""

CLOCK_CALLS = 1000


@dataclass(frozen=True)
class Entry:
    """One program at one piece of work."""

    name: str  # program and setting
    seconds: float  # median time [s]
    difference: float = 0.0  # largest difference from the reference, in the unit of the line
    tolerance: float = np.inf  # largest difference at which the work counts as the same

    @property
    def equal(self) -> bool:
        """Whether its result agrees with the reference; False for NaN."""
        return self.difference <= self.tolerance


@dataclass(frozen=True)
class Line:
    """A row of a speed table: our entry first, then the others."""

    work: str
    entries: tuple[Entry, ...]
    note: str = ""

    @property
    def values(self) -> dict[str, Any]:
        """The line for JSON."""
        ours = self.entries[0]
        rows = [{**vars(e), "tolerance": finite(e.tolerance), "difference": finite(e.difference), "equal": e.equal,
                 "ratio": e.seconds / ours.seconds if e.equal and ours.equal else None}
                for e in self.entries]  # fmt: skip
        return {"work": self.work, "note": self.note, "entries": rows}


@dataclass(frozen=True)
class Table:
    """Figures that are no times."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def values(self) -> dict[str, Any]:
        """The table for JSON."""
        return {"title": self.title, "rows": [dict(zip(self.header, row, strict=True)) for row in self.rows]}


Results = Iterator[Line | Table]
Case = Callable[[bool], Results]
"""(quick) -> lines and tables."""


def finite(value: float) -> float | None:
    """The number, or None where JSON has none."""
    return value if np.isfinite(value) else None


def shown(seconds: float) -> str:
    """A time with its unit, three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def line(work: str, entries: Mapping[str, Entry], ours: str, *others: str, note: str = "") -> Line:
    """A row of some entries of a contest; programs that are not there are left out."""
    named = [entries[name] for name in (ours, *others) if name in entries]
    return Line(work, tuple(named), note)


def printed(results: Sequence[Line | Table]) -> str:
    """Lines as one table, then the other tables."""
    rows = []
    for result in results:
        if not isinstance(result, Line):
            continue
        ours = result.entries[0]
        for number, entry in enumerate(result.entries):
            ratio = f"{entry.seconds / ours.seconds:.3g}" if entry.equal and ours.equal else "not equal"
            work = "" if number else result.work
            rows.append([work, entry.name, shown(entry.seconds), ratio if number else "", f"{entry.difference:.1e}"])
    header = ("work", "program", "time", "ratio", "difference")
    text = [_drawn(header, rows)] if rows else []
    text += [f"{r.work}: {r.note}" for r in results if isinstance(r, Line) and r.note]
    text += [f"{r.title}\n{_drawn(r.header, r.rows)}" for r in results if isinstance(r, Table)]
    return "\n\n".join(text)


def _drawn(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in lines)


def children_time() -> float:
    """Processor time of all child processes that have ended, and of theirs [s]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # finer than os.times: tcc takes less than a tick of that clock
    return used.ru_utime + used.ru_stime


def clock_cost(clock: Callable[[], float]) -> float:
    """Median time between two readings of a clock [s]."""
    times = []
    for _ in range(CLOCK_CALLS):
        began = clock()
        times.append(clock() - began)
    return float(np.median(times))


def timed(function: Callable[[int], object], clock: Callable[[], float] = time.perf_counter) -> Contestant:
    """A function of a counter as a contestant; the time to read the clock is subtracted."""
    at = 0

    def calls(count: int) -> Array:
        nonlocal at
        times = np.empty(count)
        for k in range(count):
            began = clock()
            function(at + k)
            times[k] = clock() - began
        at += count
        return np.maximum(times - clock_cost(clock), 0.0)

    return calls


def medians(contestants: Mapping[str, Contestant], rounds: int, calls: int = 1) -> dict[str, float]:
    """Median times [s] of contestants that take turns, after one turn that does not count."""
    times: dict[str, list[Array]] = {name: [] for name in contestants}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for contestant in contestants.values():
            contestant(min(calls, 50))
        for _ in range(rounds):
            for name, contestant in contestants.items():
                times[name].append(contestant(calls))
            gc.collect(0)
    finally:
        if collecting:
            gc.enable()
    return {name: float(np.median(np.concatenate(each))) for name, each in times.items()}


class Contest:
    """Programs that evaluate the same function at the same states; they take turns.

    Args:
        count: Number of states.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._contestants: dict[str, Contestant] = {}
        self.results: dict[str, Callable[[int], Array]] = {}

    def enter(self, name: str, work: Callable[[int], Any], result: Callable[[int], Array] | None = None) -> None:
        """Adds a program: its work at a state by index, and the result to compare, if that is not what it returns."""
        self._contestants[name] = timed(lambda k: work(k % self._count))
        self.results[name] = lambda k: np.array(work(k) if result is None else result(k))

    def enter_inside(self, name: str, inside: Any, part: slice = slice(None)) -> None:
        """Adds an `Inside`; this part of its outputs is compared."""
        self._contestants[name] = inside
        self.results[name] = lambda k: inside.results[k, part]

    def entries(
        self, exact: Array, tolerance: Mapping[str, float] | float, quick: bool, scale: float = 1.0
    ) -> dict[str, Entry]:
        """Times all programs and compares their results.

        Args:
            exact: Expected result at each state (count, size); a program may compute only its first numbers.
            tolerance: Largest difference that counts as equal, for all programs or by name.
            quick: Whether to take only two turns.
            scale: Unit of the differences.
        """
        times = medians(self._contestants, 2 if quick else 40, self._count)
        entries = {}
        for name, result in self.results.items():
            values = np.array([result(k) for k in range(self._count)])
            difference = float(np.abs(values - exact[:, : values.shape[1]]).max()) / scale
            most = tolerance if isinstance(tolerance, float) else tolerance[name]
            entries[name] = Entry(name, times[name], difference, most)
        return entries


def scaled(entry: Entry, factor: float) -> Entry:
    """An entry of which a part was timed, for the whole."""
    return replace(entry, name=f"{entry.name} (x {factor:.3g})", seconds=factor * entry.seconds)
