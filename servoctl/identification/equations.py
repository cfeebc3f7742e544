"""The equations of motion as residuals, and their derivative in the unknowns.

    r(x) = M q'' - Q - c + B f - B u,      f = Fc tanh(s / s0) + Fv s,   s = B^T v
    Y    = dr/dx
    P r  = 0,   P = 1 - Ahat^+ Ahat        the passive constraints exert Ahat^T lambda, which P removes

Design: P is a projector on the coordinates and not a basis of the null space, because it is a smooth function of time,
so that rows can be filtered after it. The rows of a closed chain stay consistent however many motors it has.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.kernel import Kernel, inputs, jacobian
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.identification.unknowns import Unknowns, differentiable
from servoctl.mechanics.friction import friction_loss
from servoctl.types import Array, State

RANK_TOLERANCE = 1e-6  # smallest singular value of independent passive rows, relative to the largest
BLOCK = 2048  # rows evaluated in one call


@dataclass(frozen=True)
class Motion:
    """A motion."""

    t: Array  # times [s], shape (rows,)
    # q, v, a: coordinates and their derivatives, shape (rows, n)
    q: Array
    v: Array
    a: Array
    rubbing: Array  # velocities for the friction, shape (rows, n)

    def __len__(self) -> int:
        return len(self.t)

    def at(self, rows: slice | Array) -> "Motion":
        """The motion at some rows."""
        return Motion(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True)
class Evaluated:
    """The equations along a motion."""

    residual: Array  # P r where no torque acts, shape (rows, n); torques u add -P B u
    regressor: Array  # P Y, shape (rows, n, unknowns)
    actuation: Array  # P B, shape (rows, n, m)


class Equations:
    """The equations of motion of a plant with unknown parameters."""

    def __init__(self, unknowns: Unknowns) -> None:
        """Traces and differentiates the plant.

        Raises:
            PlantError: The plant's code cannot be traced.
        """
        # unknowns: what is unknown
        self.unknowns, plant = unknowns, unknowns.plant
        self.n, self.m = len(plant.coordinates), len(plant.actuators)
        self._p, count = parameter_values(plant), len(unknowns.names)
        n = self.n
        symbols = inputs({"t": (1,), "q": (n,), "v": (n,), "a": (n,), "rubbing": (n,), "x": (count,)})
        t, q, v, a, rubbing, x = symbols.values()
        bound = with_parameters(plant, unknowns.parameters(self._p, x))
        found = differentiable(bound, State(t[0], q, v))
        friction, loss = unknowns.friction(x), np.zeros(self.m)
        if self.m:
            loss = friction_loss(found.B.T @ rubbing, friction["coulomb"], friction["viscous"], unknowns.speed)
        residual = np.asarray(found.M @ a - found.Q - found.c + found.B @ loss, dtype=object)
        outputs = {"r": residual, "Y": jacobian(residual, x), "B": found.B, "A": found.passive.A}
        self._kernel = Kernel.compile("equations", symbols, outputs)
        self.freedom = self.n  # degrees of freedom that the passive constraints leave at the first row evaluated

    def along(self, motion: Motion, x: Array) -> Evaluated:
        """Residual and regressor along a motion, at values of the unknowns."""
        parts = [self._block(motion, x, slice(i, i + BLOCK)) for i in range(0, len(motion), BLOCK)]
        return Evaluated(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _block(self, motion: Motion, x: Array, rows: slice) -> tuple[Array, Array, Array]:
        part = motion.at(rows)
        count = len(part)
        given: list[Any] = [np.ascontiguousarray(array, dtype=float) for array in vars(part).values()]
        given.append(np.tile(x, (count, 1)))
        # one after the other in column order, as CasADi has them: the last axis is the first of each matrix
        results = [np.zeros((count, *shape[::-1])) for shape in self._kernel.outputs.values()]
        buffer, evaluate = self._mapped(count).buffer()
        puts: list[Any] = [buffer.set_arg, buffer.set_res]
        for put, arrays in zip(puts, (given, results), strict=True):
            for index, array in enumerate(arrays):
                if array.size:
                    put(index, memoryview(array.ravel()))
        evaluate()
        r, Y, B, A = (array if array.ndim == 2 else array.transpose(0, 2, 1) for array in results)
        if A.shape[1] and np.isfinite(A).all():
            P = np.eye(self.n) - np.linalg.pinv(A, rcond=RANK_TOLERANCE) @ A
            self.freedom = round(float(np.trace(P[0])))
            return np.einsum("kij,kj->ki", P, r), P @ Y, P @ B
        return r, Y, B

    def _mapped(self, count: int) -> ca.Function:
        if count not in self._maps:
            self._maps[count] = self._kernel.function.map(count)
        return self._maps[count]

    @cached_property
    def _maps(self) -> dict[int, ca.Function]:
        return {}
