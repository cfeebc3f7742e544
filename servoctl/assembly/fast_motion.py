"""Motions of the machine that a fixed step of rk4 cannot follow, although they decay or swing in truth.

    J = dx'/dx at the start;  |R(h lambda)| > 1,  R(z) = 1 + z + z^2/2 + z^3/6 + z^4/24,  for a pole with Re <= 0

Design: a held command damps nothing between two ticks, so a joint with much damping and little inertia keeps its own
fast pole. Slopes over speeds are secants over one unit per second on both sides: dry friction, whose slope holds near
standstill alone, hardly counts.
"""

import math
from dataclasses import asdict, dataclass

import numpy as np

from servoctl.mechanics.model import Model
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.internal_dynamics import pole_text
from servoctl.simulation.settings import Settings
from servoctl.types import Array, State

SMALL = 1e-6  # displacement of a coordinate for its slopes, relative to 1 + its size
RK4 = (1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)  # coefficients of R
STIFF = 0.5  # a larger |pole| times step may be beyond what rk4 follows; its limit is 2.6 to 2.83

INVOLVED = 1e-6
"""A loop holds a coordinate if one of its rows depends on it by more than this, relative to its largest entry."""


@dataclass(frozen=True)
class FastMotion:
    """A motion that decays or swings in truth, and grows in the steps of a run."""

    pole: complex  # [1/s]
    coordinate: str  # the coordinate that moves most
    loops: tuple[str, ...]  # passive constraints that hold this coordinate
    step: float  # [s] step of rk4
    longest: float  # [s] longest step that follows the motion

    @property
    def text(self) -> str:
        """One sentence, with its remedy."""
        held = f" (held by {', '.join(self.loops)})" if self.loops else ""
        return (
            f"run.integrator.step: the machine's own motion of {self.coordinate}{held} has a pole at "
            f"{pole_text(self.pole)} 1/s, too fast for steps of {self.step:g} s of rk4: the run grows without end "
            f"(use steps of at most {_below(self.longest):g} s, or run.integrator.method: radau; or correct damping, "
            f"stiffness and inertia of {self.coordinate})"
        )

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "pole": [self.pole.real, self.pole.imag]}


def fast_motion(loop: Loop, start: State, settings: Settings) -> FastMotion | None:
    """The fastest motion at the start that the steps of a run cannot follow; None if there is none."""
    if settings.integrator.method != "rk4" or loop.system.machine is not None:
        return None
    step, period = settings.integrator.step, settings.period
    step = step if period is None else period / settings.integrator.substeps(period)
    slopes = _slopes(loop, start, held=settings.period is not None)
    if not np.isfinite(slopes).all():
        return None
    poles, shapes = np.linalg.eig(slopes)
    grows = (poles.real <= 1e-6 * np.abs(poles)) & (np.abs(poles) * step > STIFF)
    # a pole that is unstable in truth, and grows faster, is the cause itself
    grows &= np.abs(np.polyval(RK4, step * poles)) > np.exp(min(step * max(poles.real.max(), 0.0), 700.0))
    if not grows.any():
        return None
    worst = int(np.argmax(np.where(grows, np.abs(poles), 0.0)))
    model = loop.system.model
    i = int(np.argmax(np.abs(shapes[model.n :, worst])))
    name = list(model.plant.coordinates)[i]
    return FastMotion(complex(poles[worst]), name, _loops(model, start, i), step, _longest(poles[worst]))


def _slopes(loop: Loop, start: State, held: bool) -> Array:
    """J over q and v, shape (2 n, 2 n)."""
    real, n = loop.simulated(), loop.system.model.n
    x = np.concatenate([start.q, start.v, loop.memory_start])
    command = loop.control(start.t, x) if held else None
    delta = np.concatenate([SMALL * (1.0 + np.abs(start.q)), np.ones(n)])
    columns = []
    for i, size in enumerate(delta):
        ends = []
        for sign in (1.0, -1.0):
            moved = x.copy()
            moved[i] += sign * size
            ends.append(
                real.derivative(start.t, moved) if command is None else real.held_derivative(start.t, moved, command)
            )
        columns.append((ends[0] - ends[1])[: 2 * n] / (2.0 * size))
    return np.array(columns).T


def _loops(model: Model, start: State, coordinate: int) -> tuple[str, ...]:
    """Groups of passive rows that depend on a coordinate."""
    rows = model.matrices(start).passive.A
    used = [row.group for row, A in zip(model.passive_rows, rows, strict=True) if _depends(A, coordinate)]
    return tuple(dict.fromkeys(used))


def _depends(A: Array, coordinate: int) -> bool:
    return bool(abs(A[coordinate]) > INVOLVED * np.abs(A).max(initial=0.0))


def _longest(pole: complex) -> float:
    """Longest stable step for a pole [s]: the edge of the stable region along its ray."""
    ray = np.linspace(STIFF, 3.0, 2501) * pole / abs(pole)
    beyond = np.flatnonzero(np.abs(np.polyval(RK4, ray)) > 1.0)
    return float(abs(ray[beyond[0]]) / abs(pole))


def _below(value: float) -> float:
    """The value, rounded down to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.floor(value / unit) * unit
