"""Functions of a robot that run on numbers through a compiled copy of themselves.

Design: the recursions are written for scalars, which costs Python milliseconds at each state. On numbers the same
function, traced once for each structure of a robot, runs on CasADi's virtual machine in microseconds. A kernel has
buffers of its own, so each thread has its own kernels.
"""

import functools
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from servoctl.engine import stored
from servoctl.engine.fingerprint import fingerprint, structure_fingerprint
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.parameters import parameter_values, structure, with_parameters
from servoctl.engine.symbol import is_symbolic
from servoctl.types import Array

KEPT = 64  # number of compiled functions that are kept


def fast_on_numbers(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function (robot, vectors of n scalars) -> array, on symbols as it is, on numbers compiled."""

    @functools.wraps(function)
    def evaluate(robot: Any, *vectors: Array) -> Array:
        known = getattr(_latest, "known", None)
        if known is None or known.robot is not robot:
            known = _latest.known = KnownRobot(robot)
        if known.symbolic or is_symbolic(*vectors):
            return function(robot, *vectors)
        kernel = known.kernels.get(function)
        if kernel is None:
            key = Traced(function, len(vectors), threading.get_ident(), structure(robot), known)
            kernel = known.kernels[function] = _kernel(key)
        result: Array = kernel(*(np.asarray(vector, dtype=float) for vector in vectors), known.p)[0]
        return result

    return evaluate


class KnownRobot:
    """What is read from a robot once, because robots do not change.

    Attributes:
        robot: The robot.
        p: Its parameters.
        symbolic: Whether they are symbols.
        kernels: Function -> its compiled copy.
    """

    def __init__(self, robot: Any) -> None:
        self.robot, self.p = robot, parameter_values(robot)
        self.symbolic = is_symbolic(self.p)
        self.kernels: dict[Callable[..., Array], Kernel] = {}

    @functools.cached_property
    def fingerprint(self) -> str:
        """`structure_fingerprint` of the robot, which takes milliseconds."""
        return structure_fingerprint(self.robot)


_latest = threading.local()  # the `KnownRobot` that a thread evaluated last


@dataclass(frozen=True)
class Traced:
    """What a compiled function depends on: everything but the robot's parameters."""

    function: Callable[..., Array]
    vectors: int
    thread: int
    structure: Hashable
    known: KnownRobot = field(compare=False)  # a robot of this structure


@functools.lru_cache(maxsize=KEPT)
def _kernel(key: Traced) -> Kernel:
    place = stored.key_of(lambda: fingerprint(key.vectors), lambda: key.known.fingerprint)
    return stored.kept_kernel(place, f"{key.function.__module__}.{key.function.__name__}", lambda: _traced(key))


def _traced(key: Traced) -> Kernel:
    robot = key.known.robot
    n, p = len(robot.coordinates), len(key.known.p)
    given = inputs({f"x{i}": (n,) for i in range(key.vectors)} | {"p": (p,)})
    *vectors, parameters = given.values()
    result = key.function(with_parameters(robot, parameters), *vectors)
    return Kernel.compile(key.function.__name__, given, {"result": np.asarray(result)})
