"""A plant's matrices traced and compiled, and the proof that they equal the plant's NumPy code.

Design: a plant counts as traced only if both agree at random states and with random parameters: a branch on the state
or a value fixed in `__post_init__` would otherwise give wrong numbers without a sign.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine import stored
from servoctl.engine.kernel import Kernel
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.structured import Sparse, entries_of
from servoctl.engine.trace import mismatch, trace
from servoctl.errors import TraceError
from servoctl.mechanics.passive import plant_arrays
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.sampled import METHODS, PlantSample
from servoctl.mechanics.symmetry import certainly_symmetric
from servoctl.types import Array

ROUND_OFF = 1e-5
"""Least scale of a row relative to the largest: with the tolerance of 1e-10, what is left of terms that cancel."""


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


def require_equal(compiled: CompiledPlant, parameters: Array, samples: Sequence[PlantSample]) -> None:
    """Raises TraceError unless the traced plant equals the NumPy plant at all samples.

    Args:
        compiled: The traced plant.
        parameters: All parameters of the model, the plant's first; each sample puts in those of its own plant.
        samples: The NumPy plant at states and with parameters.
    """
    pairs = []
    for at in samples:
        p, values = parameters.copy(), parameter_values(at.plant)
        p[: len(values)] = values
        for form, found in zip(compiled.structures, (at.arrays[0], at.arrays[2]), strict=True):
            if isinstance(found, Sparse) and not (isinstance(form, Sparse) and found.same_places(form)):
                raise TraceError(f"{type(at.plant).__name__}: the structure of M or B depends on the state")
        pairs.append((at, compiled.kernel(at.state.t, at.state.q, at.state.v, p)))
    for i, (name, scale) in enumerate(zip(METHODS, _scales([at.arrays for at in samples]), strict=True)):
        for at, actual in pairs:
            state, expected = at.state, entries_of(at.arrays[i])
            difference = mismatch(expected, actual[i], scale)
            if difference is not None:
                raise TraceError(
                    f"{type(samples[0].plant).__name__}.{name}: symbols and NumPy differ by {difference:.1e} relative "
                    f"at q={np.round(state.q, 3)} (a branch on the state, or a value fixed in __post_init__?)"
                )


def _scales(samples: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What each entry of M, Q, B and c is compared relative to: the largest one of its row over the samples.

    Of Q and c also the row of M, that is the force of a unit acceleration, because terms that cancel leave round-off;
    and never less than `ROUND_OFF` of the whole array.
    """
    scales = [np.max([_row_sizes(arrays[i]) for arrays in samples], axis=0) for i in range(len(METHODS))]
    M, Q, B, c = (np.maximum(each, ROUND_OFF * each.max(initial=0.0)) for each in scales)
    forms, force = samples[0], np.maximum(np.maximum(Q, c), M)
    sizes = [_by_entry(forms[0], M), force, _by_entry(forms[2], B), force]
    return [np.where(each > 0.0, each, 1.0) for each in sizes]


def _row_sizes(matrix: Any) -> Array:
    """The largest finite magnitude in each row of a matrix, or each entry of a vector."""
    if isinstance(matrix, Sparse):
        largest = np.zeros(matrix.shape[0])
        np.maximum.at(largest, matrix.rows, _finite(matrix.values))
        return largest
    sizes = _finite(matrix)
    return sizes if sizes.ndim == 1 else np.asarray(sizes.max(axis=1, initial=0.0))


def _by_entry(matrix: Any, of_rows: Array) -> Array:
    """The number of its row for each of a matrix's `entries_of`, in a shape that broadcasts with them."""
    sizes: Array = of_rows[matrix.rows] if isinstance(matrix, Sparse) else of_rows[:, None]
    return sizes


def _finite(values: Any) -> Array:
    """Magnitudes; 0 for what is not finite."""
    sizes: Array = np.nan_to_num(np.abs(np.asarray(values, dtype=float)), nan=0.0, posinf=0.0)
    return sizes
