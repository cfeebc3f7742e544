"""`analyse`: modes, margins, robustness and instability of a run, from the linearised closed loop.

How poles and margins change if the plant differs from the law's model, in one parameter or over a box of them:

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
from servoctl.engine.parameters import parameter_names
from servoctl.errors import ConfigError, TaskError
from servoctl.linear.convert import state_at
from servoctl.linear.loop import Local, LocalLoop, box_machines, compiled, least_stable, local, local_nearest, timings
from servoctl.linear.margins import Margins, margins_of
from servoctl.linear.modes import Mode, modes
from servoctl.mechanics.timing import Timing
from servoctl.run_folder.metrics import plain
from servoctl.types import Array, State, Status

UNITS = {
    "t": "s", "pole": "1/s", "poles": "1/s", "z": "1", "frequency": "rad/s", "damping": "1", "decay": "s",
    "period": "s", "delay": "cycles", "delay_time": "s", "lag": "s", "velocity_filter": "s",
    "growth": "1/s, or 1 from period to period", "delay_margin": "s", "change": "1",
    "actuators": {"gain": "1", "gain_down": "1", "phase": "deg", "delay": "s", "modulus": "1", "crossover": "rad/s"},
}  # fmt: skip
"""Field of the JSON -> unit; infinite values are null."""


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


def robustness(run: Run, t: float, x: Array, change: float = CHANGE) -> list[Shifted]:
    """Poles and margins of the nominal plant, then with each float parameter smaller and larger.

    Args:
        change: Change relative to each parameter's value, between 0 and 1; parameters that are zero are left out.

    Raises:
        ConfigError: The change is out of range.
        TaskError: The plant cannot be differentiated.
    """
    if not 0.0 < change < 1.0:
        raise ConfigError(f"--change {100 * change:g}: expected at least 0 and less than 100 percent")
    known = compiled(run).parameters
    found = [_shifted(run, t, x, known, None, 0.0)]
    for i, name in enumerate(parameter_names(run.system.model.plant)):
        for factor in (-change, change) if known[i] else ():
            real = known.copy()
            real[i] *= 1.0 + factor
            found.append(_shifted(run, t, x, real, name, factor))
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


def over_box(run: Run, t: float, x: Array) -> BoxAnalysis:
    """Poles and margins of every machine of a run's box, at the state on its constraints nearest to a state.

    Raises:
        TaskError: The plant cannot be differentiated.
    """
    box = {} if run.loaded is None else uncertainty_box(run.loaded)
    if not box or run.system.law is None:
        return BoxAnalysis()
    machines = [({}, compiled(run).parameters), *box_machines(run)]
    compared = [(errors, _margins(run, local_nearest(run, t, x, real))) for errors, real in machines]
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


@dataclass(frozen=True)
class Analysis:
    """Linear analysis of the closed loop at a state."""

    state: State
    modes: tuple[Mode, ...]  # modes of the constraint errors and of the internal dynamics
    margins: tuple[Margins, ...]  # margins in simulation, and on drives if the config has `hil`
    moving: bool  # whether the state moves, so that margins and internal modes are those of a frozen instant
    warnings: tuple[str, ...]  # unstable modes and missing margins
    robustness: tuple[Shifted, ...] = ()  # poles of the nominal plant, then with one plant parameter changed at a time
    notes: tuple[str, ...] = ()  # what the linearisation leaves out, and how to read its figures
    box: BoxAnalysis = field(default_factory=BoxAnalysis)  # poles and margins over the box of `law.uncertainty`

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(
            plain(
                {
                    "t": self.state.t, "q": self.state.q, "v": self.state.v, "moving": self.moving,
                    "modes": self.modes, "margins": self.margins, "warnings": self.warnings,
                    "robustness": self.robustness, "box": self.box if self.box.box else None, "notes": self.notes,
                    "units": UNITS,
                }
            )
        )  # fmt: skip


def analyse(run: Run, at: State | float | None = None, change: float = CHANGE) -> Analysis:
    """Linearises the closed loop at a state.

    Args:
        run: A run whose plant can be compiled.
        at: As of `linearize`.
        change: Relative change of each plant parameter for `robustness`; 0: no robustness analysis.

    Raises:
        TaskError: The plant cannot be differentiated, or the run stops before that time.
    """
    t, x = state_at(run, at)
    found, rates = modes(run, t, x), run.loop.rates(t, x)[0]
    if not np.isfinite(rates).all():
        raise TaskError(f"analyse: the motion is not finite at t = {t:g} s (choose another state)")
    exact = run.system.estimator is None
    at_state = local(run, t, x)
    margins = [margins_of(LocalLoop(at_state, timing), exact) for timing in timings(run)]
    free = "internal dynamics" if run.system.following is not None else "motion"
    warnings = [*_given_up(run, t, x)]
    warnings += [_grows(mode, free) for mode in found if mode.stable is False and mode.pole.imag >= 0.0]  # pairs once
    warnings += [f"{one.timing}: the closed loop is unstable at this state, so it has no margins" for one in margins
                 if not one.actuators]  # fmt: skip
    shifted = robustness(run, t, x, change) if change else []
    warnings += [_destabilises(one) for one in shifted[1:] if shifted[0].stable and not one.stable]
    moving = bool(np.abs(rates).max(initial=0.0) > 1e-9)
    notes = (*_notes(run, found, margins), *_notes_on_drives(run))
    box = over_box(run, t, x)
    stable = [one.timing for one in margins if one.actuators]
    warnings += [f"{each.timing}: unstable for a machine of law.uncertainty: {each.unstable[0]}" for each in box.margins
                 if each.unstable and each.timing in stable]  # fmt: skip
    return Analysis(
        run.loop.split(t, x)[0], tuple(found), tuple(margins), moving, tuple(warnings), tuple(shifted), notes, box
    )


def _notes(run: Run, found: list[Mode], margins: list[Margins]) -> list[str]:
    """What the linearisation leaves out, and how to read its figures."""
    friction, realism = run.system.friction, run.system.realism
    notes = []
    if run.system.estimator is not None:
        notes.append("the estimator is in the loop; the loop on drives is left out")
    if any(one.actuators and one.delay_margin is None for one in margins):
        # two_mass_spring_off with 131 sets of period, delay and gains
        notes.append("delay margins are phase / crossover, off by up to 3 % from two periods on, by up to 45 % below")
    if friction is not None and np.any(np.array(friction.coulomb)):
        notes.append("the linearisation includes viscous friction, but not dry (Coulomb) friction")
    if realism is not None and realism.timing.jitter:
        notes.append(
            f"a jitter of up to {realism.timing.jitter:g} s: the poles are those of the shortest or the longest delay, "
            "whichever is less stable"
        )
    if any(mode.stable is None for mode in found):
        notes.append("neutral: a pole within rounding of the limit (s = 0, |z| = 1) neither grows nor decays")
    if any(mode.z is not None for mode in found):
        notes.append(
            "poles of the sampled loop are s = ln z / period, with hold, delay and lag; poles at z = 0 are left out"
        )
    return notes


def _notes_on_drives(run: Run) -> list[str]:
    """The same, for the loop on drives."""
    hil = run.hil
    if hil is None or run.system.law is None:
        return []
    emulation = hil.emulation
    notes = [
        f"on drives: the lag is hil.emulation.current_lag, {emulation.current_lag:g} s (on real drives, set it to the "
        "time constant of their current loop)"
    ]
    left_out = {
        "hil.prediction": hil.prediction,
        "hil.emulation.coulomb_friction": emulation.coulomb_friction,
        "hil.emulation.viscous_friction": emulation.viscous_friction,
        "hil.emulation.parameters": emulation.parameters,
    }
    if any(left_out.values()):
        notes.append(f"on drives: the figures leave out {', '.join(name for name, value in left_out.items() if value)}")
    return notes


def _given_up(run: Run, t: float, x: Array) -> Iterator[str]:
    """What keeps the law from its feedback at this state, in words."""
    law, slices = run.system.law, run.loop.layout.slices
    if law is None:
        return
    command = run.loop.control(t, x)
    status = Status.from_code(command[slices["status"]][0])
    if Status.BOUNDED.code <= status.code <= Status.DAMPED.code:
        actuators = list(run.system.model.plant.actuators)
        limits = ", ".join(actuators[i] for i in law.at_limit(command[slices["u"]]))
        yield (
            f"{status.value}{f' ({limits})' * bool(limits)}: poles and margins are those of this command, "
            "not of the law where it delivers all (choose another state with --at)"
        )


def _grows(mode: Mode, free: str) -> str:
    """An unstable mode in words; `free`: what a mode is that belongs to no row."""
    assert mode.decay is not None
    subject = free if mode.group == "internal" else f"error of {mode.of}"
    oscillates = f", oscillating at {abs(mode.pole.imag):.3g} rad/s" if mode.pole.imag else ""
    coordinates = f" (mostly {mode.mostly})" if mode.mostly else ""
    return f"{subject}: unstable: grows by e every {-mode.decay:.3g} s{oscillates}{coordinates}"


def _destabilises(one: Shifted) -> str:
    """A parameter change that makes the closed loop unstable, in words."""
    slowest = one.slowest
    assert slowest is not None and slowest.decay is not None
    change = f"{abs(100 * one.change):.3g} % {'larger' if one.change > 0.0 else 'smaller'}"
    grows = f"grows by e every {-slowest.decay:.3g} s"
    return f"{one.parameter}: unstable if it is {change} than in the law's model: {grows}"
