"""The published equations of constrained motion in plain NumPy, and the product's terms of the same matrices."""

import numpy as np
from scipy.linalg import sqrtm

from plants.coordinated_robots import CoordinatedRobots
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.terms import Matrices, Terms, assemble
from servoctl.types import Array, State


def fundamental_equation(M: Array, Q: Array, A: Array, b: Array, c: Array | None = None) -> Array:
    """q'' exactly as printed, with matrix square roots; c is the part of the constraint force that does work.

    M q'' = Q + Qc,   Qc = M^1/2 Bhat^+ (b - A M^-1 Q) + M^1/2 (I - Bhat^+ Bhat) M^-1/2 c,   Bhat = A M^-1/2

    Source: Udwadia, Kalaba 1992, 2001; Liu et al. 2015, (11)-(14); Xu, Liu 2017, (8) with the factor M^+1/2, (10).
    """
    root = np.real(sqrtm(M))
    inverse = np.linalg.inv(root)
    Bhat = A @ inverse
    plus = np.linalg.pinv(Bhat, rcond=1e-9)
    free = np.linalg.solve(M, Q)
    Qc = root @ plus @ (b - A @ free)
    if c is not None:
        Qc = Qc + root @ (np.eye(len(root)) - plus @ Bhat) @ inverse @ c
    return np.asarray(np.linalg.solve(M, Q + Qc))


def singular_mass_equation(M: Array, Q: Array, A: Array, b: Array) -> Array:
    """q'' = [(I - A^+ A) M; A]^+ [Q; b] for a singular mass matrix.

    Source: Udwadia, Phohomsiri 2006.
    """
    N = np.eye(len(M)) - (np.linalg.pinv(A, rcond=1e-9) @ A if A.size else 0.0)
    return np.asarray(np.linalg.pinv(np.vstack([N @ M, A]), rcond=1e-9) @ np.concatenate([Q, b]))


def terms_of(M: Array, Q: Array, A: Array, b: Array, c: Array | None = None, singular: bool = False) -> Terms:
    """The terms from which laws and simulations take the motion, without actuators."""
    n, r = M.shape[0], len(b)
    rows, nothing = Rows(A, b, np.zeros(r), np.zeros(r)), Rows(np.zeros((0, n)), np.zeros(0), np.zeros(0), np.zeros(0))
    c = np.zeros(n) if c is None else c
    matrices = Matrices(CoordinatedRobots(), M, Q, np.zeros((n, 0)), c, rows, nothing, nothing, singular=singular)
    return assemble(State(0.0, np.zeros(n), np.zeros(n)), matrices, 1e-10)
