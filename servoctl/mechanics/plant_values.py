"""Results of a plant's methods as arrays of real numbers; anything else that they do becomes a `PlantError`.

Design: a plant is a user's code, so nothing about it is assumed. Its arguments are read-only arrays, because writing to
them would change the state of the run. Its results are copied, because they may be views of its arguments. Every
exception except Ctrl-C is caught: `sys.exit(0)` in a plant is a failure of the plant, not the end of the program.
`engine.trace` has the same rules for a plant on symbols.
"""

import reprlib
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import numpy as np

from servoctl.engine.structured import Diagonal
from servoctl.engine.trace import read_only
from servoctl.errors import PlantError, counted, in_one_line, listed
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

T = TypeVar("T")

COPY = "a plant may not change q or v: work on a copy, as in q = q.copy()"

RESERVED = ("t", "energy")  # names in a drawing that no polyline may have

PREFIXES = ("task.", "solid.", "faces.", "pose.", "axes.", "shape.", "obstacle.", "enclosure.")
"""Beginnings of such names."""

SHOWN = 10  # number of coordinates that an error message shows


METHODS = {
    "mass_matrix": ("mass_matrix", "qt", "nn"),
    "force": ("right_hand_side", "qvt", "n"),
    "actuation": ("actuation", "qt", "nm"),
    "nonideal_force": ("nonideal_force", "qvt", "n"),
    "energy": ("energy", "qvt", ""),
    "motor_positions": ("motor_positions", "q", "m"),
    "passive_constraints": ("passive_constraints", "qt", None),
    "passive_rates": ("passive_rates", "qvt", None),
    "links": ("links", "q", None),
}
"""Name in messages -> method, its arguments, and the sizes in the shape of its result; None: it is a mapping."""

TERMS = ("mass_matrix", "force", "actuation", "nonideal_force")  # names of M, Q, B and c


def value(plant: Plant, name: str, state: State, initial: bool = False) -> Any:
    """The result of a method as a new array of floats, which may not be finite.

    M and B keep the structure that the plant gives them; the energy and the motor positions may be None.

    Args:
        name: One of `METHODS` with a shape.
        state: Its arguments.
        initial: Whether messages say `the initial state` in place of the state.

    Raises:
        PlantError: The method raised an exception (the message names it, the state and the plant's line); or the result
            has another shape, or contains something that is not a real number.
    """
    sizes = {"n": len(plant.coordinates), "m": len(plant.actuators)}
    shape = tuple(sizes[size] for size in METHODS[name][2] or "")
    asked = _Asked(plant, name, state, initial)
    result = asked.result()
    if result is None and name in ("energy", "motor_positions"):
        return None
    if result is None and name in ("actuation", "nonideal_force"):
        return identity(plant) if name == "actuation" else np.zeros(shape)
    if not isinstance(result, Diagonal) or len(shape) < 2:
        return asked.array(result, shape)
    if result.shape != shape:
        raise PlantError(f"{asked.name}: expected shape {shape}, got {result.shape}")
    return Diagonal(asked.array(result.values, result.values.shape))


def identity(plant: Plant) -> Diagonal:
    """B of a plant whose `actuation` returns None: input i acts on coordinate i.

    Raises:
        PlantError: It has not as many actuators as coordinates.
    """
    n, m = len(plant.coordinates), len(plant.actuators)
    if n != m:
        raise PlantError(
            f"{_name(plant, 'actuation')}: None means B = I, one actuator per coordinate, got "
            f"{counted(m, 'actuator')} for {n} coordinates (return B, shape ({n}, {m}))"
        )
    return Diagonal(np.full(n, 1.0))


def dense_actuation(plant: Plant, q: Array, t: Any) -> Array:
    """B, shape (n, m), on numbers or symbols, whether the plant returns an array, a structure or None."""
    B = plant.actuation(q, t)
    return np.atleast_2d(np.asarray(identity(plant) if B is None else B))


def kinetic_energy(plant: Plant, state: State) -> float:
    """v^T M v / 2 [J], on numbers."""
    M = plant.mass_matrix(state.q, state.t)
    momentum = (M if isinstance(M, Diagonal) else np.atleast_2d(np.asarray(M, dtype=float))) @ state.v
    return 0.5 * float(state.v @ momentum)


def terms(plant: Plant, state: State) -> tuple[Array | Diagonal, Array, Array | Diagonal, Array]:
    """M, Q, B and c at a state; see `value`."""
    M, Q, B, c = (value(plant, name, state) for name in TERMS)
    return M, Q, B, c


def plant_arrays(plant: Plant, t: Any, q: Array, v: Array) -> tuple[Array | Diagonal, Array, Array | Diagonal, Array]:
    """M, Q, B and c with the right number of dimensions, on symbols; `terms` has them on numbers."""
    M, B, c = plant.mass_matrix(q, t), plant.actuation(q, t), plant.nonideal_force(q, v, t)
    B = identity(plant) if B is None else B
    return (
        M if isinstance(M, Diagonal) else np.atleast_2d(M),
        np.atleast_1d(plant.right_hand_side(q, v, t)),
        B if isinstance(B, Diagonal) else np.atleast_2d(B),
        np.zeros(len(q)) if c is None else np.atleast_1d(c),
    )


def passive_groups(plant: Plant, name: str, state: State, initial: bool = False) -> dict[str, Array | Constraint]:
    """Name -> values of `passive_constraints` or `passive_rates`, shape (rows,), which may not be finite.

    A `Constraint` in place of values is returned as it is.

    Raises:
        PlantError: See `value`; or the result is not a mapping of names to values.
    """
    asked = _Asked(plant, name, state, initial)
    return {
        group: rows if isinstance(rows, Constraint) else asked.array(rows, part=f"{group}: ")
        for group, rows in asked.mapping("values").items()
    }


def energies(plant: Plant, states: Iterable[State]) -> Array | None:
    """The energy at each state [J], shape (states,); None if the plant gives none.

    Raises:
        PlantError: See `value`.
    """
    values = []
    for state in states:
        energy = value(plant, "energy", state)
        if energy is None:
            return None
        values.append(float(energy))
    return np.array(values) if values else None


def links(plant: Plant, state: State, initial: bool = False) -> dict[str, Array]:
    """Polyline -> points [m], shape (points, 2 or 3).

    Raises:
        PlantError: See `value`; or the result is not a mapping of names to polylines.
    """
    asked, lines = _Asked(plant, "links", state, initial), {}
    for name, points in asked.mapping("polylines").items():
        if name in RESERVED or name.startswith(PREFIXES):
            raise PlantError(f"{asked.name}: {name}: the name is taken (rename the polyline)")
        array = asked.array(points, part=f"{name}: ", dimensions=2)
        if array.ndim != 2 or array.shape[1] not in (2, 3) or not len(array):
            raise PlantError(f"{asked.name}: {name}: expected shape (points, 2) or (points, 3), got {array.shape}")
        lines[name] = array
    return lines


class _Asked(NamedTuple):
    """A method of a plant that is asked at a state."""

    plant: Plant
    method: str  # one of `METHODS`
    state: State
    initial: bool  # whether messages say `the initial state` in place of the state

    @property
    def name(self) -> str:
        return _name(self.plant, self.method)

    def result(self) -> Any:
        """What it returns; it gets read-only arguments."""
        method, letters, _ = METHODS[self.method]
        arguments = {"q": self.state.q, "v": self.state.v, "t": self.state.t}
        given = [read_only(arguments[letter]) for letter in letters]
        return self._guarded(lambda: getattr(self.plant, method)(*given))

    def mapping(self, values: str) -> dict[str, Any]:
        """Its result, a mapping of names to such values."""
        result = self.result()
        if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
            raise PlantError(f"{self.name}: expected a mapping of names to {values}, got {reprlib.repr(result)}")
        return result

    def array(self, value: Any, shape: tuple[int, ...] | None = None, part: str = "", dimensions: int = 1) -> Array:
        """A value as a new array of floats; without a shape it may have up to so many dimensions."""

        def convert() -> Array:
            array = np.asarray(value)
            if shape is None and array.ndim > dimensions:
                raise PlantError(f"{self.name}: {part}expected a number or a vector, got shape {array.shape}")
            if shape is not None and array.shape != shape:
                raise PlantError(f"{self.name}: {part}expected shape {shape}, got {array.shape}")
            return _real(value, array)

        return self._guarded(convert, part)

    def _guarded(self, work: Callable[[], T], part: str = "") -> T:
        try:
            return work()
        except (KeyboardInterrupt, PlantError):
            raise
        except BaseException as error:  # includes SystemExit
            at = "the initial state" if self.initial else _in_words(self.plant, self.state)
            advice = f" ({COPY})" if isinstance(error, ValueError) and "read-only" in str(error) else ""
            raise PlantError(f"{self.name}: failed at {at}: {part}{in_one_line(error)}{advice}") from error


def _real(value: Any, array: Array) -> Array:
    """The array as floats; raises TypeError unless all its entries, objects included, are real numbers."""
    kind = array.dtype.kind
    real = kind in "biuf" or (kind == "O" and all(isinstance(x, (Real, np.bool_)) for x in array.flat))
    if not real or np.any(getattr(value, "mask", False)):  # a masked array; `np.ma` takes 10 ms to import
        raise TypeError(f"expected real numbers, got {reprlib.repr(array.tolist())}")
    return array.astype(float)


def _name(plant: Plant, method: str) -> str:
    """Class and method, as the author of the plant knows them."""
    return f"{type(plant).__name__}.{method}"


def _in_words(plant: Plant, state: State) -> str:
    """A state in words, short enough for one line."""
    values = (f"{name}={x:.6g}" for name, x in zip(plant.coordinates, state.q, strict=True))
    return f"t = {state.t:.6g} s, {listed(values, SHOWN)}"
