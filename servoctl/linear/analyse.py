"""What the linearised closed loop says of a run: modes, margins, and what grows."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.errors import TaskError
from servoctl.linear.convert import state_at
from servoctl.linear.margins_at import Margins, margins_at
from servoctl.linear.modes import Mode, modes
from servoctl.linear.robustness import CHANGE, Shifted, robustness
from servoctl.linear.sampled import timings
from servoctl.run_folder.trajectory import plain
from servoctl.types import State

UNITS = {
    "t": "s", "pole": "1/s", "poles": "1/s", "z": "1", "frequency": "rad/s", "damping": "1", "decay": "s",
    "period": "s", "delay": "cycles", "delay_time": "s", "lag": "s", "velocity_filter": "s",
    "growth": "1/s, or 1 from period to period", "gain_factor": "1", "delay_margin": "s", "change": "1",
    "actuators": {"gain": "1", "gain_down": "1", "phase": "deg", "delay": "s", "modulus": "1", "crossover": "rad/s"},
}  # fmt: skip
"""Field of the JSON -> unit; what is infinite is null."""


@dataclass(frozen=True)
class Analysis:
    """The closed loop at a state.

    Attributes:
        state: Where.
        modes: Of the constraints' errors and of the internal dynamics.
        margins: As the run acts, and as on drives where the config has some.
        moving: Whether the state is not at rest, so that the margins, and the internal modes, are those of a frozen
            instant.
        warnings: What a person should know.
        robustness: The poles as they are, then with each parameter of the plant off.
        notes: What the linearisation leaves out, and what its figures mean here.
    """

    state: State
    modes: tuple[Mode, ...]
    margins: tuple[Margins, ...]
    moving: bool
    warnings: tuple[str, ...]
    robustness: tuple[Shifted, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(
            plain(
                {
                    "t": self.state.t, "q": self.state.q, "v": self.state.v, "moving": self.moving,
                    "modes": [mode.to_dict() for mode in self.modes],
                    "margins": [one.to_dict() for one in self.margins], "warnings": list(self.warnings),
                    "robustness": [one.to_dict() for one in self.robustness],
                    "notes": list(self.notes), "units": UNITS,
                }
            )
        )  # fmt: skip


def analyse(run: Run, at: State | float | None = None, change: float = CHANGE) -> Analysis:
    """Linearises the closed loop at a state.

    Args:
        run: A run; its plant must be one that can be compiled.
        at: As of `linearize`.
        change: By how much each parameter of the plant is off for `robustness`, relative to its value; 0: none is.

    Raises:
        TaskError: The plant cannot be differentiated, or the run does not get that far.
    """
    state, memory = state_at(run, at)
    found = modes(run, state, memory)
    x = np.concatenate([state.q, state.v, memory])
    rates = run.loop.rates(state.t, x)[0]
    if not np.isfinite(rates).all():
        raise TaskError(f"analyse: the motion is not finite at t = {state.t:g} s (choose another state)")
    margins = [margins_at(run, state, memory, timing) for timing in timings(run)]
    said = [_grows(mode) for mode in found if mode.stable is False]
    said += [f"{one.timing}: the closed loop is unstable at this state, so it has no margins" for one in margins
             if not one.actuators]  # fmt: skip
    shifted = robustness(run, state, memory, change) if change else []
    said += [_loses(one) for one in shifted[1:] if shifted[0].stable and not one.stable]
    moving = bool(np.abs(rates).max(initial=0.0) > 1e-9)
    return Analysis(state, tuple(found), tuple(margins), moving, tuple(said), tuple(shifted), tuple(_notes(run, found)))


def _notes(run: Run, found: list[Mode]) -> list[str]:
    """What the linearisation leaves out, and what its figures mean here."""
    friction, realism = run.system.friction, run.system.realism
    notes = []
    if friction is not None and any(friction.coulomb):
        notes.append("dry (Coulomb) friction is left out of the linearisation; viscous friction is in it")
    if realism is not None and realism.jitter:
        notes.append(f"a jitter of up to {realism.jitter:g} s counts by its mean")
    if any(mode.stable is None for mode in found):
        notes.append("neutral: a pole within rounding of the limit (s = 0, |z| = 1) neither grows nor decays")
    if any(mode.z is not None for mode in found):
        notes.append(
            "poles of the sampled loop are s = ln z / period, with hold, delay and lag; those at z = 0 are left out"
        )
    return notes


def _grows(mode: Mode) -> str:
    """An unstable mode in words."""
    assert mode.decay is not None
    what = "internal dynamics" if mode.group == "internal" else f"error of {mode.of}"
    swings = f", swinging at {abs(mode.pole.imag):.3g} rad/s" if mode.pole.imag else ""
    where = f" (mostly {mode.mostly})" if mode.mostly else ""
    return f"{what}: unstable: grows by e every {-mode.decay:.3g} s{swings}{where}"


def _loses(one: Shifted) -> str:
    """What makes the closed loop unstable, in words."""
    slowest = one.slowest
    assert slowest is not None and slowest.decay is not None
    off = f"{abs(100 * one.change):.3g} % {'larger' if one.change > 0.0 else 'smaller'}"
    grows = f"grows by e every {-slowest.decay:.3g} s"
    return f"{one.parameter}: unstable where it is {off} than the law takes it for: {grows}"
