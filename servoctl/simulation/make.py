"""Which executor serves a closed loop."""

from servoctl.errors import TraceError
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.numpy_loop import NumpyLoop
from servoctl.simulation.system import System
from servoctl.simulation.traced import CompiledLoop, OpaqueLoop

UNROLLED_ROWS = 20
"""Above this many rows symbols are not unrolled: at 20 tracing takes 1 s, at 32 5 s for no gain over LAPACK."""

UNROLLED_COORDINATES = 30
"""Above this many coordinates likewise: at 30 tracing takes 3 s, for a third of the time (`servoctl bench scaling`)."""


def make_loop(system: System, engine: str = "auto") -> Loop:
    """The loop on the engine asked for, or on the fastest that serves.

    Args:
        system: Plant, law and constraints.
        engine: `auto`, `c`, `vm` or `numpy`; C starts on the VM, which `CompiledLoop.run_on` leaves.

    Raises:
        TraceError: `vm` is asked for and the law cannot be traced.
    """
    model = system.model
    if engine == "numpy":
        return NumpyLoop(system)
    size = max(len(model.task_rows), len(model.passive_rows))
    if engine != "vm" and (size > UNROLLED_ROWS or model.n > UNROLLED_COORDINATES):
        loop: Loop = NumpyLoop(system, compiled_plant=model.opaque is None)
        loop.note = f"{model.n} coordinates, {size} rows: linear algebra by LAPACK"
        if model.opaque is not None:
            loop.note += f", the plant in NumPy: {model.opaque}"
        return loop
    try:
        loop = CompiledLoop(system) if model.opaque is None else OpaqueLoop(system)
    except TraceError as error:
        if engine == "vm":
            raise
        loop = NumpyLoop(system, compiled_plant=model.opaque is None)
        loop.note = f"the law runs in NumPy, it cannot be compiled: {error}"
        return loop
    if model.opaque is not None:
        loop.note = f"the plant runs in NumPy, only the law is compiled: {model.opaque}"
    return loop
