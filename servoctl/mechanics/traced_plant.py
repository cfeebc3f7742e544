"""A plant's matrices in compiled functions: traced, or its own NumPy code as an operation of them.

`audit` proves that the traced matrices equal the plant's NumPy code.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine import stored
from servoctl.engine.kernel import Kernel
from servoctl.engine.linalg import called
from servoctl.engine.numpy_call import NumpyCall
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.structured import certainly_symmetric, filled, places_of
from servoctl.engine.trace import trace
from servoctl.errors import PlantError
from servoctl.mechanics import plant_values
from servoctl.mechanics.plant import Plant
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
    """Outputs of one compiled function, some of which are matrices: of these it gives the entries at their places."""

    kernel: Kernel
    facts: Any  # further facts of the trace, which JSON can write
    places: list[Array]  # of each matrix: where an entry may not be zero, a mask of its shape


def traced(
    key: str | None,
    name: str,
    symbols: Mapping[str, Array],
    make: Callable[[], tuple[dict[str, Any], list[str], Any]],
) -> Traced:
    """A compiled function, from the cache or traced now.

    Args:
        key: Under which it is kept in the cache; None: it is not.
        name: Name of the function.
        symbols: Its inputs.
        make: Traces: () -> outputs by name, the names of those that are matrices, and facts.
    """

    def compiled() -> tuple[Kernel, list[Any]]:
        outputs, matrices, facts = make()
        places = {matrix: places_of(outputs[matrix]) for matrix in matrices}
        values = {output: np.asarray(x)[places[output]] if output in places else x for output, x in outputs.items()}
        masks = [[mask.shape, np.packbits(mask).tobytes().hex()] for mask in places.values()]
        return Kernel.compile(name, symbols, values), [facts, masks]

    kernel, (facts, masks) = stored.kept(key, name, compiled)
    return Traced(kernel, facts, [_mask(tuple(shape), bits) for shape, bits in masks])


def _mask(shape: tuple[int, ...], bits: str) -> Array:
    packed = np.frombuffer(bytes.fromhex(bits), dtype=np.uint8)
    return np.unpackbits(packed, count=math.prod(shape)).reshape(shape) > 0


def compiled_plant(key: str | None, plant: Plant, symbols: Mapping[str, Array]) -> Traced:
    """M, Q, B and c of a plant, not verified yet; the fact is whether M is symmetric for certain.

    Args:
        key: See `traced`.
        symbols: t (1,), q, v and p.

    Raises:
        TraceError, PlantError: The plant cannot be traced.
    """

    def make() -> tuple[dict[str, Any], list[str], bool]:
        matrices = traced_matrices(plant, symbols)
        return matrices, ["M", "B"], certainly_symmetric(matrices["M"])

    return traced(key, "plant", symbols, make)


REMEMBERED = 8  # plants with other parameters that are kept, such as the simulated one beside that of the law


class NumpyPlant:
    """M, Q, B and c of a plant at any state.

    Args:
        plant: The plant; its parameters are inputs.
        M, B: Where these matrices may have entries, masks of their shapes.
    """

    def __init__(self, plant: Plant, M: Array, B: Array) -> None:
        self._plant, self._M, self._B = plant, M, B
        values = parameter_values(plant)
        self._count = len(values)
        self._plants: dict[bytes, Plant] = {values.tobytes(): plant}
        n = len(plant.coordinates)
        self._shapes = (int(M.sum()),), (n,), (int(B.sum()),), (n,)
        self._call = NumpyCall("plant", self._evaluated, ((1,), (n,), (n,), (self._count,)), self._shapes)

    def __call__(self, symbols: Mapping[str, Array]) -> tuple[Any, Array, Any, Array]:
        """M, Q, B and c as expressions of the symbols t (1,), q, v and p."""
        arguments = (symbols["t"], symbols["q"], symbols["v"], symbols["p"][: self._count])
        M, Q, B, c = called(self._call, arguments, *self._shapes)
        return filled(self._M, M), Q, filled(self._B, B), c

    def _evaluated(self, t: Array, q: Array, v: Array, p: Array) -> tuple[Array, Array, Array, Array]:
        state = State(float(t[0]), q.copy(), v.copy())  # a plant may keep what it gets
        M, Q, B, c = plant_values.terms(self._with(p), state)
        return _entries(M, self._M), Q, _entries(B, self._B), c

    def _with(self, p: Array) -> Plant:
        """The plant with these parameters."""
        key = p.tobytes()
        plant = self._plants.get(key)
        if plant is None:
            if len(self._plants) >= REMEMBERED:
                self._plants.clear()
            plant = self._plants[key] = with_parameters(self._plant, p.tolist())
        return plant


def _entries(matrix: Any, places: Array) -> Array:
    """The entries of a matrix at some places; raises PlantError if it has others."""
    dense = np.asarray(matrix)
    if np.any(dense[~places]):
        raise PlantError("the structure of M or B depends on the state (return the same structure at every state)")
    values: Array = dense[places]
    return values
