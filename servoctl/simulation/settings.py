"""The settings of a run."""

from dataclasses import dataclass, field

from servoctl.run_folder.trajectory import SETTLING_BAND
from servoctl.simulation.rows import Integrator


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Attributes:
        duration: Length of the run [s].
        integrator: How to step.
        period: Period of a sampled law [s]; None: the law acts continuously.
        output_step: Spacing of the rows of a continuous run [s]; None: every step.
        seed: Seed of all random numbers of the run.
        settling_band: A violation has settled when it stays below this [units of the row].
    """

    duration: float
    integrator: Integrator = field(default_factory=Integrator)
    period: float | None = None
    output_step: float | None = None
    seed: int = 0
    settling_band: float = SETTLING_BAND

    @property
    def substeps(self) -> int | None:
        """Steps of rk4 in one hold, 0 for an adaptive method; None: the law acts continuously."""
        return None if self.period is None else self.integrator.substeps(self.period)
