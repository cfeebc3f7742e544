"""Reports, while a run on drives goes on, the readings that the estimator left out."""

from collections.abc import Iterable

from hil.safety import EventKind
from hil.session.reporter import Reporter
from servoctl.estimation.outliers import Burst, OutlierBursts
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array

SETTLING = 0.05
"""Time after the task is engaged in which outliers do not count [s].

The torques leave those that held the pose, and reach the drives a part of a period earlier or later than the estimator
assumes, by where their frames stand on the bus. Emulated robots at 400 Hz deviate by up to 22 standard deviations, for
20 ms.
"""


class OutlierReports:
    """Reports each burst of outliers of the task, when it is over.

    Args:
        loop: The closed loop of the law; without an estimator there is nothing to report.
        reporter: Gets the events.

    Attributes:
        innovation: Where the innovations are in the command part of a row; None: there is no estimator.
    """

    def __init__(self, loop: Loop, reporter: Reporter) -> None:
        self.innovation, self._reporter = loop.layout.slices.get("estimate.innovation"), reporter
        self._bursts = OutlierBursts(list(loop.system.model.plant.coordinates))

    def tick(self, t: float, command: Array, task_time: float) -> None:
        """Takes the command part of a row at a time [s]; `task_time`: time since the task is engaged [s]."""
        if self.innovation is not None:
            self._report(self._bursts.tick(t, command[self.innovation], task_time > SETTLING))

    def met(self, ticks: int) -> None:
        """Counts consecutive ticks without outliers."""
        self._bursts.met(ticks)

    @property
    def going(self) -> bool:
        """Whether a burst is not over yet."""
        return self._bursts.going

    def close(self) -> None:
        """Reports the bursts that the end of the run cuts off."""
        self._report(self._bursts.close())

    def _report(self, bursts: Iterable[Burst]) -> None:
        for burst in bursts:
            self._reporter.report(EventKind.OUTLIER, burst.worst, burst.text)
