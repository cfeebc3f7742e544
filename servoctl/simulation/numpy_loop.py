"""The executor in NumPy, for plants and laws that cannot be compiled or are large."""

import numpy as np

from servoctl.mechanics.terms import Matrices, Terms
from servoctl.simulation import estimated
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.estimated import NumericPlant
from servoctl.simulation.mean_bounds import foreseeing, with_mean_bounds
from servoctl.simulation.system import System
from servoctl.types import Array, State


class NumpyLoop(Loop):
    """Evaluates in NumPy and LAPACK.

    Args:
        system: Plant and law.
        compiled_plant: Whether the plant's matrices come from its compiled functions.
    """

    engine = "numpy"

    def __init__(self, system: System, compiled_plant: bool = False) -> None:
        super().__init__(system)
        self._compiled_plant = compiled_plant

    def _matrices(self, state: State) -> Matrices:
        model = self.system.model
        return model.compiled_matrices(state) if self._compiled_plant else model.matrices(state)

    def _terms(self, state: State) -> Terms:
        self.evaluations += 1
        with np.errstate(all="ignore"):
            terms: Terms = self.system.terms(state, self._matrices(state))
            return terms

    def closing(self, t: float, x: Array) -> tuple[Array, Array]:
        return self._closing(self._terms(self.split(t, x)[0]), self.system)

    def control(self, t: float, x: Array) -> Array:
        state, memory = self.split(t, x)
        if self.system.estimator is not None:
            plant = NumericPlant(self.system, self._matrices)
            with np.errstate(all="ignore"):
                return estimated.control(t, x, self.system, plant, self._law).astype(float)
        terms = self._terms(state)
        if foreseeing(self.system) and terms.finite is not False:
            with np.errstate(all="ignore"):
                terms = with_mean_bounds(terms, memory, self.system, self._matrices)
        return self._control(terms, memory, self.system).astype(float)

    def _law(self, state: State, d: Array, memory: Array) -> Array:
        """The law's part of a row at an estimated state."""
        terms = estimated.disturbed(self._terms(state), d)
        if foreseeing(self.system) and terms.finite is not False:
            terms = with_mean_bounds(terms, memory, self.system, self._matrices, d)
        return self._control(terms, memory, self.system)

    def motion(self, t: float, x: Array, command: Array) -> tuple[Array, Array]:
        state, _ = self.split(t, x)
        rates, log = self._motion(self._terms(state), command, self.system)
        return rates.astype(float), log.astype(float)

    def rates(self, t: float, x: Array) -> tuple[Array, Array]:
        state, memory = self.split(t, x)
        terms = self._terms(state)
        if self.system.estimator is None and not foreseeing(self.system):
            command = self._control(terms, memory, self.system).astype(float)
        else:
            command = self.control(t, x)
        rates, log = self._motion(terms, command, self.system)
        return rates.astype(float), np.concatenate([command, log]).astype(float)
