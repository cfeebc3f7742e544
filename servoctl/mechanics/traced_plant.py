"""A plant's matrices in compiled functions: traced, or its own NumPy code as an operation of them.

`audit` proves that the traced matrices equal the plant's NumPy code.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine import stored
from servoctl.engine.kernel import Kernel
from servoctl.engine.linalg import called
from servoctl.engine.numpy_call import NumpyCall
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.structured import Sparse, entries_of
from servoctl.engine.trace import trace
from servoctl.mechanics import plant_values
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.symmetry import certainly_symmetric
from servoctl.types import Array, State


def traced_matrices(plant: Plant, symbols: Mapping[str, Array]) -> dict[str, Any]:
    """M, Q, B and c of a plant as expressions of the symbols t (1,), q, v and p.

    Raises:
        TraceError, PlantError: The plant cannot be traced.
    """
    t, q, v, p = symbols["t"][0], symbols["q"], symbols["v"], symbols["p"]
    bound = with_parameters(plant, p[: len(parameter_values(plant))])
    M, Q, B, c = trace(plant_values.plant_arrays, bound, t, q, v)
    return {"M": M, "Q": Q, "B": B, "c": c}


class Traced(NamedTuple):
    """Outputs of one compiled function, some of which are matrices."""

    kernel: Kernel
    facts: Any  # further facts of the trace, which JSON can write
    forms: list[Sparse]  # the matrices as `Sparse`: the places where an entry may not be zero
    structures: tuple[Any, ...]  # in which structure `kernel` gives the matrices; anything but a `Sparse`: an array


def traced(
    key: str | None,
    name: str,
    symbols: Mapping[str, Array],
    make: Callable[[], tuple[dict[str, Any], list[Any], Any]],
) -> Traced:
    """A compiled function, from the cache or traced now.

    Args:
        key: Under which it is kept in the cache; None: it is not.
        name: Name of the function.
        symbols: Its inputs.
        make: Traces: () -> outputs by name, those whose structure counts, and facts.
    """
    structures: list[Any] = []

    def compiled() -> tuple[Kernel, list[Any]]:
        outputs, structures[:], facts = make()
        kernel = Kernel.compile(name, symbols, {output: entries_of(x) for output, x in outputs.items()})
        return kernel, [facts, [Sparse.of(matrix).places() for matrix in structures]]

    kernel, (facts, places) = stored.kept(key, name, compiled)
    return Traced(kernel, facts, [Sparse.at(*each) for each in places], tuple(structures or [None] * len(places)))


def compiled_plant(key: str | None, plant: Plant, symbols: Mapping[str, Array]) -> Traced:
    """M, Q, B and c of a plant, not verified yet; the fact is whether M is symmetric for certain.

    Args:
        key: See `traced`.
        symbols: t (1,), q, v and p.

    Raises:
        TraceError, PlantError: The plant cannot be traced.
    """

    def make() -> tuple[dict[str, Any], list[Any], bool]:
        matrices = traced_matrices(plant, symbols)
        return matrices, [matrices["M"], matrices["B"]], certainly_symmetric(matrices["M"])

    return traced(key, "plant", symbols, make)


def opaque_form(matrix: Any) -> Sparse:
    """The form of a matrix of a plant that is not traced: an array may have any entry at another state."""
    return matrix if isinstance(matrix, Sparse) else Sparse.of(np.ones(matrix.shape))


REMEMBERED = 8  # plants with other parameters that are kept, such as the simulated one beside that of the law


class NumpyPlant:
    """M, Q, B and c of a plant at any state.

    Args:
        plant: The plant; its parameters are inputs.
        M, B: Where these matrices may have entries.
    """

    def __init__(self, plant: Plant, M: Sparse, B: Sparse) -> None:
        self._plant, self._M, self._B = plant, M, B
        values = parameter_values(plant)
        self._count = len(values)
        self._plants: dict[bytes, Plant] = {values.tobytes(): plant}
        n = len(plant.coordinates)
        self._shapes = (len(M.values),), (n,), (len(B.values),), (n,)
        self._call = NumpyCall("plant", self._evaluated, ((1,), (n,), (n,), (self._count,)), self._shapes)

    def __call__(self, symbols: Mapping[str, Array]) -> tuple[Any, Array, Any, Array]:
        """M, Q, B and c as expressions of the symbols t (1,), q, v and p."""
        arguments = (symbols["t"], symbols["q"], symbols["v"], symbols["p"][: self._count])
        M, Q, B, c = called(self._call, arguments, *self._shapes)
        return self._M.with_values(M), Q, self._B.with_values(B), c

    def _evaluated(self, t: Array, q: Array, v: Array, p: Array) -> tuple[Array, Array, Array, Array]:
        state = State(float(t[0]), q.copy(), v.copy())  # a plant may keep what it gets
        M, Q, B, c = plant_values.terms(self._with(p), state)
        return self._M.entries_of(M), Q, self._B.entries_of(B), c

    def _with(self, p: Array) -> Plant:
        """The plant with these parameters."""
        key = p.tobytes()
        plant = self._plants.get(key)
        if plant is None:
            if len(self._plants) >= REMEMBERED:
                self._plants.clear()
            plant = self._plants[key] = with_parameters(self._plant, p.tolist())
        return plant
