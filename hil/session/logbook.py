"""What each tick leaves: its row, and how long its parts took."""

import math
from typing import Any, Protocol

from hil.assembly.live_gains import LiveGains
from hil.loop import SECOND, Controller, Reading, Tick
from hil.loop.tick import TickTimes
from hil.loop.timing import Distribution, Timing
from hil.recorder.columns import ColumnLayout
from hil.rig.rig import CanRig
from hil.safety.stages import Phase, Stages
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array


class Recording(Protocol):
    """What takes rows."""

    def row(self, values: Array) -> None:
        """Takes a row, shape (columns,), which is overwritten by the next."""


class Logbook:
    """Rows and timing of a run.

    Attributes:
        timing: Of the ticks.
        parts: Part of a tick -> how long it took: `read`, `law`, `write`.
    """

    def __init__(
        self,
        loop: Loop,
        controller: Controller,
        rig: CanRig,
        stages: Stages,
        live: LiveGains,
        table: ColumnLayout,
        timing: Timing,
        recording: Recording,
        emulated: bool,
    ) -> None:
        """Takes what a row tells of.

        Args:
            loop: The law's closed loop.
            controller: What evaluates it.
            rig: The machine.
            stages: What decides.
            live: Gains in force.
            table: The columns.
            timing: Empty.
            recording: Takes the rows.
            emulated: Whether there is a simulated plant to know the truth from.
        """
        self._loop, self._controller, self._rig, self._stages = loop, controller, rig, stages
        self._live, self._table, self._recording, self._emulated = live, table, recording, emulated
        self.timing = timing
        self.parts = {name: Distribution() for name in ("read", "law", "write")}
        self._read, self._law, self._write = self.parts.values()
        self._inputs = loop.layout.slices["u"]
        self._modes = {mode: number for number, mode in enumerate(Phase)}

    def enter(self, tick: Tick, reading: Reading, sent: Array, times: TickTimes) -> None:
        """Enters a tick; arguments as of `hil.loop.tick.Log`."""
        stages, controller, rig = self._stages, self._controller, self._rig
        began, task_time = tick.began, stages.task_time
        motion, x, command, log = self._table.parts
        n = len(reading.q)
        motion[0], x[:n], x[n : 2 * n], x[2 * n :] = began / SECOND, reading.q, reading.v, controller.recalled
        command[:] = controller.row
        command[self._inputs] = sent
        log[:] = self._loop.motion(task_time, x, command)[1]
        ages: list[float] = reading.ages.tolist()
        own: list[Any] = [
            tick.elapsed / SECOND, task_time, (began - tick.deadline) / SECOND, tick.skipped,
            self._modes[stages.mode], (times.read - began) / SECOND,
        ]  # fmt: skip
        own += stages.law_torques.tolist()
        own += ages
        own += rig.measured
        own.append(reading.residual)
        if self._emulated:
            own += rig.true.q.tolist()
            own += rig.true.v.tolist()
        own += self._live.values
        self._recording.row(self._table.row(own))
        self.timing.tick(tick.deadline, began, times.written, tick.skipped)
        self.timing.sample_ages([round(age * SECOND) if math.isfinite(age) else 0 for age in ages])
        self._read.add(times.read - began)
        self._law.add(times.decided - times.read)
        self._write.add(times.written - times.decided)
