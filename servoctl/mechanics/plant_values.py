"""Results of a plant's methods as arrays of real numbers; anything else that they do becomes a `PlantError`.

Design: a plant is a user's code, so nothing about it is assumed. Its arguments are read-only arrays, because writing to
them would change the state of the run. Its results are copied, because they may be views of its arguments. Every
exception except Ctrl-C is caught: `sys.exit(0)` in a plant is a failure of the plant, not the end of the program.
`engine.trace` has the same rules for a plant on symbols.
"""

import reprlib
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from servoctl.engine.structured import Diagonal, Sparse
from servoctl.engine.trace import read_only
from servoctl.errors import PlantError, in_one_line
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

T = TypeVar("T")

COPY = "a plant may not change q or v: work on a copy, as in q = q.copy()"

RESERVED = ("t", "energy")  # names in a drawing that no polyline may have

PREFIXES = ("task.", "solid.", "faces.", "pose.", "axes.", "shape.", "obstacle.", "enclosure.")
"""Beginnings of such names."""

SHOWN = 10  # number of coordinates that an error message shows


def call(plant: Plant, method: str, where: State | None, *arguments: Any) -> Any:
    """Calls a method with read-only arguments and returns its result.

    Args:
        plant: The plant.
        method: Name of the method.
        where: The state, for messages; None: the initial state.
        arguments: Arguments of the method.

    Raises:
        PlantError: The method raised an exception; the message names it, the state and the plant's line.
    """
    return _guarded(plant, method, where, lambda: getattr(plant, method)(*map(read_only, arguments)))


def numbers(plant: Plant, method: str, where: State | None, shape: tuple[int, ...], *arguments: Any) -> Array:
    """The result of a method as a new array of floats, which may not be finite.

    Args:
        plant, method, where, arguments: See `call`.
        shape: Expected shape.

    Raises:
        PlantError: See `call`; or the result has another shape, or contains something that is not a real number.
    """
    value = call(plant, method, where, *arguments)
    if value is None and method == "actuation":
        return np.asarray(identity(plant))
    return _array(plant, method, where, shape, value)


def identity(plant: Plant) -> Diagonal:
    """B of a plant whose `actuation` returns None: input i acts on coordinate i.

    Raises:
        PlantError: It has not as many actuators as coordinates.
    """
    n, m = len(plant.coordinates), len(plant.actuators)
    if n != m:
        raise PlantError(
            f"{_name(plant, 'actuation')}: None means B = I, one actuator per coordinate, got {m} "
            f"{'actuator' if m == 1 else 'actuators'} for {n} coordinates (return B, shape ({n}, {m}))"
        )
    return Diagonal(np.full(n, 1.0))


def dense_actuation(plant: Plant, q: Array, t: Any) -> Array:
    """B, shape (n, m), on numbers or symbols, whether the plant returns an array, a structure or None."""
    B = plant.actuation(q, t)
    return np.atleast_2d(np.asarray(identity(plant) if B is None else B))


def kinetic_energy(plant: Plant, state: State) -> float:
    """v^T M v / 2 [J], on numbers."""
    M = plant.mass_matrix(state.q, state.t)
    momentum = (M if isinstance(M, Sparse) else np.atleast_2d(np.asarray(M, dtype=float))) @ state.v
    return 0.5 * float(state.v @ momentum)


def matrix(plant: Plant, method: str, where: State | None, shape: tuple[int, int], *arguments: Any) -> Array | Sparse:
    """The result of `mass_matrix` or `actuation` as `numbers` gives it; one with structure keeps it."""
    value = call(plant, method, where, *arguments)
    if value is None and method == "actuation":
        return identity(plant)
    if not isinstance(value, Sparse):
        return _array(plant, method, where, shape, value)
    if value.shape != shape:
        raise PlantError(f"{_name(plant, method)}: expected shape {shape}, got {value.shape}")
    return value.with_values(_array(plant, method, where, value.values.shape, value.values))


def optional(plant: Plant, method: str, where: State | None, shape: tuple[int, ...], *arguments: Any) -> Array | None:
    """The same for a method that may return None."""
    value = call(plant, method, where, *arguments)
    return None if value is None else _array(plant, method, where, shape, value)


TERMS = ("mass_matrix", "force", "actuation", "nonideal_force")  # names of M, Q, B and c


def term_calls(plant: Plant, state: State, where: State | None) -> dict[str, Callable[[], Any]]:
    """Name of `TERMS` -> a call that gives it, shapes (n, n), (n,), (n, m) and (n,); see `numbers`."""
    t, q, v = state
    n, m = len(plant.coordinates), len(plant.actuators)

    def nonideal() -> Array:
        c = optional(plant, "nonideal_force", where, (n,), q, v, t)
        return np.zeros(n) if c is None else c

    return {
        "mass_matrix": lambda: matrix(plant, "mass_matrix", where, (n, n), q, t),
        "force": lambda: numbers(plant, "right_hand_side", where, (n,), q, v, t),
        "actuation": lambda: matrix(plant, "actuation", where, (n, m), q, t),
        "nonideal_force": nonideal,
    }


def terms(plant: Plant, state: State) -> tuple[Array | Sparse, Array, Array | Sparse, Array]:
    """M, Q, B and c at a state, which may not be finite. M and B keep the structure that the plant gives them.

    Raises:
        PlantError: See `numbers`.
    """
    M, Q, B, c = (term() for term in term_calls(plant, state, state).values())
    return M, Q, B, c


def passive_groups(plant: Plant, method: str, where: State | None, state: State) -> dict[str, Array | Constraint]:
    """Name -> values of `passive_constraints` or `passive_rates`, shape (rows,), which may not be finite.

    A `Constraint` in place of values is returned as it is.

    Raises:
        PlantError: See `numbers`; or the result is not a mapping of names to values.
    """
    t, q, v = state
    arguments = (q, v, t) if method == "passive_rates" else (q, t)
    groups = _mapping(plant, method, "values", call(plant, method, where, *arguments))
    return {
        name: value if isinstance(value, Constraint) else _array(plant, method, where, None, value, f"{name}: ")
        for name, value in groups.items()
    }


def energy(plant: Plant, where: State | None, q: Array, v: Array, t: float) -> float | None:
    """The plant's energy [J]; None if it gives none.

    Raises:
        PlantError: See `numbers`.
    """
    value = optional(plant, "energy", where, (), q, v, t)
    return None if value is None else float(value)


def energies(plant: Plant, states: Iterable[State]) -> Array | None:
    """The energy at each state [J], shape (states,); None if the plant gives none.

    Raises:
        PlantError: See `numbers`.
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
        PlantError: See `numbers`; or the result is not a mapping of names to polylines.
    """
    lines = {}
    for name, points in _mapping(plant, "links", "polylines", call(plant, "links", where, q)).items():
        if name in RESERVED or name.startswith(PREFIXES):
            raise PlantError(f"{_name(plant, 'links')}: {name}: the name is taken (rename the polyline)")
        array = _array(plant, "links", where, None, points, f"{name}: ", dimensions=2)
        if array.ndim != 2 or array.shape[1] not in (2, 3) or not len(array):
            raise PlantError(
                f"{_name(plant, 'links')}: {name}: expected shape (points, 2) or (points, 3), got {array.shape}"
            )
        lines[name] = array
    return lines


def _mapping(plant: Plant, method: str, values: str, result: Any) -> dict[str, Any]:
    if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
        raise PlantError(f"{_name(plant, method)}: expected a mapping of names to {values}, got {reprlib.repr(result)}")
    return result


def _array(
    plant: Plant,
    method: str,
    where: State | None,
    shape: tuple[int, ...] | None,
    value: Any,
    part: str = "",
    dimensions: int = 1,
) -> Array:
    """A value as a new array of floats; without a shape it may have up to so many dimensions."""

    def convert() -> Array:
        array = np.asarray(value)
        if shape is None and array.ndim > dimensions:
            raise PlantError(f"{_name(plant, method)}: {part}expected a number or a vector, got shape {array.shape}")
        if shape is not None and array.shape != shape:
            raise PlantError(f"{_name(plant, method)}: {part}expected shape {shape}, got {array.shape}")
        return _real(value, array)

    return _guarded(plant, method, where, convert, part)


def _real(value: Any, array: Array) -> Array:
    """The array as floats; raises TypeError unless all its entries, objects included, are real numbers."""
    kind = array.dtype.kind
    real = kind in "biuf" or (kind == "O" and all(isinstance(x, (Real, np.bool_)) for x in array.flat))
    if not real or np.any(getattr(value, "mask", False)):  # a masked array; `np.ma` takes 10 ms to import
        raise TypeError(f"expected real numbers, got {reprlib.repr(array.tolist())}")
    return array.astype(float)


def _guarded(plant: Plant, method: str, where: State | None, work: Callable[[], T], part: str = "") -> T:
    try:
        return work()
    except (KeyboardInterrupt, PlantError):
        raise
    except BaseException as error:  # includes SystemExit
        at = "the initial state" if where is None else _in_words(plant, where)
        advice = f" ({COPY})" if isinstance(error, ValueError) and "read-only" in str(error) else ""
        raise PlantError(f"{_name(plant, method)}: failed at {at}: {part}{in_one_line(error)}{advice}") from error


def _name(plant: Plant, method: str) -> str:
    """Class and method, as the author of the plant knows them."""
    return f"{type(plant).__name__}.{'force' if method == 'right_hand_side' else method}"


def _in_words(plant: Plant, state: State) -> str:
    """A state in words, short enough for one line."""
    values = [f"{name}={x:.6g}" for name, x in zip(plant.coordinates, state.q, strict=True)]
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return f"t = {state.t:.6g} s, {', '.join(values[:SHOWN])}{more}"
