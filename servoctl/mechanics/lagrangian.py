"""Plants from energies: `M` and `Q` by automatic differentiation of the Lagrangian.

d/dt dT/dv - dT/dq + dV/dq + dR/dv = F
M = T_vv,   Q = F - R_v - V_q + T_q - (T_vq v + T_vt)
"""

from abc import abstractmethod
from typing import Any

import numpy as np

from servoctl.engine.kernel import Kernel, directional, inputs, jacobian
from servoctl.engine.parameters import SameStructure, derived, parameter_values, with_parameters
from servoctl.engine.trace import trace
from servoctl.errors import PlantError
from servoctl.mechanics.plant import Plant
from servoctl.types import Array

NOT_CONSERVATIVE = ("dissipation", "force", "nonideal_force")  # methods whose forces change T + V


class LagrangianPlant(Plant):
    """A plant defined by its energies; subclass it with `@dataclass(frozen=True)`.

    The energies are plain NumPy and must be traceable, because they are differentiated on symbols.
    """

    @abstractmethod
    def kinetic_energy(self, q: Array, v: Array, t: float) -> Any:
        """T [J], quadratic in v (lower terms in v are allowed)."""

    def potential_energy(self, q: Array, t: float) -> Any:
        """V [J]."""
        return 0.0

    def dissipation(self, q: Array, v: Array, t: float) -> Any:
        """Rayleigh's function R [W]: its force is -dR/dv, which dissipates 2 R if R is quadratic in v."""
        return 0.0

    def force(self, q: Array, v: Array, t: float) -> Array:
        """F, shape (n,): generalized forces without a potential; zero unless overridden."""
        return np.zeros(len(self.coordinates))

    def mass_matrix(self, q: Array, t: float) -> Array:
        """M = T_vv, shape (n, n)."""
        return _kernel(SameStructure(self))(t, q, np.zeros(len(q)), parameter_values(self))[0]

    def right_hand_side(self, q: Array, v: Array, t: float) -> Array:
        """Q = F - R_v - V_q + T_q - T_vq v - T_vt, shape (n,)."""
        return _kernel(SameStructure(self))(t, q, v, parameter_values(self))[1]

    def energy(self, q: Array, v: Array, t: float) -> Any:
        """T + V [J]; None if the class overrides a method below, because T + V is then not constant."""
        if any(getattr(type(self), name) is not getattr(LagrangianPlant, name) for name in NOT_CONSERVATIVE):
            return None
        return self.kinetic_energy(q, v, t) + self.potential_energy(q, t)


@derived
def _kernel(key: SameStructure) -> Kernel:
    n = len(key.thing.coordinates)
    count = len(parameter_values(key.thing))
    symbols = inputs({"t": (1,), "q": (n,), "v": (n,), "p": (count,)})
    t, q, v = symbols["t"], symbols["q"], symbols["v"]
    plant = with_parameters(key.thing, symbols["p"])

    def scalar(value: Any) -> Array:
        return np.array([value], dtype=object)

    kinetic = scalar(trace(plant.kinetic_energy, q, v, t[0]))
    potential = scalar(trace(plant.potential_energy, q, t[0]))
    dissipation = scalar(trace(plant.dissipation, q, v, t[0]))
    applied = np.asarray(trace(plant.force, q, v, t[0]), dtype=object)
    momentum = jacobian(kinetic, v)[0]
    M = jacobian(momentum, v)
    Q = (
        applied
        - jacobian(dissipation, v)[0]
        - jacobian(potential, q)[0]
        + jacobian(kinetic, q)[0]
        - directional(momentum, q, v)
        - jacobian(momentum, t)[:, 0]
    )
    kernel = Kernel.compile("lagrange", symbols, {"M": M, "Q": Q})
    _check_quadratic(key.thing, kernel)
    return kernel


def _check_quadratic(plant: LagrangianPlant, kernel: Kernel) -> None:
    """Raises PlantError if T_vv depends on v, because M(q, t) cannot represent that."""
    random = np.random.default_rng(0)
    n, p = len(plant.coordinates), parameter_values(plant)
    for _ in range(3):
        t, q = random.random(), random.standard_normal(n)
        still, moving = (kernel(t, q, v, p)[0] for v in (np.zeros(n), random.standard_normal(n)))
        if np.isfinite([still, moving]).all() and not np.allclose(still, moving, rtol=1e-9, atol=1e-12):
            raise PlantError(
                f"{type(plant).__name__}.kinetic_energy: not quadratic in v, T_vv changes with it "
                "(move terms that are not kinetic energy to dissipation or force)"
            )
