"""What is recorded of a tick that was done in C: its row, and the durations of its parts, counted in C too."""

from collections.abc import Sequence

import numpy as np

from hil.loop import Tick
from hil.loop.controller import Controller
from hil.loop.tick import TickTimes
from hil.loop.timing import COUNTS, Distribution, TickStatistics
from hil.recorder.columns import ColumnLayout
from hil.tick.machine import CompiledTick
from servoctl.engine.ccode import Entry
from servoctl.simulation.control_tick import LogCall
from servoctl.types import Array


class TickLog:
    """A `tick_log` of `c/log.h` with its arrays.

    Args:
        machine: Tables and state of the tick.
        controller: Evaluates the law.
        table: Columns of a row.
        values: The log part of a row, on the arrays of the table.
        entry: Its call in C.
        stage: Number of the stage in which ticks are done in C.
        timing: Gets the durations.
        parts: Durations of `read`, `law` and `write`.
    """

    def __init__(
        self,
        machine: CompiledTick,
        controller: Controller,
        table: ColumnLayout,
        values: LogCall,
        entry: Entry,
        stage: int,
        timing: TickStatistics,
        parts: Sequence[Distribution],
    ) -> None:
        self._loop, self._log_tick, self._tick = controller.loop, machine.functions.log_tick, machine.tick
        layout, (numbers, state, command, _) = controller.loop.layout, table.parts
        self.struct = log = machine.ffi.new("tick_log *")
        self._when = machine.ffi.new("tick_times *")
        log.sources, log.columns, log.block = len(table.source), len(table.values), COUNTS
        log.state, log.command, log.inputs = len(state), len(command), layout.slices["u"].start
        log.parameters, log.stage, log.nominal = values.parameters, stage, timing.nominal
        log.gauges = len(table.gauges)
        places = [place * machine.tick.channels + drive for place, drive in table.gauges]
        log.gauge = machine.pointer("int", np.array(places, dtype=np.int32))
        log.source = machine.pointer("int", table.source.astype(np.int32))
        log.numbers = machine.pointer("double", numbers)
        log.marks = machine.ffi.from_buffer("long long[]", timing.marks)
        machine.connect(log.values, entry)
        self._counted = [timing.lateness, timing.period, timing.execution, *parts, *timing.ages.values()]
        self._counts: Array = np.zeros((len(self._counted), COUNTS), dtype=np.uint64)
        names = ("lateness", "period", "execution", "read", "law", "write", "ages")
        for name, counts in zip(names, self._counts, strict=False):
            setattr(log, name, machine.pointer("unsigned long long", counts))
        self._row = machine.pointer("double", table.values)
        log.unused = self._row
        self._kept = machine, values, timing.marks

    def enter(self, tick: Tick, task_time: float, times: TickTimes) -> None:
        """Counts a tick, and writes its row into `values` of the table up to the state of the simulated plant."""
        when = self._when
        when.deadline, when.began, when.elapsed, when.task_time = tick.deadline, tick.began, tick.elapsed, task_time
        when.read, when.decided, when.written = times
        self._log_tick(self._tick, self.struct, when, self._row)
        self.counted(1)

    def counted(self, ticks: int) -> None:
        """Takes note of ticks whose rows were written."""
        self._loop.evaluations += ticks

    def close(self) -> None:
        """Passes the durations on."""
        for distribution, counts in zip(self._counted, self._counts, strict=True):
            distribution.take(counts)
