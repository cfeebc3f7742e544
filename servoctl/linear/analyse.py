"""`analyse`: modes, margins, robustness and instability of a run, from the linearised closed loop."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.errors import TaskError
from servoctl.linear.box import CHANGE, BoxAnalysis, Shifted, over_box, robustness
from servoctl.linear.convert import state_at
from servoctl.linear.jacobians import local
from servoctl.linear.margins import Margins, margins_of
from servoctl.linear.modes import Mode, modes
from servoctl.linear.sampled import LocalLoop, timings
from servoctl.run_folder.values import plain
from servoctl.types import Array, State, Status

UNITS = {
    "t": "s", "pole": "1/s", "poles": "1/s", "z": "1", "frequency": "rad/s", "damping": "1", "decay": "s",
    "period": "s", "delay": "cycles", "delay_time": "s", "lag": "s", "velocity_filter": "s",
    "growth": "1/s, or 1 from period to period", "delay_margin": "s", "change": "1",
    "actuators": {"gain": "1", "gain_down": "1", "phase": "deg", "delay": "s", "modulus": "1", "crossover": "rad/s"},
}  # fmt: skip
"""Field of the JSON -> unit; infinite values are null."""


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
    state, memory = state_at(run, at)
    found = modes(run, state, memory)
    x = run.loop.x_at(state, memory)
    rates = run.loop.rates(state.t, x)[0]
    if not np.isfinite(rates).all():
        raise TaskError(f"analyse: the motion is not finite at t = {state.t:g} s (choose another state)")
    exact = run.system.estimator is None
    at_state = local(run, state, memory)
    margins = [margins_of(LocalLoop(at_state, timing), exact) for timing in timings(run)]
    free = "internal dynamics" if run.system.following is not None else "motion"
    warnings = [*_given_up(run, state.t, x)]
    warnings += [_grows(mode, free) for mode in found if mode.stable is False and mode.pole.imag >= 0.0]  # pairs once
    warnings += [f"{one.timing}: the closed loop is unstable at this state, so it has no margins" for one in margins
                 if not one.actuators]  # fmt: skip
    shifted = robustness(run, state, memory, change) if change else []
    warnings += [_destabilises(one) for one in shifted[1:] if shifted[0].stable and not one.stable]
    moving = bool(np.abs(rates).max(initial=0.0) > 1e-9)
    notes = (*_notes(run, found, margins), *_notes_on_drives(run))
    box = over_box(run, state, memory)
    stable = [one.timing for one in margins if one.actuators]
    warnings += [f"{each.timing}: unstable for a machine of law.uncertainty: {each.unstable[0]}" for each in box.margins
                 if each.unstable and each.timing in stable]  # fmt: skip
    return Analysis(state, tuple(found), tuple(margins), moving, tuple(warnings), tuple(shifted), notes, box)


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
