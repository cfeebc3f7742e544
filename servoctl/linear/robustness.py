"""What becomes of poles and margins where a parameter of the plant is not what the law takes it for.

    x' = f(x, u(x; p); p'),  p' = p but for one parameter      u from the law's model, f of the plant that there is

Design: the law keeps the model that it has, since a parameter that both know wrong, or right, moves no pole of the task
(the law cancels it). One derivative serves all parameters: those of the plant are inputs of their own. Each plant is
looked at on its own passive constraints, at the state nearest to the run's, in the loop as the run has it: held, late
and lagging. The errors' own rates make their poles come out exactly in motion, too; what they leave free is frozen.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.engine.parameters import parameter_names
from servoctl.errors import ConfigError
from servoctl.linear.jacobians import compiled, local
from servoctl.linear.margins_at import Margins, margins_at
from servoctl.linear.modes import Mode
from servoctl.linear.sampled import LocalLoop, run_timing, timings
from servoctl.types import Array, State

CHANGE = 0.1
"""By how much a parameter is off, relative to its value."""


@dataclass(frozen=True)
class Shifted:
    """The poles with one parameter off.

    Attributes:
        parameter: Its name; None: all are as the law knows them.
        change: Relative to its value.
        poles: On the passive constraints, the least stable first.
        margins: At every actuator, at the run's timing and on drives.
    """

    parameter: str | None
    change: float
    poles: tuple[complex, ...]
    margins: tuple[Margins, ...] = ()

    @property
    def slowest(self) -> Mode | None:
        """The pole that decays last, or grows fastest; one that does neither is none."""
        moving = [mode for mode in self._modes if mode.stable is not None]
        return max(moving, key=lambda mode: mode.pole.real, default=None)

    @property
    def least_damped(self) -> Mode | None:
        """The pole that swings longest, in its own periods, among those that grow or decay."""
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
    """The poles and margins as they are, then with each float parameter of the plant too small and too large.

    Args:
        run: Its plant is one that can be compiled.
        at: Where.
        memory: Of the law.
        change: Relative to each parameter's value, between 0 and 1; parameters that are zero stay so, and are left out.

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
    """What becomes of the loop on the plant with these parameters, on its passive constraints near x."""
    loop, n = compiled(run), run.system.model.n
    if run.system.model.passive_rows:
        other = copy.copy(loop)
        other.parameters = real
        x = other.projected(at.t, x)
    state, memory = State(at.t, x[:n], x[n : 2 * n]), x[2 * n :]
    own = LocalLoop(local(run, state, memory, real=real), run_timing(run))
    margins = tuple(margins_at(run, state, memory, timing, real, exact=False) for timing in timings(run))
    return Shifted(parameter, change, tuple(own.poles), margins)
