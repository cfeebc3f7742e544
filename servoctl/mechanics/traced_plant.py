"""A plant's matrices traced and compiled; `audit` proves that they equal the plant's NumPy code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine import stored
from servoctl.engine.kernel import Kernel
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.structured import Sparse, entries_of
from servoctl.engine.trace import trace
from servoctl.mechanics.passive import plant_arrays
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.symmetry import certainly_symmetric
from servoctl.types import Array


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
        plant: The plant.
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
