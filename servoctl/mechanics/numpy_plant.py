"""A plant's own NumPy code as an operation of compiled functions: for plants that cannot be traced, or on request."""

from collections.abc import Mapping
from typing import Any

from servoctl.engine.numpy_call import NumpyCall
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.products import called
from servoctl.engine.structured import Sparse
from servoctl.mechanics import plant_values
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

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
