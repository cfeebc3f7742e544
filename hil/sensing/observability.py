"""Whether the channels see every freedom of the machine, and what to do where they do not."""

import numpy as np

from hil.sensing.coordinates import Coordinates
from servoctl.errors import ConfigError
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

SHOWN = 0.1
"""A coordinate is named when its share of an unseen direction exceeds this part of the largest."""

STEP = 0.1
"""How far away a pose is looked for at which all is seen [coordinate units]."""


def require_seen(model: Model, coordinates: Coordinates, start: State) -> None:
    """Raises ConfigError where the machine can move and no channel tells; names the direction and the remedy."""
    unseen = unseen_directions(coordinates, start)
    if not len(unseen):
        return
    plant, names = type(model.plant).__name__, list(model.plant.coordinates)
    freedoms = model.n - coordinates.view(start.t, start.q).passive.rank
    directions = [_direction(row, names) for row in unseen]
    if _elsewhere(model, coordinates, start):
        remedy = "only at this pose, which is singular: start away from it, or add an encoder node under hil.sensors"
    else:
        remedy = "add an encoder node under hil.sensors"
    raise ConfigError(
        f"hil.drives: {plant}: {freedoms - len(unseen)} of {freedoms} freedoms are measured; "
        f"unseen: {', '.join(directions)} ({remedy} for {', '.join(_remedies(unseen, names))})"
    )


def unseen_directions(coordinates: Coordinates, state: State) -> Array:
    """Orthonormal directions of q that neither passive constraints nor channels determine, shape (directions, n)."""
    at = coordinates.view(state.t, state.q)
    known = np.concatenate([at.passive.row_basis, at.seen.row_basis])
    if not len(known):
        return np.eye(len(state.q))
    _, _, Vt = np.linalg.svd(known)
    directions: Array = Vt[len(known) :]
    return directions


def _direction(row: Array, names: list[str]) -> str:
    """`x2`, or `0.71 link1 + 0.71 link2` where a direction mixes coordinates."""
    row = row / row[int(np.argmax(np.abs(row)))]
    order = [i for i in np.argsort(-np.abs(row), kind="stable") if abs(row[i]) > SHOWN]
    if len(order) == 1:
        return str(names[order[0]])
    factors = [f"{abs(row[i]):.2g} ".removeprefix("1 ") for i in order[:4]]
    terms = [f"{'-' if row[i] < 0 else '+'} {factor}{names[i]}" for i, factor in zip(order, factors, strict=False)]
    return " ".join(terms).removeprefix("+ ") + (" ..." if len(order) > 4 else "")


def _remedies(unseen: Array, names: list[str]) -> list[str]:
    """Coordinates that would be seen best, as many as there are directions."""
    rest, chosen = unseen.copy(), []
    for _ in range(len(unseen)):
        best = int(np.argmax(np.einsum("ij,ij->j", rest, rest)))
        chosen.append(names[best])
        column = rest[:, best] / np.linalg.norm(rest[:, best])
        rest = rest - np.outer(column, column @ rest)
    return chosen


def _elsewhere(model: Model, coordinates: Coordinates, start: State) -> bool:
    """Whether all is seen at an assembled pose nearby, a step along the freedoms away."""
    random = np.random.default_rng(0)
    passive = coordinates.view(start.t, start.q).passive.row_basis
    for _ in range(5):
        step = random.standard_normal(len(start.q))
        step = step - passive.T @ (passive @ step)
        q = start.q + STEP * step / max(float(np.abs(step).max()), 1e-12)
        # one coordinate is held where the step has led, or the nearest pose would often be the singular one again
        held = list(model.plant.coordinates)[int(np.argmax(np.abs(step)))]
        near, found = nearest(model, State(start.t, q, np.zeros(len(q))), fix=[held], among=())
        violation = found.violation[: len(model.passive_rows)]
        if np.abs(violation).max(initial=0.0) < 1e-6 and not len(unseen_directions(coordinates, near)):
            return True
    return False
