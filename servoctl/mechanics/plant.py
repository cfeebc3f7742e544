"""The physics of a machine: `M(q,t) q'' = Q(q,v,t) + Qc + B(q,t) u`.

Design: a plant is a frozen dataclass whose methods are plain NumPy. Its `float` and `tuple[float, ...]` fields are
parameters: compiled code takes them as inputs. Its `int`, `str` and `bool` fields and the lengths of its tuples are
structural. Methods are pure, so the engine can run them on numbers or on symbols.

Source: Liu et al. 2015, (11)-(14) for Qc, the force of the plant's own constraints.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from servoctl.engine.kernel import Kernel, inputs, jacobian
from servoctl.engine.parameters import SameStructure, derived, parameter_values, with_parameters
from servoctl.engine.structured import Diagonal as Diagonal
from servoctl.engine.trace import trace
from servoctl.errors import PlantError, TraceError
from servoctl.types import Array


def dual_actuation(plant: Any, q: Array) -> Array:
    """B(q), shape (n, m): the transposed Jacobian of the plant's `motor_positions`, on numbers or symbols.

    A cylinder, a rope or a belt is one line of geometry. The derivative is exact, and compiled once per structure.

    Raises:
        PlantError: `motor_positions` cannot be traced, or does not give one displacement per actuator.
    """
    return _kernel(SameStructure(plant))(q, parameter_values(plant))[0]


@derived
def _kernel(key: SameStructure) -> Kernel:
    plant = key.thing
    name, m = f"{type(plant).__name__}.motor_positions", len(plant.actuators)
    symbols = inputs({"q": (len(plant.coordinates),), "p": (len(parameter_values(plant)),)})
    try:
        rho = trace(with_parameters(plant, symbols["p"]).motor_positions, symbols["q"])
    except TraceError as error:
        raise PlantError(f"{name}: {error} (write actuation(q, t), the transposed Jacobian of it)") from error
    rho = np.atleast_1d(np.asarray(rho, dtype=object))
    if rho.shape != (m,):
        raise PlantError(f"{name}: expected shape {(m,)}, one displacement per actuator, got {rho.shape}")
    return Kernel.compile("actuation", symbols, {"B": jacobian(rho, symbols["q"]).T})


class Plant(ABC):
    """A mechanism in minimal or redundant coordinates; subclass it with `@dataclass(frozen=True)`.

    In all methods `q` [units of `coordinates`] and `v` [those units per s] have shape (n,), and `t` is the time [s].
    """

    @property
    @abstractmethod
    def coordinates(self) -> Mapping[str, str]:
        """Name -> unit of each generalized coordinate, in order. A class attribute is enough."""

    @property
    @abstractmethod
    def actuators(self) -> Mapping[str, str]:
        """Name -> unit of each control input, in order; `{}` for a plant without actuators."""

    @abstractmethod
    def mass_matrix(self, q: Array, t: float) -> Array | Diagonal:
        """M(q, t), shape (n, n), symmetric and positive definite: an array, or of structure `Diagonal`.

        It may be singular where the mechanism constraints complete it; see `mechanics.terms`.
        """

    @abstractmethod
    def force(self, q: Array, v: Array, t: float) -> Array:
        """Q(q, v, t), shape (n,): gravity, Coriolis forces, springs and all other given forces, on the right side."""

    def right_hand_side(self, q: Array, v: Array, t: float) -> Array:
        """All of Q(q, v, t), shape (n,): `force`, plus what a class derives from energies."""
        return self.force(q, v, t)

    def actuation(self, q: Array, t: float) -> Array | Diagonal | None:
        """B(q, t), shape (n, m): the inputs u exert the generalized force `B u`; None: B = I, where m = n.

        It may be left out where `motor_positions` is given: B is then the transposed Jacobian of the displacements.

        Raises:
            NotImplementedError: The plant has actuators, and overrides neither this method nor `motor_positions`.
        """
        if not self.actuators:
            return np.zeros((len(self.coordinates), 0))
        if type(self).motor_positions is Plant.motor_positions:
            raise NotImplementedError(
                f"{type(self).__name__}.actuation: missing, though there are actuators (write actuation, or "
                "motor_positions: the displacement of each actuator)"
            )
        return dual_actuation(self, q)

    def motor_positions(self, q: Array) -> Array | None:
        """rho(q), shape (m,): the displacement conjugate to each actuator, `rho' = B^T q'`, up to a constant.

        None: `B^T q`, which holds where B is constant (see `mechanics.motors`). Override it where B is not constant, or
        in place of `actuation`.
        """
        return None

    def nonideal_force(self, q: Array, v: Array, t: float) -> Array | None:
        """c(q, v, t), shape (n,): the part of the mechanism constraint forces that does work; None: they are ideal.

        Source: Udwadia, Kalaba 2001; Liu et al. 2015, (12).
        """
        return None

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        """Holonomic mechanism constraints, name -> phi(q, t) = 0, scalar or vector. Each name is a group, in order.

        In place of phi there may be a `Constraint` whose `rows` gives A and b in closed form.
        """
        return {}

    def passive_rates(self, q: Array, v: Array, t: float) -> dict[str, Array]:
        """Nonholonomic mechanism constraints, name -> psi(q, v, t) = 0, scalar or vector."""
        return {}

    def energy(self, q: Array, v: Array, t: float) -> float | None:
        """Mechanical energy [J], constant while no input acts; None: unknown, or not conserved."""
        return None

    def links(self, q: Array) -> dict[str, Array]:
        """The picture of the plant: name -> polyline [m], shape (points, 2 or 3)."""
        return {}
