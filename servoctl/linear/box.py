"""How do poles and margins change if the plant differs from the law's model, in one parameter or over a box of them?

    x' = f(x, u(x; p); p'),  u: the law with its model p, f: the real plant with p'

Design: only the plant changes. If the law's model changed with it, no pole of the task would move, because the law
cancels the model. The parameters of the plant are separate inputs of the derivatives, so all cases use the same
compiled functions. Each plant is linearised on its own passive constraints, at the state nearest to that of the run,
with hold, delay and lag of the run. Poles of the errors are exact in motion too; the internal dynamics are frozen.
Of the box of `law.uncertainty` all corners are compared, or random ones if there are more than 64, and a few random
machines inside.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.context import run_timing
from servoctl.assembly.uncertainty import in_words, machine_errors, uncertainty_box
from servoctl.engine.parameters import field_of, parameter_names
from servoctl.errors import ConfigError
from servoctl.linear.jacobians import Local, compiled, local_nearest
from servoctl.linear.margins import Margins, margins_of
from servoctl.linear.modes import Mode
from servoctl.linear.sampled import LocalLoop, least_stable, timings
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing
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
            "stable": self.stable, "poles": self.poles, "margins": self.margins,
        }  # fmt: skip


def robustness(run: Run, at: State, memory: Array, change: float = CHANGE) -> list[Shifted]:
    """Poles and margins of the nominal plant, then with each float parameter smaller and larger.

    Args:
        change: Change relative to each parameter's value, between 0 and 1; parameters that are zero are left out.

    Raises:
        ConfigError: The change is out of range.
        TaskError: The plant cannot be differentiated.
    """
    if not 0.0 < change < 1.0:
        raise ConfigError(f"--change {100 * change:g}: expected at least 0 and less than 100 percent")
    loop = compiled(run)
    known, x = loop.parameters, loop.x_at(at, memory)
    found = [_shifted(run, at.t, x, known, None, 0.0)]
    for i, name in enumerate(parameter_names(run.system.model.plant)):
        for factor in (-change, change) if known[i] else ():
            real = known.copy()
            real[i] *= 1.0 + factor
            found.append(_shifted(run, at.t, x, real, name, factor))
    return found


def _shifted(run: Run, t: float, x: Array, real: Array, parameter: str | None, change: float) -> Shifted:
    """Poles and margins with these plant parameters."""
    at = local_nearest(run, t, x, real)
    poles = least_stable(at, run_timing(run.system, run.settings)).poles
    return Shifted(parameter, change, tuple(poles), _margins(run, at))


def _margins(run: Run, at: Local) -> tuple[Margins, ...]:
    """Margins with each timing."""
    return tuple(margins_of(LocalLoop(at, timing)) for timing in timings(run))


LARGEST_IS_WORST = {"growth": True, "gain": False, "gain_down": True, "phase": False, "delay": False}
"""Figure -> whether the machine with the largest one is the worst."""

SAME = 1e-6  # [relative] a machine this close to the law's model in a figure is not worse


@dataclass(frozen=True)
class Worst:
    """A figure of the loop and its worst value over the box."""

    nominal: float  # with the law's own model
    worst: float  # of the worst machine
    machine: Mapping[str, float]  # parameter -> relative error of that machine


@dataclass(frozen=True)
class BoxMargins:
    """Poles and margins over the box, with one timing."""

    timing: Timing  # period, delay and lag
    # `growth`: largest real part of a pole [1/s], of a sampled loop the largest |z|; smallest margins of all inputs:
    # `gain`, `gain_down`, `phase` [deg], `delay` [s]. An unstable machine has the margins 1, 1, 0 and 0
    figures: Mapping[str, Worst]
    unstable: tuple[str, ...]  # machines that are unstable, in words

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        timing = {"timing": str(self.timing), "drives": self.timing.on_drives}
        return {**timing, **self.figures, "unstable": self.unstable}


@dataclass(frozen=True)
class BoxAnalysis:
    """Poles and margins over a box."""

    # parameter -> (lower, upper) relative error; empty without `law.uncertainty`
    box: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    machines: int = 0  # number of machines that were compared
    corners: bool = True  # whether every corner is among them; else random ones are
    margins: tuple[BoxMargins, ...] = ()  # for each timing


def machine_parameters(known: Array, plant: Plant, errors: Mapping[str, float]) -> Array:
    """Parameters of a loop with the plant's changed by relative errors."""
    real = known.copy()
    for i, name in enumerate(parameter_names(plant)):
        real[i] *= (1.0 + errors.get(field_of(name), 0.0)) * (1.0 + (errors.get(name, 0.0) if "." in name else 0.0))
    return real


def box_machines(run: Run) -> Iterator[tuple[Mapping[str, float], Array]]:
    """Relative errors and loop parameters of every machine of a run's box; none without a box."""
    box = {} if run.loaded is None else uncertainty_box(run.loaded)
    if not box:
        return
    known, plant = compiled(run).parameters, run.system.model.plant
    for errors in machine_errors(box)[0]:
        yield errors, machine_parameters(known, plant, errors)


def over_box(run: Run, at: State, memory: Array) -> BoxAnalysis:
    """Poles and margins of every machine of a run's box, at the state on its constraints nearest to a state.

    Raises:
        TaskError: The plant cannot be differentiated.
    """
    box = {} if run.loaded is None else uncertainty_box(run.loaded)
    if not box or run.system.law is None:
        return BoxAnalysis()
    x = run.loop.x_at(at, memory)
    machines = [({}, compiled(run).parameters), *box_machines(run)]
    compared = [(errors, _margins(run, local_nearest(run, at.t, x, real))) for errors, real in machines]
    found = [_worst(timing, [(errors, each[i]) for errors, each in compared]) for i, timing in enumerate(timings(run))]
    return BoxAnalysis(box, len(machines) - 1, machine_errors(box)[1], tuple(found))


def _worst(timing: Timing, compared: list[tuple[Mapping[str, float], Margins]]) -> BoxMargins:
    of_machines = [{"growth": margins.growth, **margins.worst} for _, margins in compared]
    figures = {}
    for name, largest in LARGEST_IS_WORST.items():
        values = [figure[name] for figure in of_machines]
        index = int(np.argmax(values) if largest else np.argmin(values))
        index = 0 if math.isclose(values[index], values[0], rel_tol=SAME) else index
        figures[name] = Worst(values[0], values[index], compared[index][0])
    unstable = tuple(in_words(error) for error, margins in compared[1:] if not margins.actuators)
    return BoxMargins(timing, figures, unstable)
