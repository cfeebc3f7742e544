"""Whether the channels measure every degree of freedom of the machine, and the remedy if they do not."""

import numpy as np

from hil.sensing.coordinates import Coordinates
from servoctl.errors import ConfigError
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

SHOWN = 0.1  # a coordinate is named when its share of an unmeasured direction exceeds this part of the largest
STEP = 0.1  # [coordinate units] distance at which another pose is tried


def require_observability(model: Model, coordinates: Coordinates, start: State) -> None:
    """Refuses a machine with a motion that no channel measures.

    Raises:
        ConfigError: There is one; the message names the directions and the remedy.
    """
    unmeasured = unmeasured_directions(coordinates, start)
    if not len(unmeasured):
        return
    plant, names = type(model.plant).__name__, list(model.plant.coordinates)
    freedoms = model.n - coordinates.decompositions(start.t, start.q).passive.rank
    directions = [_direction(row, names) for row in unmeasured]
    remedy = "add an encoder node under hil.sensors"
    if _measured_nearby(model, coordinates, start):
        remedy = f"only at this pose, which is singular: start at another pose, or {remedy}"
    raise ConfigError(
        f"hil.drives: {plant}: {freedoms - len(unmeasured)} of {freedoms} degrees of freedom are measured; "
        f"not measured: {', '.join(directions)} ({remedy} for {', '.join(_best_encoders(unmeasured, names))})"
    )


def unmeasured_directions(coordinates: Coordinates, state: State) -> Array:
    """Orthonormal directions of q that neither passive constraints nor channels determine, shape (directions, n)."""
    decompositions = coordinates.decompositions(state.t, state.q)
    known = np.concatenate([decompositions.passive.row_basis, decompositions.measured.row_basis])
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


def _best_encoders(unmeasured: Array, names: list[str]) -> list[str]:
    """Coordinates on which encoders would measure these directions best, one per direction.

    Each choice takes the coordinate with the largest share, then removes what its encoder would measure.
    """
    rest, chosen = unmeasured.copy(), []
    for _ in range(len(unmeasured)):
        best = int(np.argmax(np.einsum("ij,ij->j", rest, rest)))
        chosen.append(names[best])
        column = rest[:, best] / np.linalg.norm(rest[:, best])
        rest = rest - np.outer(column, column @ rest)
    return chosen


def _measured_nearby(model: Model, coordinates: Coordinates, start: State) -> bool:
    """Whether everything is measured at a pose nearby that meets the passive constraints."""
    random = np.random.default_rng(0)
    passive = coordinates.decompositions(start.t, start.q).passive.row_basis
    for _ in range(5):
        step = random.standard_normal(len(start.q))
        step = step - passive.T @ (passive @ step)
        q = start.q + STEP * step / max(float(np.abs(step).max()), 1e-12)
        # one coordinate is fixed after the step: otherwise the nearest pose is often the singular one again
        fixed = list(model.plant.coordinates)[int(np.argmax(np.abs(step)))]
        near, consistency = nearest(model, State(start.t, q, np.zeros(len(q))), fix=[fixed], among=())
        violation = consistency.violation[: len(model.passive_rows)]
        if np.abs(violation).max(initial=0.0) < 1e-6 and not len(unmeasured_directions(coordinates, near)):
            return True
    return False
