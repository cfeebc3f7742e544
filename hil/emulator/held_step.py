"""One Runge-Kutta step of an open loop under held inputs, on buffers that are made once."""

from collections.abc import Callable

import casadi as ca
import numpy as np

from servoctl.closed_loop import CompiledLoop, System, make_loop, rk4
from servoctl.engine.kernel import Kernel
from servoctl.engine.quick import run_fast
from servoctl.errors import CompileError
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

Step = Callable[[float, Array, float, Array], Array]
"""(t, x, h, u) -> x after h."""


def open_loop(system: System, start: State) -> System:
    """The plant of a system without task and law."""
    return System(Model(system.model.plain.plant, {}, start), None, {}, system.passive)


def held_step(system: System, engine: str = "auto") -> tuple[Step, str]:
    """A step, and the engine that it runs on.

    Args:
        system: Without law.
        engine: `auto`: C where there is a compiler; `c`, `vm` or `numpy`.

    Raises:
        CompileError: C is asked for and cannot be had.
    """
    loop = make_loop(system, "numpy" if engine == "numpy" else "auto")
    if isinstance(loop, CompiledLoop):
        return _compiled(loop, engine)
    more = np.zeros(loop.layout.command_size - system.model.m)

    def numeric(t: float, x: Array, h: float, u: Array) -> Array:
        command = np.concatenate([u, more])
        following: Array = rk4(lambda s, y: loop.motion(s, y, command)[0], t, x, h)
        return following

    return numeric, loop.engine


def _compiled(loop: CompiledLoop, engine: str) -> tuple[Step, str]:
    n, parameters = loop.size, loop.parameters
    sizes = {"times": 2, "x": n, "p": len(parameters), "u": loop.system.model.m}
    times, x, p, u = symbols = [ca.SX.sym(name, size) for name, size in sizes.items()]
    command = ca.vertcat(u, ca.SX.zeros(loop.layout.command_size - sizes["u"]))
    motion = loop.motion_kernel.only("plant_motion", "rates").called()
    following = rk4(lambda s, y: motion(s, y, p, command), times[0], x, times[1])
    function = ca.Function("plant_step", symbols, [ca.densify(following)])
    kernel = Kernel(function, {name: (size,) for name, size in sizes.items()}, {"x": (n,)})
    ran_on, why = run_fast(kernel, engine)
    if engine == "c" and ran_on != "c":
        raise CompileError(why)

    given: list[Array] = [np.zeros(size) for size in sizes.values()]
    moments, state, fixed, inputs = given
    result = np.zeros(n)
    fixed[:] = parameters
    evaluate = kernel.bound(given, [result])

    def step(t: float, x: Array, h: float, u: Array, kept: list[Array] = given) -> Array:
        moments[0], moments[1] = t, h
        state[:], inputs[:] = x, u
        evaluate()
        return result.copy()

    return step, ran_on
