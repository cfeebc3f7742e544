"""How do poles and margins change if a plant parameter differs from the law's model?

    x' = f(x, u(x; p); p'),  p' = p but for one parameter      u: the law with its model, f: the real plant

Design: only the plant changes. If the law's model changed with it, no pole of the task would move, because the law
cancels the model. The parameters of the plant are separate inputs of the derivatives, so all cases use the same
compiled functions. Each plant is linearised on its own passive constraints, at the state nearest to that of the run,
with hold, delay and lag of the run. Poles of the errors are exact in motion too; the internal dynamics are frozen.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.timing import run_timing
from servoctl.engine.parameters import parameter_names
from servoctl.errors import ConfigError
from servoctl.linear.jacobians import compiled, local
from servoctl.linear.margins_at import Margins, margins_at
from servoctl.linear.modes import Mode
from servoctl.linear.sampled import least_stable, timings
from servoctl.types import Array, State

CHANGE = 0.1  # default change of a parameter, relative to its value


@dataclass(frozen=True)
class Shifted:
    """Poles and margins with one changed parameter."""

    parameter: str | None  # name of the parameter; None for the nominal plant
    change: float  # change relative to its value
    poles: tuple[complex, ...]  # poles on the passive constraints [1/s], the least stable first
    margins: tuple[Margins, ...] = ()  # margins in simulation and on drives

    @property
    def slowest(self) -> Mode | None:
        """The pole that decays slowest, or grows fastest; neutral poles do not count."""
        moving = [mode for mode in self._modes if mode.stable is not None]
        return max(moving, key=lambda mode: mode.pole.real, default=None)

    @property
    def least_damped(self) -> Mode | None:
        """The pole with the smallest damping ratio; neutral poles do not count."""
        damped = [mode for mode in self._modes if mode.stable is not None and mode.damping is not None]
        return min(damped, key=lambda mode: mode.damping or 0.0, default=None)

    @property
    def _modes(self) -> list[Mode]:
        return [Mode(pole, "", "") for pole in self.poles]

    @property
    def stable(self) -> bool:
        """Whether no pole grows."""
        return not any(mode.stable is False for mode in self._modes)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        slowest, least = self.slowest, self.least_damped
        return {
            "parameter": self.parameter, "change": self.change,
            "decay": None if slowest is None else slowest.decay,
            "damping": None if least is None else least.damping,
            "stable": self.stable,
            "poles": [[pole.real, pole.imag] for pole in self.poles],
            "margins": [one.to_dict() for one in self.margins],
        }  # fmt: skip


def robustness(run: Run, at: State, memory: Array, change: float = CHANGE) -> list[Shifted]:
    """Poles and margins of the nominal plant, then with each float parameter smaller and larger.

    Args:
        run: A run whose plant can be compiled.
        at: The state.
        memory: Controller memory.
        change: Change relative to each parameter's value, between 0 and 1; parameters that are zero are left out.

    Raises:
        ConfigError: The change is out of range.
        TaskError: The plant cannot be differentiated.
    """
    if not 0.0 < change < 1.0:
        raise ConfigError(f"--change {100 * change:g}: expected percent between 0 and 100")
    loop = compiled(run)
    known, x = loop.parameters, np.concatenate([at.q, at.v, memory])
    found = [_shifted(run, at, x, known, None, 0.0)]
    for i, name in enumerate(parameter_names(run.system.model.plant)):
        for factor in (-change, change) if known[i] else ():
            real = known.copy()
            real[i] *= 1.0 + factor
            found.append(_shifted(run, at, x, real, name, factor))
    return found


def _shifted(run: Run, at: State, x: Array, real: Array, parameter: str | None, change: float) -> Shifted:
    """Poles and margins with these plant parameters, at the state on its passive constraints nearest to x."""
    state, memory = nearest(run, at.t, x, real)
    loop_at = least_stable(local(run, state, memory, real=real), run_timing(run.system, run.settings))
    margins = tuple(margins_at(run, state, memory, timing, real, exact=False) for timing in timings(run))
    return Shifted(parameter, change, tuple(loop_at.poles), margins)


def nearest(run: Run, t: float, x: Array, real: Array) -> tuple[State, Array]:
    """The state on the passive constraints of a plant with these parameters nearest to x, and the memory."""
    n = run.system.model.n
    if run.system.model.passive_rows:
        other = copy.copy(compiled(run))
        other.parameters = real
        x = other.projected(t, x)
    return State(t, x[:n], x[n : 2 * n]), x[2 * n :]
