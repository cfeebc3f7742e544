"""The settings of a run."""

from dataclasses import dataclass, field

from servoctl.run_folder.trajectory import SETTLING_BAND
from servoctl.simulation.rows import Integrator


@dataclass(frozen=True)
class Settings:
    """Settings of a run."""

    duration: float  # [s] length of the run
    integrator: Integrator = field(default_factory=Integrator)  # how to step
    period: float | None = None  # period of a sampled law [s]; None: the law acts continuously
    output_step: float | None = None  # spacing of the rows of a continuous run [s]; None: every step
    seed: int = 0  # seed of all random numbers of the run
    settling_band: float = SETTLING_BAND  # [units of the row] a violation has settled when it stays below this

    @property
    def substeps(self) -> int | None:
        """Steps of rk4 in one hold, 0 for an adaptive method; None: the law acts continuously."""
        return None if self.period is None else self.integrator.substeps(self.period)
