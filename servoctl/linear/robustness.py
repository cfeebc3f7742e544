"""What becomes of poles and margins where a parameter of the plant is not what the law takes it for.

    x' = f(x, u(x; p); p'),  p' = p but for one parameter      u from the law's model, f of the plant that there is
    z = (e, N' x),  dz' = (E J + H, N' J) dx                   the task's errors and what they leave free, as in `modes`

Design: the law keeps the model that it has, since a parameter that both know wrong, or right, moves no pole of the task
(the law cancels it). One derivative serves all parameters: those of the plant are inputs of their own. Each plant is
looked at on its own passive constraints, at the state nearest to the run's. The errors' own rates make their poles come
out exactly in motion, too; what they leave free is frozen.
"""

import copy
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from servoctl.analysis import chains, error_kernel
from servoctl.closed_loop import CompiledLoop
from servoctl.engine.parameters import parameter_names
from servoctl.errors import ConfigError, TaskError
from servoctl.linear.jacobians import compiled, null_space
from servoctl.linear.margins_at import Margins, margins_at, timings
from servoctl.linear.modes import Mode, means_of_clusters
from servoctl.runs import Run
from servoctl.types import Array, State

REPEATED = 2
"""Multiplicity of poles that rounding may spread: of a critically damped row."""

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
    slopes = _mismatched(loop)
    known, x = loop.parameters, np.concatenate([at.q, at.v, memory])
    found = [_shifted(run, slopes, at, x, known, None, 0.0)]
    for i, name in enumerate(parameter_names(run.system.model.plant)):
        for factor in (-change, change) if known[i] else ():
            real = known.copy()
            real[i] *= 1.0 + factor
            found.append(_shifted(run, slopes, at, x, real, name, factor))
    return found


def _shifted(
    run: Run, slopes: ca.Function, at: State, x: Array, real: Array, parameter: str | None, change: float
) -> Shifted:
    """What becomes of the loop on the plant with these parameters, on its passive constraints near x."""
    loop, n = compiled(run), run.system.model.n
    if run.system.model.passive_rows:
        other = copy.copy(loop)
        other.parameters = real
        x = other.projected(at.t, x)
    state, memory = State(at.t, x[:n], x[n : 2 * n]), x[2 * n :]
    margins = tuple(margins_at(run, state, memory, *timing, real=real) for timing in timings(run))
    return Shifted(parameter, change, _poles(loop, slopes, at.t, x, real), margins)


def _mismatched(loop: CompiledLoop) -> ca.Function:
    """(t, x, the law's parameters, the plant's) -> f, J = df/dx."""
    t, x = ca.MX.sym("t"), ca.MX.sym("x", loop.size)
    known, real = (ca.MX.sym(name, len(loop.parameters)) for name in ("known", "real"))
    f = loop.motion_kernel.function(t, x, real, loop.control_kernel.function(t, x, known))[0]
    return ca.Function("mismatched", [t, x, known, real], [ca.densify(f), ca.densify(ca.jacobian(f, x))])


def _poles(loop: CompiledLoop, slopes: ca.Function, t: float, x: Array, real: Array) -> tuple[complex, ...]:
    """At x, which is on the passive constraints of the plant with these parameters."""
    model = loop.system.model
    f, J = (np.array(part) for part in slopes(t, x, loop.parameters, real))
    _, E, H = error_kernel(loop)(t, x, real, f[:, 0])
    if not all(np.isfinite(part).all() for part in (f, J, E, H)):
        raise TaskError(f"analyse: a derivative is not finite at t = {t:g} s (choose another state)")
    passive = max((chain.place.stop for chain in chains(model) if chain.group == "passive"), default=0)
    W, N = null_space(E[:passive]), null_space(E)
    coordinates = np.vstack([E[passive:], N.T]) @ W
    rate = np.vstack([(E @ J + H)[passive:], N.T @ J]) @ W
    A = np.linalg.lstsq(coordinates, rate)[0]
    return tuple(means_of_clusters(np.linalg.eigvals(A), REPEATED))
