"""Builds the emulated drives of a config and the simulated plant behind them, in virtual time."""

from typing import Any

import numpy as np

from hil.assembly.environment import Environment
from hil.assembly.prepare import RigSetup
from hil.emulator.actuator import ActuatorOptions
from hil.emulator.emulator import EmulationOptions, Emulator
from hil.emulator.encoder import EncoderModel
from hil.emulator.faults import read_faults
from hil.emulator.targets import targets
from hil.loop import SECOND, nanoseconds
from servoctl.assembly.make import make_run
from servoctl.config.hil import Emulation
from servoctl.errors import ConfigError, ServoctlError
from servoctl.mechanics.friction import friction_of
from servoctl.simulation.system import System
from servoctl.types import State

POWER_UP = 0.1
"""Time for which the drives have been powered when the loop starts [s]."""


def in_lockstep(setup: RigSetup, engine: str = "auto") -> Environment:
    """The environment of a run on emulated drives in virtual time."""
    return environment_of(setup, make_emulator(setup, engine))


def make_emulator(setup: RigSetup, engine: str = "auto") -> Emulator:
    """The emulated drives of a config on buses of their own, with the scripted faults scheduled."""
    settings = setup.settings
    nodes = targets((*settings.drives, *settings.sensors))
    faults, _ = read_faults(settings.values.faults, nodes, settings.buses)
    return Emulator.build(
        simulated_system(setup),
        setup.start,
        settings.values.period,
        settings.drives,
        settings.sensors,
        {name: bus["bitrate"] for name, bus in settings.buses.items()},
        emulation_options(setup, engine),
        faults,
    )


def environment_of(setup: RigSetup, emulator: Emulator) -> Environment:
    """The environment of a run on these emulated drives; lets them power up first."""
    emulator.clock.sleep_until(nanoseconds(POWER_UP))

    def truth() -> State:
        q, v = emulator.state
        return State(emulator.clock.now() / SECOND, q, v)

    def facts() -> dict[str, Any]:
        reports = emulator.observer.report()
        loads = {name: wire.load() for name, wire in emulator.wires.items()}
        return {
            "observer": [str(each) for each in reports[:100]],
            "emulator": {"seed": setup.seed, "bus_load": loads, "diverged": emulator.plant.diverged},
        }

    return Environment(
        emulator.buses, emulator.clock, emulated=True, lockstep=True, truth=truth, facts=facts,
        engaged=emulator.engaged, faults=emulator.host_faults,
    )  # fmt: skip


def emulation_options(setup: RigSetup, engine: str = "auto") -> EmulationOptions:
    """Actuators, encoders and noise of the emulated machine, from the config."""
    settings, values = setup.settings, setup.settings.values.emulation
    actuator = ActuatorOptions(lag=values.current_lag, coulomb=values.coulomb_friction, viscous=values.viscous_friction)
    nodes = (*setup.drives, *setup.sensors)
    return EmulationOptions(
        actuators={drive.name: actuator for drive in settings.drives},
        encoders={node.settings.name: _encoder(values, node.quantum()[0] * node.settings.gear) for node in nodes},
        seed=setup.seed,
        engine=engine,
    )


def _encoder(values: Emulation, quantum: float) -> EncoderModel:
    resolution = quantum if values.encoder_resolution is None else values.encoder_resolution
    return EncoderModel(resolution=float(np.abs(resolution)), noise=values.encoder_noise)


def simulated_system(setup: RigSetup) -> System:
    """The plant behind the drives: that of the model, with the parameters and the friction of `hil.emulation`.

    Raises:
        ConfigError: The plant refuses these parameters.
    """
    values = setup.settings.values.emulation
    overrides = [f"plant.parameters.{name}={value}" for name, value in values.parameters.items()]
    if friction_of(setup.run.system.model.plant) is not None and (values.coulomb_friction or values.viscous_friction):
        overrides.append("plant.friction=")  # the drives' friction is all that the machine has
    if not overrides:
        return setup.run.system
    assert setup.run.loaded is not None
    try:
        return make_run(setup.run.loaded.overridden(overrides), "vm", strict=False, waiting=True).system
    except ServoctlError as error:
        raise ConfigError(f"hil.emulation.parameters: {error}") from error
