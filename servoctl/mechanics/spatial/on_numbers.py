"""Functions of a robot that run on numbers through a compiled copy of themselves.

Design: the recursions are written for scalars, which costs Python milliseconds at each state. On numbers the same
function, traced once for each structure of a robot, runs on CasADi's virtual machine in microseconds.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from servoctl.engine import stored
from servoctl.engine.fingerprint import fingerprint, structure_fingerprint
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.parameters import SameStructure, parameter_values, with_parameters
from servoctl.engine.symbol import is_symbolic
from servoctl.types import Array

KEPT = 64  # number of compiled functions that are kept


class KnownRobot:
    """What is read from a robot once, because robots do not change."""

    def __init__(self, robot: Any) -> None:
        self._robot = robot
        self.p = parameter_values(robot)
        self.symbolic = is_symbolic(self.p)
        self.kernels: dict[Callable[..., Array], Kernel] = {}  # function -> its compiled copy

    @functools.cached_property
    def fingerprint(self) -> str:
        """`structure_fingerprint` of the robot, which takes milliseconds."""
        return structure_fingerprint(self._robot)


def fast_on_numbers(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function (robot, vectors of n scalars) -> array, on symbols as it is, on numbers compiled."""

    @functools.wraps(function)
    def evaluate(robot: Any, *vectors: Array) -> Array:
        known: KnownRobot = robot.known
        if known.symbolic or is_symbolic(*vectors):
            return function(robot, *vectors)
        kernel = known.kernels.get(function)
        if kernel is None:
            kernel = known.kernels[function] = _kernel(function, len(vectors), SameStructure(robot))
        result: Array = kernel(*(np.asarray(vector, dtype=float) for vector in vectors), known.p)[0]
        return result

    return evaluate


@functools.lru_cache(maxsize=KEPT)
def _kernel(function: Callable[..., Array], vectors: int, key: SameStructure) -> Kernel:
    robot = key.thing
    place = stored.key_of(lambda: fingerprint(vectors), lambda: robot.known.fingerprint)

    def traced() -> Kernel:
        n, p = len(robot.coordinates), len(robot.known.p)
        given = inputs({f"x{i}": (n,) for i in range(vectors)} | {"p": (p,)})
        *x, parameters = given.values()
        result = function(with_parameters(robot, parameters), *x)
        return Kernel.compile(function.__name__, given, {"result": np.asarray(result)})

    return stored.kept_kernel(place, f"{function.__module__}.{function.__name__}", traced)
