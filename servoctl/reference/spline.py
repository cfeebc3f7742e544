"""Splines through the rows of a table.

Design: cubic splines are C2 and quintic ones C4. Without a period the two or four conditions that are left over make
the polynomial pieces next to each end the same polynomial (not-a-knot).
"""

from typing import Literal

import numpy as np

from servoctl.errors import ConfigError
from servoctl.reference.curve import Curve, Extrapolation
from servoctl.types import Array

Degree = Literal["cubic", "quintic"]
DEGREES: dict[str, int] = {"cubic": 3, "quintic": 5}  # kind of spline -> degree of its polynomials


def spline(times: Array, values: Array, kind: Degree = "cubic", extrapolate: Extrapolation = "hold") -> Curve:
    """The spline through rows.

    Args:
        times: Strictly increasing, shape (rows,) [s].
        values: Shape (rows, columns).
        kind: `cubic`, C2, or `quintic`, C4.
        extrapolate: With `periodic` first and last row are equal, and the spline is as smooth across the seam.

    Raises:
        ConfigError: There are too few rows.
    """
    from scipy.interpolate import make_interp_spline  # a third of a second: only who has a file pays it

    degree = DEGREES[kind]
    if len(times) <= degree:
        rows = "1 row" if len(times) == 1 else f"{len(times)} rows"
        raise ConfigError(f"{rows} (a {kind} spline needs at least {degree + 1})")
    since = times - times[0]  # times since 1970 would lose half their digits in the basis
    if extrapolate == "periodic":
        values = np.concatenate([values[:-1], values[:1]])
    basis = make_interp_spline(since, values, k=degree, bc_type="periodic" if extrapolate == "periodic" else None)
    taylor = [basis(since[:-1], nu=j) / factorial for j, factorial in enumerate(_factorials(degree))]
    coefficients = np.stack([values[:-1], *taylor[1:]], axis=-1)  # at the knots the curve has the rows to the bit
    return Curve(np.asarray(times, dtype=float), coefficients, degree - 1, extrapolate)


def _factorials(degree: int) -> Array:
    """0! ... degree!."""
    return np.cumprod([1.0, *range(1, degree + 1)])
