"""A plant's matrices in compiled functions: traced, or its own NumPy code as an operation of them.

`audit` proves that the traced matrices equal the plant's NumPy code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine import stored
from servoctl.engine.kernel import Kernel
from servoctl.engine.numpy_call import NumpyCall
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.products import called
from servoctl.engine.structured import Sparse, entries_of
from servoctl.engine.trace import trace
from servoctl.mechanics import plant_values
from servoctl.mechanics.passive import plant_arrays
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
    M, Q, B, c = trace(plant_arrays, bound, t, q, v)
    return {"M": M, "Q": Q, "B": B, "c": c}


@dataclass(frozen=True)
class CompiledPlant:
    """The matrices of a plant by one compiled function."""

    kernel: Kernel  # (t, q, v, p) -> M, Q, B, c
    symmetric: bool  # whether M is symmetric for certain
    forms: list[Sparse]  # M and B as `Sparse`: the places where an entry may not be zero
    structures: tuple[Any, Any]  # in which structure `kernel` gives M and B; anything but a `Sparse`: an array


def compiled_plant(key: str | None, plant: Plant, symbols: Mapping[str, Array]) -> CompiledPlant:
    """The plant's matrices, from the cache or traced now; they are not verified yet.

    Args:
        key: Under which they are kept in the cache; None: they are not.
        symbols: t (1,), q, v and p.

    Raises:
        TraceError, PlantError: The plant cannot be traced.
    """
    found = stored.find_with_facts(key, "plant")
    if found is not None:
        kernel, (symmetric, places) = found
        return CompiledPlant(kernel, bool(symmetric), [Sparse.at(*each) for each in places], (None, None))
    matrices = traced_matrices(plant, symbols)
    kernel = Kernel.compile("plant", symbols, {name: entries_of(x) for name, x in matrices.items()})
    symmetric = certainly_symmetric(matrices["M"])
    structures = matrices["M"], matrices["B"]
    forms = [Sparse.of(form) for form in structures]
    if key is not None:
        stored.keep_kernel(key, "plant", kernel, [symmetric, [form.places() for form in forms]])
    return CompiledPlant(kernel, symmetric, forms, structures)


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
