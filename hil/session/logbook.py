"""What each tick records: its row, and the durations of its parts."""

from hil.assembly.setup import RigSetup
from hil.loop import Tick, nanoseconds
from hil.loop.controller import Controller
from hil.loop.tick import TickTimes
from hil.loop.timing import Distribution, TickStatistics
from hil.recorder import InMemory, Recorder
from hil.recorder.columns import ColumnLayout
from hil.rig.rig import CanRig
from hil.rig.sockets import TickLog
from hil.safety.plan import Phase
from hil.safety.stages import Stages


class Logbook:
    """Rows and timing of a run; C writes them (`log_tick` in `hil/core/c/tick.c`)."""

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
        self._rig, self._stages, self._live_gains = rig, stages, setup.live_gains
        self._table, self._recorder, self._emulated = table, recorder, emulated
        names = [node.settings.name for node in (*setup.drives, *setup.sensors)]
        self.timing = TickStatistics(nanoseconds(setup.settings.values.period), names)  # lateness and sample ages
        # durations of `read`, `law` and `write`
        self.parts = {name: Distribution() for name in ("read", "law", "write")}
        self._modes = {mode: number for number, mode in enumerate(Phase)}
        self.in_c = TickLog(
            rig.in_c.machine, controller, table, setup.loop.log_call(*table.parts[1:]), self._modes[Phase.FULL],
            self.timing, list(self.parts.values()),
        )  # fmt: skip
        self._live = len(table.values) - len(setup.live_gains.values)
        self._true = self._live - len(table.truth)

    def enter(self, tick: Tick, times: TickTimes, counts: bool = True) -> None:
        """Records a tick.

        Args:
            times: When its parts ended.
            counts: Whether their durations count.
        """
        self.in_c.enter(tick, self._modes[self._stages.mode], self._stages.task_time, times, counts)
        row = self._table.values
        if self._emulated:
            row[self._true : self._live] = self._rig.true
        row[self._live :] = self._live_gains.values
        self._recorder.row(row)

    def close(self) -> None:
        """Completes `timing` and `parts`."""
        self.in_c.close()
