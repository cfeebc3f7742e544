"""Every term of a loop at a state, by name, from the functions that a run evaluates; or of a plant without inputs."""

from dataclasses import dataclass

import numpy as np

from servoctl.assembly.run import Run
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array, State

PARTS = ("u", "rank", "residual", "pivot_min", "status")  # of a command


def evaluate(run: Run, t: float, q: Array, v: Array, memory: Array | None = None) -> dict[str, Array]:
    """The terms of plant, task and law at a state.

    | name | shape | is |
    |---|---|---|
    | `M`, `Q`, `B`, `c` | (n, n), (n,), (n, m), (n,) | `M q'' = Q + B u + Qc`; c: nonideal part of the reaction Qc |
    | `passive_A`, `passive_b` | (p, n), (p,) | the plant's own constraints `Ahat q'' = bhat` |
    | `passive_violation`, `passive_violation_rate` | (p,) | what they miss; a rate is NaN where there is none |
    | `A`, `b`, `violation`, `violation_rate` | (r, n), (r,) | the same of the task |
    | `a_c` | (n,) | q'' at u = 0 |
    | `T`, `rhs` | (r, m), (r,) | the task is met where `T u = rhs`, `rhs = b - A a_c`; the law adds its feedback |
    | `u`, `rank`, `residual`, `pivot_min`, `status` | (m,), (1,) | the command; `Status.from_code` reads a status |
    | `acceleration` | (n,) | q'' under u, with friction and the correction of the mechanism constraints |

    Args:
        run: The run.
        t: Time [s].
        q: Coordinates, shape (n,).
        v: Velocities, shape (n,).
        memory: The law's own states; None: those at the start.

    Raises:
        ValueError: A shape is wrong.
    """
    loop, n = run.loop, run.system.model.n
    given = {"q": (q, n), "v": (v, n), "memory": (loop.memory_start if memory is None else memory, loop.size - 2 * n)}
    for name, (value, size) in given.items():
        if np.shape(value) != (size,):
            raise ValueError(f"evaluate: {name}: expected shape {(size,)}, got {np.shape(value)}")
    x = np.concatenate([value for value, _ in given.values()])
    kernel = loop.terms_kernel
    terms = dict(zip(kernel.outputs, kernel(t, x, loop.parameters), strict=True))
    return terms | _command(loop, t, x)


def _command(loop: Loop, t: float, x: Array) -> dict[str, Array]:
    """The parts of the command, and the acceleration under it."""
    command, slices, n = loop.control(t, x), loop.layout.slices, loop.system.model.n
    found = {name: command[slices[name]] for name in PARTS}
    return found | {"acceleration": loop.motion(t, x, command)[0][n : 2 * n]}


@dataclass(frozen=True)
class ConstrainedMotion:
    """An acceleration, with rank and residual."""

    acceleration: Array  # q'', shape (n,)
    constraint_force: Array  # qc, shape (n,)
    rank: int
    inconsistency: Array  # (I - A A^+) b in the mass-weighted norm, shape (r,): zero if the rows can all hold


def fundamental_acceleration(plant: Plant, state: State, rank_tolerance: float = 1e-6) -> ConstrainedMotion:
    """The acceleration of a plant under its own mechanism constraints, without inputs.

    Args:
        plant: The plant.
        state: Time, coordinates and velocities.
        rank_tolerance: A mechanism direction counts when its pivot exceeds this times |Ahat L^-T|_F.

    Raises:
        PlantError: A matrix of the plant has a wrong shape or value, or the motion is not unique.
    """
    model = Model(plant, {}, state)
    terms, u = model.terms(state, rank_tolerance), np.zeros(model.m)
    a = terms.acceleration(u)
    return ConstrainedMotion(a, terms.passive_force(a, u), terms.passive.rank, terms.consistency)
