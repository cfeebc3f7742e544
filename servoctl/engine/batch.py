"""Many runs of fixed steps side by side in C, one in each lane of the processor's vectors; keeps metrics only.

Design: the source is that of a single run, over a number that holds several doubles. Each lane takes the operations of
a single run, so its results do not depend on the other lanes. A call releases Python's lock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from servoctl.engine import compiler
from servoctl.engine.ccode import CLibrary, CSource
from servoctl.engine.emit import emit
from servoctl.engine.ops import declaration, template
from servoctl.engine.step import StepFunctions
from servoctl.types import Array

KEPT = ("least", "greatest", "last", "area", "span", "count", "first", "late")
"""Figures of a channel, in the order of `c/batch.h`."""


@dataclass(frozen=True)
class MetricChannel:
    """A value of each row from which metrics are computed."""

    entries: tuple[int, ...]  # indices in a row
    signed: bool = False  # whether the value is the first entry itself; else it is the Euclidean norm of the entries
    band: float = math.inf  # magnitude up to which the value counts as settled


@dataclass(frozen=True)
class BatchPlan:
    """What all runs of a batch have in common."""

    times: Array  # [s] times of the steps, shape (steps + 1,)
    every: int  # metrics use every so many rows, and the last one
    status: int  # index of the status in a row
    stops: Sequence[float]  # statuses to stop at
    codes: int  # number of different statuses
    channels: Sequence[MetricChannel]  # values from which metrics are computed

    @cached_property
    def measured(self) -> Array:
        """Times of the rows that metrics use [s]."""
        return np.append(self.times[:-1][:: self.every], self.times[-1])


@dataclass(frozen=True)
class BatchResult:
    """Results of the runs of a batch."""

    # shape (runs, channels, 8): `KEPT` of each channel, over the rows in which it is a number; `area` is the integral
    # of its square by trapezoids, `span` the time [s] that this covers, `late` the time [s] of the last row in which
    # its magnitude was above the band
    metrics: Array
    statuses: Array  # how many rows had each status, shape (runs, codes)
    # steps before the first with a status to stop at or a number that is not finite, shape (runs,); steps + 1 if there
    # is none
    good: Array
    ends: Array  # states after these steps, shape (runs, size)

    def of(self, kept: str) -> Array:
        """The figure of this name in `KEPT`, shape (runs, channels)."""
        values: Array = self.metrics[:, :, KEPT.index(kept)]
        return values


class BatchProgram(CSource):
    """C source of whole runs side by side."""

    def __init__(self, step: StepFunctions, lanes: int | None = None, content: str | None = None) -> None:
        """Writes the source.

        Args:
            lanes: Runs side by side; None: as many doubles as the processor's vectors hold.
            content: As of `CSource`, of the step.
        """
        self._step, self._lanes = step, compiler.lanes() if lanes is None else lanes
        super().__init__(
            lambda: (
                emit([kernel.function for kernel in step.kernels], step.leading) + step.source() + template("batch.h")
            ),
            [declaration("batch.h", "batch")],
            self._lanes,
            None if content is None else f"side by side in {self._lanes} lanes: {content}",
        )

    def load(self) -> "BatchLibrary":
        """The library; compiles it if the cache does not have it.

        Raises:
            CompileError: There is no compiler, it fails or takes too long, or its library cannot be loaded.
        """
        return BatchLibrary(self.opened(), self._step, self._lanes)


class BatchLibrary(CLibrary):
    """A loaded library."""

    def __init__(self, opened: tuple[Any, Any], step: StepFunctions, lanes: int) -> None:
        """Keeps a library; `step` is the step that it repeats."""
        super().__init__(opened)
        # lanes: runs side by side
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
        """Simulates the runs; several threads may call it at the same time.

        Args:
            parameters: `step_parameters` of the loops, shape (runs, count).
            starts: States at the first time, shape (runs, size).
            halt: One integer; if another thread sets it to 1, the work ends soon and its result is invalid. None: the
                work is never interrupted.
            random: Tables of random numbers of each step of realistic runs, shape (tables, steps + 1, width); None:
                there are none.
            which: Table of each run, shape (runs,); None: the first.
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
        noise = np.zeros(0) if random is None else random
        tables = np.zeros(runs, dtype=np.int64) if which is None else which.astype(np.int64)
        flag = np.zeros(1, dtype=np.int64) if halt is None else halt
        times, p, x = (np.asarray(array, dtype=float) for array in (plan.times, parameters, starts))
        self.call(
            "batch", runs, len(times) - 1, times, plan.every, p, x, noise, tables, plan.status,
            len(stops), stops, channels, firsts, sizes, entries, bands, plan.codes, flag, *vars(outcome).values(),
        )  # fmt: skip
        return outcome
