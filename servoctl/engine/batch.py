"""Many runs of fixed steps side by side in C: one in each lane of the processor's vectors, metrics only.

Design: the same source as the scalar code, over a number that is several doubles; each lane takes the scalar's
operations, so a run's numbers do not depend on what runs beside it. A call lets other threads run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine import compiler
from servoctl.engine.ccode import CSource, pointer
from servoctl.engine.emit import emit, template
from servoctl.engine.step import StepFunctions
from servoctl.types import Array

BATCH = """void servoctl_batch(long long, long long, const double*, long long, const double*, const double*,
    const double*, const long long*, long long, long long, const double*, long long, const long long*, const long long*,
    const long long*, const double*, long long, const volatile long long*, double*, double*, long long*, double*);"""

KEPT = ("least", "greatest", "last", "area", "span", "count", "first", "late")
"""What is kept of a channel, in the order of `c/batch.h`."""


@dataclass(frozen=True)
class MetricChannel:
    """What metrics are made of.

    Attributes:
        entries: Places in a row.
        signed: Whether it is the entry itself; else the Euclidean norm of the entries.
        band: Size that counts as settled.
    """

    entries: tuple[int, ...]
    signed: bool = False
    band: float = math.inf


@dataclass(frozen=True)
class BatchPlan:
    """What all runs of a batch have in common.

    Attributes:
        times: Of the steps, shape (steps + 1,) [s].
        every: Metrics take in each row of so many, and the last.
        status: Where the status stands in a row.
        stops: Statuses to stop at.
        codes: Number of statuses that there are.
        channels: What metrics are made of.
    """

    times: Array
    every: int
    status: int
    stops: Sequence[float]
    codes: int
    channels: Sequence[MetricChannel]


@dataclass(frozen=True)
class BatchResult:
    """What became of the runs of a batch.

    Attributes:
        metrics: Shape (runs, channels, 6): `KEPT` over the rows of a channel that are numbers; `area` is the integral
            of its square by trapezoids, `span` the time [s] that this covers, `late` the time of the last row in which
            its size was above the band.
        statuses: How many rows had each status, shape (runs, codes).
        good: Steps before the first that must be looked at, shape (runs,); steps + 1 where there is none.
        ends: States there, shape (runs, size).
    """

    metrics: Array
    statuses: Array
    good: Array
    ends: Array

    def of(self, kept: str) -> Array:
        """One of `KEPT`, shape (runs, channels)."""
        values: Array = self.metrics[:, :, KEPT.index(kept)]
        return values


class BatchProgram(CSource):
    """C source of whole runs side by side."""

    def __init__(self, step: StepFunctions, lanes: int | None = None) -> None:
        """Writes the source.

        Args:
            step: What is repeated.
            lanes: Runs side by side; None: as many as suit the processor.

        Raises:
            CompileError: An operation has no C.
        """
        self._step, self._lanes = step, compiler.lanes() if lanes is None else lanes
        super().__init__(emit(step.functions) + step.source() + template("batch.h"), [BATCH], self._lanes)

    def load(self) -> "BatchLibrary":
        """The library, compiled where it is not in the cache.

        Raises:
            CompileError: There is no compiler, it fails or takes too long, or its library cannot be loaded.
        """
        return BatchLibrary(self.opened(), self._step, self._lanes)


class BatchLibrary:
    """A loaded library.

    Attributes:
        lanes: Runs side by side.
    """

    def __init__(self, opened: tuple[Any, Any], step: StepFunctions, lanes: int) -> None:
        """Takes cffi and the library, and the step that it repeats."""
        self._ffi, self._library = opened
        self._step, self.lanes = step, lanes

    def run(
        self,
        plan: BatchPlan,
        parameters: Array,
        starts: Array,
        halt: Array | None = None,
        random: Array | None = None,
        which: Array | None = None,
    ) -> BatchResult:
        """Takes the runs; threads may do so at the same time.

        Args:
            plan: What they have in common.
            parameters: `step_parameters` of the loops, shape (runs, count).
            starts: States at the first time, shape (runs, size).
            halt: One integer; not zero, set from another thread, ends the work soon, and what came of it is void.
            random: Of realistic runs: random numbers of each step, shape (tables, steps + 1, width).
            which: Table of each run, shape (runs,).
        """
        runs, channels = len(starts), len(plan.channels)
        outcome = BatchResult(
            np.empty((runs, channels, len(KEPT))),
            np.empty((runs, plan.codes)),
            np.zeros(runs, dtype=np.int64),
            np.empty((runs, self._step.size)),
        )
        sizes = np.array([0 if channel.signed else len(channel.entries) for channel in plan.channels], dtype=np.int64)
        lengths = [len(channel.entries) for channel in plan.channels]
        firsts = np.array(np.cumsum([0, *lengths])[:-1], dtype=np.int64)
        entries = np.array([place for channel in plan.channels for place in channel.entries], dtype=np.int64)
        bands = np.array([channel.band for channel in plan.channels], dtype=float)
        stops = np.array(sorted(plan.stops), dtype=float)
        numbers = [np.ascontiguousarray(array, dtype=float) for array in (plan.times, parameters, starts)]
        flag = np.zeros(1, dtype=np.int64) if halt is None else halt
        times, p, x = (pointer(self._ffi, array) for array in numbers)
        places = [pointer(self._ffi, array) for array in (firsts, sizes, entries)]
        chance = np.zeros(0) if random is None else np.ascontiguousarray(random)
        tables = np.zeros(runs, dtype=np.int64) if which is None else which.astype(np.int64)
        drawn = pointer(self._ffi, chance), pointer(self._ffi, tables)
        taken = [pointer(self._ffi, array) for array in vars(outcome).values()]
        self._library.servoctl_batch(
            runs, len(plan.times) - 1, times, plan.every, p, x, *drawn, plan.status, len(stops),
            pointer(self._ffi, stops), channels, *places, pointer(self._ffi, bands), plan.codes,
            pointer(self._ffi, flag), *taken,
        )  # fmt: skip
        return outcome
