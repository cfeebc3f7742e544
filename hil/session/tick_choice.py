"""Whether the ordinary ticks of a run are done in C or in Python."""

from collections.abc import Callable

from hil.assembly.prepare import RigSetup
from hil.loop import Controller
from hil.safety.limits import Limits
from hil.safety.stages import Stages
from hil.tick.machine import Machine
from hil.tick.rig import TickRig
from hil.tick.tables import wires_of
from servoctl.errors import CompileError, ConfigError

ON_VM = "the law or the sensing does not run in C"


def tick_in_c(
    rig: TickRig,
    setup: RigSetup,
    controller: Controller,
    stages: Stages,
    limits: Limits,
    record: Callable[[memoryview], None],
) -> str:
    """Lets ordinary ticks run in C if the config and the machine allow it; returns what does them, in words.

    Raises:
        ConfigError: `hil.tick: c` cannot be had.
    """
    values = setup.settings.values
    if values.tick == "python":
        return "Python, as the config says"
    nodes = (*setup.drives, *setup.sensors)
    wires, why = wires_of(nodes)
    why = why or _obstacle(setup, controller)
    if not why:
        try:
            law = setup.loop.system.law
            machine = Machine(
                setup.drives, nodes, wires, {name: i for i, name in enumerate(setup.settings.buses)}, setup.sensing,
                setup.prediction, controller, setup.bounds, values.prediction,
                frozenset() if law is None else law.stops_on,
            )  # fmt: skip
        except CompileError as error:
            why = str(error)
    if why and values.tick == "c":
        raise ConfigError(f"hil.tick: c: {why} (use auto or python)")
    if why:
        return f"Python, because {why}"
    rig.run_in_c(machine, wires, stages, limits, record)
    return "C" if rig.sockets is None else "C, sockets included"


def _obstacle(setup: RigSetup, controller: Controller) -> str:
    """Why C cannot do the ticks of a config; empty if it can."""
    sensing = setup.sensing
    if sensing.filtered:
        return "speeds are filtered from positions"
    if sensing.displacements.rows is None:
        return "the directions of the motors depend on the pose"
    calls = setup.prediction.call, sensing.coordinates.call, controller.tick.evaluate
    return "" if all(getattr(call, "entry", None) is not None for call in calls) else ON_VM
