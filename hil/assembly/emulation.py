"""A config's rig on emulated drives in lock-step, with the simulated plant behind them."""

from typing import Any

import numpy as np

from hil.assembly.environment import Environment
from hil.assembly.prepare import RigSetup
from hil.emulator.actuator import ActuatorOptions
from hil.emulator.emulator import BusOptions, EmulationOptions, Emulator
from hil.emulator.encoder import EncoderModel
from hil.emulator.faults import read_faults
from hil.emulator.targets import targets
from hil.loop import SECOND, nanoseconds
from servoctl.assembly.make import make_run
from servoctl.config.hil import Emulation
from servoctl.errors import ConfigError, ServoctlError
from servoctl.simulation.system import System
from servoctl.types import State

POWER_UP = 0.1
"""How long the drives have been powered when the loop comes [s]."""


def in_lockstep(prepared: RigSetup, engine: str = "auto") -> Environment:
    """Emulated drives, just powered on, and the buses to them."""
    return place_on(prepared, emulated(prepared, engine))


def emulated(prepared: RigSetup, engine: str = "auto") -> Emulator:
    """A config's emulated drives, on wires of their own, with the faults of the config to come."""
    settings = prepared.settings
    nodes = targets((*settings.drives, *settings.sensors))
    faults, _ = read_faults(settings.values.faults, nodes, settings.buses)
    return Emulator.build(
        simulated(prepared),
        prepared.start,
        settings.values.period,
        settings.drives,
        settings.sensors,
        {name: BusOptions(bitrate=bus["bitrate"]) for name, bus in settings.buses.items()},
        likeness(prepared, engine),
        faults,
    )


def place_on(prepared: RigSetup, emulator: Emulator) -> Environment:
    """Where a run is on emulated drives, once they have been powered for a while."""
    emulator.clock.sleep_until(nanoseconds(POWER_UP))

    def truth() -> State:
        q, v = emulator.state
        return State(emulator.clock.now() / SECOND, q, v)

    def facts() -> dict[str, Any]:
        seen = emulator.observer.report()
        loads = {name: wire.load() for name, wire in emulator.wires.items()}
        return {
            "observer": [str(each) for each in seen[:100]],
            "emulator": {"seed": prepared.seed, "bus_load": loads, "diverged": emulator.plant.diverged},
        }

    return Environment(
        emulator.buses, emulator.clock, emulated=True, lockstep=True, truth=truth, facts=facts,
        engaged=emulator.engaged, faults=emulator.host_faults,
    )  # fmt: skip


def likeness(prepared: RigSetup, engine: str = "auto") -> EmulationOptions:
    """What the emulated machine is like, as the config has it."""
    settings, values = prepared.settings, prepared.settings.values.emulation
    actuator = ActuatorOptions(lag=values.current_lag, coulomb=values.coulomb_friction, viscous=values.viscous_friction)
    nodes = (*prepared.drives, *prepared.sensors)
    return EmulationOptions(
        actuators={drive.name: actuator for drive in settings.drives},
        encoders={node.settings.name: _encoder(values, node.quantum()[0] * node.settings.gear) for node in nodes},
        seed=prepared.seed,
        engine=engine,
    )


def _encoder(values: Emulation, quantum: float) -> EncoderModel:
    resolution = quantum if values.encoder_resolution is None else values.encoder_resolution
    return EncoderModel(resolution=float(np.abs(resolution)), noise=values.encoder_noise)


def simulated(prepared: RigSetup) -> System:
    """The plant behind the drives: the model's, unless the config says where it differs.

    Raises:
        ConfigError: With what differs it is no machine.
    """
    differing = prepared.settings.values.emulation.parameters
    if not differing:
        return prepared.run.system
    assert prepared.run.loaded is not None
    written = [f"plant.parameters.{name}={value}" for name, value in differing.items()]
    try:
        return make_run(prepared.run.loaded.overridden(written), "vm", strict=False).system
    except ServoctlError as error:
        raise ConfigError(f"hil.emulation.parameters: {error}") from error
