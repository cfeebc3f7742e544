"""What the methods of a plant return, as arrays of real numbers; whatever else they do ends in one `PlantError`.

Design: a plant is a user's code, so it is believed nothing. It gets arrays that it cannot write to, since it would
change the state of the run. Its results are copied, since they may be views of its arguments. Every kind of exception
is caught but Ctrl-C: `sys.exit(0)` in a plant is a failure of the plant, not the end of the program. A plant on
symbols goes through `engine.trace`, which has the same rules.
"""

import reprlib
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from servoctl.engine.trace import read_only
from servoctl.errors import PlantError, in_one_line
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

T = TypeVar("T")

COPY = "a plant may not change q or v: work on a copy, as in q = q.copy()"

RESERVED = ("t", "energy")
"""What a drawing has beside the polylines."""

PLACES = 10
"""Most coordinates that an error message shows."""


def call(plant: Plant, method: str, where: State | None, *arguments: Any) -> Any:
    """What a method returns for arguments that it cannot change.

    Args:
        plant: The plant.
        method: Its name.
        where: For the message: the state; None: the initial one.
        arguments: As the method takes them.

    Raises:
        PlantError: It raised something else than Ctrl-C; says what, where, and on which line of its file.
    """
    return _guarded(plant, method, where, lambda: getattr(plant, method)(*map(read_only, arguments)))


def numbers(plant: Plant, method: str, where: State | None, shape: tuple[int, ...], *arguments: Any) -> Array:
    """What a method returns, as a new array of floats; not necessarily finite.

    Args:
        plant, method, where, arguments: As those of `call`.
        shape: That it must have.

    Raises:
        PlantError: As `call`; or the value has another shape, or holds what is no real number.
    """
    return _array(plant, method, where, shape, call(plant, method, where, *arguments))


def optional(plant: Plant, method: str, where: State | None, shape: tuple[int, ...], *arguments: Any) -> Array | None:
    """The same of a method that may return None."""
    value = call(plant, method, where, *arguments)
    return None if value is None else _array(plant, method, where, shape, value)


def terms(plant: Plant, state: State) -> tuple[Array, Array, Array, Array]:
    """M, Q, B and c at a state, shapes (n, n), (n,), (n, m) and (n,); not necessarily finite.

    Raises:
        PlantError: As `numbers`.
    """
    t, q, v = state
    n, m = len(plant.coordinates), len(plant.actuators)
    c = optional(plant, "nonideal_force", state, (n,), q, v, t)
    return (
        numbers(plant, "mass_matrix", state, (n, n), q, t),
        numbers(plant, "right_hand_side", state, (n,), q, v, t),
        numbers(plant, "actuation", state, (n, m), q, t),
        np.zeros(n) if c is None else c,
    )


def passive_groups(plant: Plant, method: str, where: State | None, *arguments: Any) -> dict[str, Array]:
    """Name -> values of `passive_constraints` or `passive_rates`, shape (rows,); not necessarily finite.

    Raises:
        PlantError: As `numbers`; or it is no mapping of names to values.
    """
    groups = call(plant, method, where, *arguments)
    if not isinstance(groups, dict) or not all(isinstance(name, str) for name in groups):
        raise PlantError(f"{_name(plant, method)}: expected a mapping of names to values, got {reprlib.repr(groups)}")
    return {name: _array(plant, method, where, None, value, f"{name}: ") for name, value in groups.items()}


def energy(plant: Plant, where: State | None, q: Array, v: Array, t: float) -> float | None:
    """The plant's energy [J]; None where it does not say.

    Raises:
        PlantError: As `numbers`.
    """
    value = optional(plant, "energy", where, (), q, v, t)
    return None if value is None else float(value)


def energies(plant: Plant, states: Iterable[State]) -> Array | None:
    """The energy at each state [J], shape (states,); None where the plant does not say.

    Raises:
        PlantError: As `numbers`.
    """
    values = []
    for state in states:
        value = energy(plant, state, state.q, state.v, state.t)
        if value is None:
            return None
        values.append(value)
    return np.array(values) if values else None


def links(plant: Plant, where: State | None, q: Array) -> dict[str, Array]:
    """Polyline -> points [m], shape (points, 2 or 3).

    Raises:
        PlantError: As `numbers`; or it is no mapping of names to polylines.
    """
    found = call(plant, "links", where, q)
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        shown = reprlib.repr(found)
        raise PlantError(f"{_name(plant, 'links')}: expected a mapping of names to polylines, got {shown}")
    lines = {}
    for name, points in found.items():
        if name in RESERVED or name.startswith("task."):
            raise PlantError(f"{_name(plant, 'links')}: {name}: the name is taken (rename the polyline)")
        array = _array(plant, "links", where, None, points, f"{name}: ", dimensions=2)
        if array.ndim != 2 or array.shape[1] not in (2, 3) or not len(array):
            raise PlantError(
                f"{_name(plant, 'links')}: {name}: expected shape (points, 2) or (points, 3), got {array.shape}"
            )
        lines[name] = array
    return lines


def _array(
    plant: Plant,
    method: str,
    where: State | None,
    shape: tuple[int, ...] | None,
    value: Any,
    part: str = "",
    dimensions: int = 1,
) -> Array:
    """A value as a new array of floats; of any shape with at most so many dimensions where none is given."""

    def array() -> Array:
        found = np.asarray(value)
        if shape is None and found.ndim > dimensions:
            raise PlantError(f"{_name(plant, method)}: {part}expected a number or a vector, got shape {found.shape}")
        if shape is not None and found.shape != shape:
            raise PlantError(f"{_name(plant, method)}: {part}expected shape {shape}, got {found.shape}")
        return _real(value, found)

    return _guarded(plant, method, where, array, part)


def _real(value: Any, array: Array) -> Array:
    """Raises TypeError unless everything in the array is a real number; an array of objects may hold such."""
    kind = array.dtype.kind
    real = kind in "biuf" or (kind == "O" and all(isinstance(x, (Real, np.bool_)) for x in array.flat))
    if not real or np.ma.is_masked(value):
        raise TypeError(f"expected real numbers, got {reprlib.repr(array.tolist())}")
    return array.astype(float)


def _guarded(plant: Plant, method: str, where: State | None, work: Callable[[], T], part: str = "") -> T:
    try:
        return work()
    except (KeyboardInterrupt, PlantError):
        raise
    except BaseException as error:  # SystemExit too
        place = "the initial state" if where is None else _place(plant, where)
        advice = f" ({COPY})" if isinstance(error, ValueError) and "read-only" in str(error) else ""
        raise PlantError(f"{_name(plant, method)}: failed at {place}: {part}{in_one_line(error)}{advice}") from error


def _name(plant: Plant, method: str) -> str:
    """A method as its author knows it."""
    return f"{type(plant).__name__}.{'force' if method == 'right_hand_side' else method}"


def _place(plant: Plant, state: State) -> str:
    """A state in words, as far as it fits into a line."""
    values = [f"{name}={x:.6g}" for name, x in zip(plant.coordinates, state.q, strict=True)]
    more = f" and {len(values) - PLACES} more" if len(values) > PLACES else ""
    return f"t = {state.t:.6g} s, {', '.join(values[:PLACES])}{more}"
