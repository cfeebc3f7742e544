"""How a run goes: duration, sampling, integration and seed; the section `run` of a config, and the same in Python."""

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, get_args

from pydantic import Field

from servoctl.run_folder.trajectory import SETTLING_BAND
from servoctl.tree.fields import Natural, NumberField, Positive, PositiveTime, described
from servoctl.tree.rules import Broken, Rules, rule

Method = Literal["rk4", "dop853", "radau"]
ADAPTIVE = get_args(Method)[1:]  # methods that choose their step from tolerances

DEFAULT_STEP = 0.001  # [s] longest default step of rk4
FINEST = 2.3e-14  # [-] least relative tolerance of SciPy's methods, 100 times the rounding of a number


@dataclass(frozen=True)
class Integrator(Rules):
    """How a run is integrated."""

    method: Method = described("rk4", "rk4 uses fixed steps, the others keep tolerances by steps of at most 0.05 s")
    step: PositiveTime | None = described(
        None,
        "step of rk4 [s], which must divide the period; left out: 0.001, or the next shorter step that "
        "divides the period",
    )
    rtol: Annotated[float, NumberField(f"a number >= {FINEST}", least=FINEST)] | None = described(
        None, "relative tolerance [-]; default 1e-10, not with rk4"
    )
    atol: Positive | None = described(None, "absolute tolerance [units of the plant]; default 1e-12, not with rk4")

    def __post_init__(self) -> None:
        if self.method in ADAPTIVE:
            object.__setattr__(self, "rtol", self.rtol or 1e-10)
            object.__setattr__(self, "atol", self.atol or 1e-12)

    @rule
    def _numbers_fit_the_method(self) -> Broken:
        if self.method in ADAPTIVE and self.step is not None:
            yield ("step",), f"does not fit {self.method}, which chooses its own step (give rtol and atol)"
        for word in ("rtol", "atol"):
            if self.method == "rk4" and getattr(self, word) is not None:
                yield (word,), "does not fit rk4, which has a fixed step (give step, or another method)"

    @property
    def fixed_step(self) -> float | None:
        """Step of rk4 [s]; None for the adaptive methods."""
        return None if self.method in ADAPTIVE else self.step or DEFAULT_STEP

    @property
    def tolerances(self) -> tuple[float, float]:
        """Relative and absolute tolerance of an adaptive method."""
        assert self.rtol is not None and self.atol is not None, f"{self.method} has none"
        return self.rtol, self.atol

    def substeps(self, period: float) -> int:
        """Steps of rk4 in one hold of a sampled law with this period [s]; 0 for the adaptive methods."""
        return 0 if self.fixed_step is None else max(1, round(period / self.fixed_step))

    def spacing(self, period: float | None) -> float | None:
        """Step of rk4 with a period, or without one [s]; None for the adaptive methods."""
        step = self.fixed_step
        return step if step is None or period is None else period / self.substeps(period)

    @property
    def remedy(self) -> str:
        """What makes a run more accurate."""
        fixed = self.fixed_step is not None
        return "shorten run.integrator.step" if fixed else "lower run.integrator.rtol and atol"


@dataclass(frozen=True)
class Settings(Rules):
    """Duration, sampling, integration and seed of a run."""

    duration: Annotated[PositiveTime, Field(description="time to simulate [s]")]
    period: PositiveTime | None = described(
        None, "period of a sampled law with zero-order hold [s]; left out: the law acts continuously"
    )
    integrator: Annotated[Integrator, Field(description="integration method and its step or tolerances")] = field(
        default_factory=Integrator
    )
    output_step: PositiveTime | None = described(None, "spacing of the rows written [s]; left out: every step")
    settling_band: Positive = described(
        SETTLING_BAND, "a task error has settled once it stays below this [units of the row]"
    )
    seed: Natural = described(0, "seed of all random numbers of the run [-]")

    def __post_init__(self) -> None:
        if self.integrator.method == "rk4" and self.integrator.step is None:
            # the longest step that divides the period
            parts = 1 if self.period is None else math.ceil(self.period / DEFAULT_STEP * (1 - 1e-9))
            step = DEFAULT_STEP if self.period is None else self.period / parts
            object.__setattr__(self, "integrator", replace(self.integrator, step=step))

    @rule
    def _step_divides_the_period(self) -> Broken:
        step, period = self.integrator.step, self.period
        if step is None or period is None:
            return
        parts = max(1, round(period / step))
        if abs(parts * step - period) > 1e-9 * period:
            nearest = f"{period:.12g}/{parts}" if parts > 1 else f"{period:.12g}"
            what = f"{step:.12g} does not divide run.period {period:.12g} (nearest step that does: {nearest})"
            yield ("integrator", "step"), what

    @property
    def substeps(self) -> int | None:
        """Steps of rk4 in one hold, 0 for an adaptive method; None: the law acts continuously."""
        return None if self.period is None else self.integrator.substeps(self.period)
