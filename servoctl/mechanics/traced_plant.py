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
from servoctl.engine.symbol import is_symbolic
from servoctl.engine.trace import mismatch, trace
from servoctl.errors import TraceError
from servoctl.mechanics.passive import plant_arrays
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.sampled import METHODS, PlantSample
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
    """The matrices of a plant by one compiled function.

    Attributes:
        kernel: (t, q, v, p) -> M, Q, B, c.
        symmetric: Whether M is symmetric for certain.
        forms: M and B as `Sparse`: the places where an entry may not be zero.
        structures: In which structure `kernel` gives M and B; anything but a `Sparse`: an array.
    """

    kernel: Kernel
    symmetric: bool
    forms: list[Sparse]
    structures: tuple[Any, Any]


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
    for form in structures:
        if isinstance(form, Sparse):
            form.constant = not is_symbolic(form.values)
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
        M, Q, B, c = at.arrays
        for form, found in zip(compiled.structures, (M, B), strict=True):
            if isinstance(found, Sparse) and not (isinstance(form, Sparse) and found.same_places(form)):
                raise TraceError(f"{type(at.plant).__name__}: the structure of M or B depends on the state")
        expected = (entries_of(M), Q, entries_of(B), c)
        pairs.append((at.state, expected, compiled.kernel(at.state.t, at.state.q, at.state.v, p)))
    for i, (name, scale) in enumerate(zip(METHODS, _scales([expected for _, expected, _ in pairs]), strict=True)):
        for state, expected, actual in pairs:
            difference = mismatch(expected[i], actual[i], scale)
            if difference is not None:
                raise TraceError(
                    f"{type(samples[0].plant).__name__}.{name}: symbols and NumPy differ by {difference:.1e} relative "
                    f"at q={np.round(state.q, 3)} (a branch on the state, or a value fixed in __post_init__?)"
                )


def _scales(samples: list[tuple[Array, ...]]) -> list[float]:
    """Largest magnitude of each array, at least 1e-6 of that of all arrays: terms that cancel leave round-off."""
    sizes = [max(map(_largest, arrays)) for arrays in zip(*samples, strict=True)]
    return [max(size, 1e-6 * max(sizes)) or 1.0 for size in sizes]


def _largest(array: Array) -> float:
    values = np.abs(np.asarray(array, dtype=float))
    return float(np.max(values, where=np.isfinite(values), initial=0.0))
