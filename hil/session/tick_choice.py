"""Whether the ordinary ticks of a run are done in C or in Python."""

from collections.abc import Callable

from hil.assembly.prepare import RigSetup
from hil.loop.controller import Controller
from hil.safety.limits import Limits
from hil.safety.stages import Stages
from hil.tick.machine import CompiledTick
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
    machine, why = machine_of(setup, controller)
    if why and values.tick == "c":
        raise ConfigError(f"hil.tick: c: {why} (use auto or python)")
    if machine is None:
        return f"Python, because {why}"
    rig.run_in_c(machine, stages, limits, record)
    return "C" if rig.sockets is None else "C, sockets included"


def machine_of(setup: RigSetup, controller: Controller) -> tuple[CompiledTick | None, str]:
    """Tables and state of the tick in C, or None and why C cannot do the ticks of a config."""
    nodes = (*setup.drives, *setup.sensors)
    wires, why = wires_of(nodes)
    why = why or _obstacle(setup, controller)
    if why:
        return None, why
    law, buses = setup.loop.system.law, {name: i for i, name in enumerate(setup.settings.buses)}
    stops_on = frozenset[int]() if law is None else law.stops_on
    try:
        machine = CompiledTick(
            setup.drives, nodes, wires, buses, setup.sensing, setup.prediction, controller, setup.bounds.period,
            setup.rules, setup.settings.values.prediction, stops_on,
        )  # fmt: skip
    except CompileError as error:
        return None, str(error)
    return machine, ""


def _obstacle(setup: RigSetup, controller: Controller) -> str:
    """Why C cannot do the ticks of a config; empty if it can."""
    sensing = setup.sensing
    if sensing.filtered:
        return "speeds are filtered from positions"
    if sensing.displacements.rows is None:
        return "the directions of the motors depend on the pose"
    calls = setup.prediction.call, sensing.coordinates.call, controller.tick.evaluate
    return "" if all(getattr(call, "entry", None) is not None for call in calls) else ON_VM
