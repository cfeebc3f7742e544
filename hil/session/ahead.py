"""When the loop on drives lets C do several ordinary ticks in one call, and what Python does after them."""

from contextlib import AbstractContextManager, nullcontext

import numpy as np

from hil.assembly.prepare import RigSetup
from hil.loop import Ahead, Tick, nanoseconds
from hil.recorder import InMemory, Recorder
from hil.safety import Monitor
from hil.safety.stages import Stages
from hil.session.logbook import Logbook
from hil.session.missed import MissedTicks
from hil.session.operator import CHECK_EVERY, OperatorLink
from hil.session.outliers import OutlierReports
from hil.tick.ahead import AheadRig
from hil.tick.stretch import Stretch
from servoctl.estimation.bound import OUTLIER

VIEW_TIME = 0.02  # [s] longest time between two looks at the operator's requests for gains


NONE = Ahead()  # no ticks ahead


class TicksAhead:
    """Lets C do ticks as long as Python has nothing to do: see `hil.tick.stretch`.

    Args:
        setup: Gains that may change, and the period.
        rig: Does the ticks.
        stages, monitor, logbook, missed, outliers, operator: They take note of the ticks.
        recorder: Gets rows and frames from C.
        wait: Longest time after the beginning of a tick to wait for samples [ns].
    """

    def __init__(
        self,
        setup: RigSetup,
        rig: AheadRig,
        stages: Stages,
        monitor: Monitor,
        logbook: Logbook,
        missed: MissedTicks,
        outliers: OutlierReports,
        operator: OperatorLink,
        recorder: Recorder | InMemory,
        wait: int,
    ) -> None:
        self._rig, self._stages, self._monitor, self._operator = rig, stages, monitor, operator
        self._live_gains, self._missed, self._outliers = setup.live_gains, missed, outliers
        self.last: Tick | None = None  # the last of the ticks that were done by the last call; None: it did none
        period = setup.settings.values.period
        self._most_with_view = max(1, round(VIEW_TIME / period))
        log, machine, sockets, feeds = logbook.in_c, rig.machine, rig.sockets, rig.feeds
        if machine is None or sockets is None or log is None or feeds is None or not isinstance(recorder, Recorder):
            return
        rig.stretch = Stretch(
            machine, sockets, log, recorder.rings, setup.drives, feeds, nanoseconds(period), wait, stages.duration
        )
        rig.stretch.report(sorted(missed.codes), outliers.innovation, OUTLIER)

    def awake(self) -> AbstractContextManager[None]:
        """Signals are noticed by C in this context."""
        return nullcontext() if self._rig.stretch is None else self._rig.stretch.awake()

    def __call__(self, number: int, deadline: int) -> Ahead:
        """Ticks that C did from the one with this number and deadline [ns] on; see `hil.loop.tick.TickLoop.run`.

        They end with one whose number is a multiple of `CHECK_EVERY`: Python then looks at the other processes.
        """
        rig, most, self.last = self._rig, 1 + -number % CHECK_EVERY, None
        if self._operator.view is not None:
            most = min(most, self._most_with_view)
        if rig.stretch is None or most < 2:
            return NONE
        if self._monitor.clamps or self._live_gains.moving or self._outliers.going:
            return NONE
        ahead = rig.go_ahead(most, deadline, np.array(self._live_gains.values, dtype=float))
        if ahead.ticks:
            self.last = rig.stretch.last(number + ahead.ticks - 1)
            self._missed.met(ahead.ticks - 1)
            self._outliers.met(ahead.ticks - 1)
            self._stages.follow(self.last, rig.clamped, ahead.ticks)
        return ahead
