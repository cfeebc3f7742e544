"""What each tick records: its row, and the durations of its parts; C writes and counts them."""

from collections.abc import Sequence

import numpy as np

from hil.assembly.setup import RigSetup
from hil.loop import Tick, nanoseconds
from hil.loop.controller import Controller
from hil.loop.tick import TickTimes
from hil.loop.timing import COUNTS, PARTS, TickStatistics
from hil.recorder import InMemory, Recorder
from hil.recorder.columns import ColumnLayout
from hil.rig.machine import CompiledTick
from hil.safety.plan import Phase
from hil.safety.stages import Stages


class Logbook:
    """Rows and timing of a run: a `tick_log` of `hil/core/c/tick.h` with its arrays.

    Args:
        setup: Gains that may change, nodes and period.
    """

    def __init__(
        self,
        setup: RigSetup,
        machine: CompiledTick,
        controller: Controller,
        stages: Stages,
        table: ColumnLayout,
        recorder: Recorder | InMemory,
    ) -> None:
        self._machine, self._stages, self._table, self._recorder = machine, stages, table, recorder
        self._live, self._loop = setup.live_gains, controller.loop
        nodes = [node.settings.name for node in (*setup.drives, *setup.sensors)]
        self.timing = timing = TickStatistics(nanoseconds(setup.settings.values.period), nodes)
        layout, (numbers, state, command, _) = self._loop.layout, table.parts
        values = self._loop.log_call(*table.parts[1:])
        self.struct = log = machine.ffi.new("tick_log *")
        self._when = machine.ffi.new("tick_times *")
        log.sources, log.columns, log.block = len(table.source), len(table.values), COUNTS
        log.state, log.command, log.inputs = len(state), len(command), layout.slices["u"].start
        log.parameters, log.task, log.nominal = values.parameters, Phase.FULL.number, timing.nominal
        disturbance = layout.slices["disturbance"]
        log.disturbance, log.disturbances = disturbance.start, disturbance.stop - disturbance.start
        log.gauges = len(table.gauges)
        places = [place * machine.tick.channels + drive for place, drive in table.gauges]
        log.gauge = machine.pointer("int", np.array(places, dtype=np.int32))
        log.source = machine.pointer("int", table.source.astype(np.int32))
        log.numbers = machine.pointer("double", numbers)
        log.marks = machine.ffi.from_buffer("long long[]", timing.marks)
        machine.connect(log.values, values.call)
        for name, counts in zip((*PARTS, "ages"), timing.counts, strict=False):
            setattr(log, name, machine.pointer("unsigned long long", counts))
        self._row = machine.pointer("double", table.values)
        log.unused = self._row

    def enter(self, tick: Tick, times: TickTimes, true: Sequence[float], counts: bool = True) -> None:
        """Records a tick.

        Args:
            times: When its parts ended.
            true: True state of a simulated plant; empty without one.
            counts: Whether the durations of its parts count.
        """
        when, self.struct.stage, row = self._when, self._stages.mode.number, self._table.values
        when.deadline, when.began, when.elapsed, when.skipped = tick.deadline, tick.began, tick.elapsed, tick.skipped
        when.task_time, when.counts = self._stages.task_time, counts
        when.read, when.decided, when.written = times
        self._machine.functions.log_tick(self._machine.tick, self.struct, when, self._row)
        self._machine.raise_failure()
        self.written(1)
        if counts:
            self.timing.skip(tick.skipped)
        row[len(row) - len(true) - len(self._live.values) :] = [*true, *self._live.values]
        self._recorder.row(row)

    def written(self, ticks: int) -> None:
        """Takes note of ticks whose rows C has written."""
        self._loop.evaluations += ticks
