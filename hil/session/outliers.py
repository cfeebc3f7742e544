"""Reports, while a run on drives goes on, the readings that the estimator left out."""

from collections.abc import Iterable

from hil.safety import EventKind
from hil.session.reporter import Reporter
from servoctl.estimation.outliers import Burst, OutlierBursts
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array


class OutlierReports:
    """Reports each burst of outliers of the last stage, when it is over.

    Args:
        loop: The closed loop of the law; without an estimator there is nothing to report.
        reporter: Gets the events.
    """

    def __init__(self, loop: Loop, reporter: Reporter) -> None:
        self._innovation, self._reporter = loop.layout.slices.get("estimate.innovation"), reporter
        self._bursts = OutlierBursts(list(loop.system.model.plant.coordinates))

    def tick(self, t: float, command: Array, counts: bool) -> None:
        """Takes the command part of a row at a time [s]; `counts`: whether its outliers count."""
        if self._innovation is not None:
            self._report(self._bursts.tick(t, command[self._innovation], counts))

    def close(self) -> None:
        """Reports the bursts that the end of the run cuts off."""
        self._report(self._bursts.close())

    def _report(self, bursts: Iterable[Burst]) -> None:
        for burst in bursts:
            self._reporter.report(EventKind.OUTLIER, burst.worst, burst.text)
