"""What each tick records: its row, and the durations of its parts."""

import math
from typing import Any

from hil.assembly.setup import RigSetup
from hil.loop import SECOND, Reading, Tick, nanoseconds
from hil.loop.controller import Controller
from hil.loop.tick import TickTimes
from hil.loop.timing import Distribution, TickStatistics
from hil.recorder import InMemory, Recorder
from hil.recorder.columns import ColumnLayout
from hil.rig.rig import CanRig
from hil.rig.sockets import TickLog
from hil.safety.plan import Phase
from hil.safety.stages import Stages
from servoctl.types import Array


class Logbook:
    """Rows and timing of a run."""

    def __init__(
        self,
        setup: RigSetup,  # closed loop of the law, gains that may change, nodes and period
        controller: Controller,
        rig: CanRig,
        stages: Stages,
        table: ColumnLayout,
        recorder: Recorder | InMemory,
        emulated: bool,  # whether the rows hold the true state of a simulated plant
    ) -> None:
        loop = setup.loop
        self._controller, self._rig, self._stages, self._live_gains = controller, rig, stages, setup.live_gains
        self._table, self._recorder, self._emulated = table, recorder, emulated
        log = loop.log_call(*table.parts[1:])
        self._evaluate_log = log.evaluate
        names = [node.settings.name for node in (*setup.drives, *setup.sensors)]
        self.timing = TickStatistics(nanoseconds(setup.settings.values.period), names)  # lateness and sample ages
        # durations of `read`, `law` and `write`
        self.parts = {name: Distribution() for name in ("read", "law", "write")}
        self._read, self._law, self._write = self.parts.values()
        self._inputs, self._disturbance = loop.layout.slices["u"], loop.layout.slices["disturbance"]
        self._modes = {mode: number for number, mode in enumerate(Phase)}
        self.in_c: TickLog | None = None  # records the ticks that are done in C; None: there are none
        if rig.in_c is not None:
            self.in_c = TickLog(
                rig.in_c.machine, controller, table, log, self._modes[Phase.FULL], self.timing,
                list(self.parts.values()),
            )  # fmt: skip
        self._live = len(table.values) - len(setup.live_gains.values)
        self._true = self._live - len(table.truth)

    def enter(self, tick: Tick, reading: Reading, sent: Array, times: TickTimes) -> None:
        """Records a tick; arguments as in `hil.loop.tick.Log`."""
        in_c = self._rig.in_c
        if self.in_c is not None and in_c is not None and in_c.acts and self._controller.on_arrays and not tick.skipped:
            self.in_c.enter(tick, self._modes[self._stages.mode], self._stages.task_time, times)
            row = self._table.values
            if self._emulated:
                row[self._true : self._live] = self._rig.true
            row[self._live :] = self._live_gains.values
            self._recorder.row(row)
        else:
            self._enter(tick, reading, sent, times)

    def _enter(self, tick: Tick, reading: Reading, sent: Array, times: TickTimes) -> None:
        ages = self.add_row(tick, reading, sent, times.read)
        self.timing.tick(tick.deadline, tick.began, times.written, tick.skipped)
        self.timing.sample_ages([round(age * SECOND) if math.isfinite(age) else 0 for age in ages])
        self._read.add(times.read - tick.began)
        self._law.add(times.decided - times.read)
        self._write.add(times.written - times.decided)

    def add_row(self, tick: Tick, reading: Reading, sent: Array, read: int) -> list[float]:
        """Records a row without its timing; returns the ages of the samples [s].

        `tick`, `reading`, `sent`: as in `hil.loop.tick.Log`; `read`: time at the end of reading [ns].
        """
        stages, controller, rig = self._stages, self._controller, self._rig
        began, task_time = tick.began, stages.task_time
        motion, x, command, _ = self._table.parts
        n = len(reading.q)
        motion[0], x[:n], x[n : 2 * n], x[2 * n :] = began / SECOND, reading.q, reading.v, controller.recalled
        command[:] = controller.row
        command[self._inputs] = sent
        if stages.mode is not Phase.FULL:  # the observer stands still
            command[self._disturbance] = math.nan
        self._evaluate_log(task_time)
        ages: list[float] = reading.ages.tolist()
        more: list[Any] = [
            tick.elapsed / SECOND, task_time, (began - tick.deadline) / SECOND, tick.skipped,
            self._modes[stages.mode], (read - began) / SECOND,
        ]  # fmt: skip
        more += stages.law_torques.tolist()
        more += ages
        more += rig.measured
        more += rig.sent
        more.append(reading.residual)
        more += [reading.gauges[place][number] for place, number in self._table.gauges]
        more += rig.true
        more += self._live_gains.values
        self._recorder.row(self._table.row(more))
        return ages

    def close(self) -> None:
        """Completes `timing` and `parts`."""
        if self.in_c is not None:
            self.in_c.close()
