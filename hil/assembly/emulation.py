"""The environment of a run; the emulated drives of a config and the simulated plant behind them, in virtual time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hil.assembly.settings import HilSettings, true_settings
from hil.assembly.setup import RigSetup
from hil.bus import Bus
from hil.bus.load import BusRates
from hil.calibration.hand import Motion, hand_motion
from hil.emulator.disturbances import HostFaults
from hil.emulator.emulator import EmulatedRig, Emulator
from hil.emulator.encoder import EncoderModel
from hil.emulator.fault_script import read_faults
from hil.emulator.faults import Fault
from hil.emulator.held_step import ActuatorOptions
from hil.emulator.motor import ThermalOptions
from hil.emulator.plant import SimulatedPlant
from hil.emulator.supply import SupplyOptions
from hil.emulator.twins import targets
from hil.loop import Clock, nanoseconds
from hil.loop.controller import Controller
from hil.protocols.registry import node_class, twins
from servoctl.assembly.make import make_run
from servoctl.config.hil import Emulation
from servoctl.errors import ConfigError, ServoctlError
from servoctl.mechanics.actuator_parameters import friction_of
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.system import System
from servoctl.types import Array


class TamperedController(Controller):
    """A controller whose commands are changed by scripted faults."""

    def __init__(self, loop: Loop, faults: HostFaults) -> None:
        super().__init__(loop)
        self._faults = faults

    @property
    def direct(self) -> bool:
        return not self._faults.tampers

    def command(self, task_time: float, q: Array, v: Array) -> Array:
        return self._faults.tamper(super().command(task_time, q, v))


@dataclass(frozen=True)
class Environment:
    """Buses and clock of a run."""

    buses: Mapping[str, Bus]  # name -> open bus
    clock: Clock  # clock of the run
    emulated: bool  # whether the drives are emulated
    lockstep: bool  # whether time is virtual
    truth: Callable[[], list[float]] | None = None  # returns the columns `true_*` now, in order; None: not known
    # returns whether the emulated drives are off, their brakes closed and the machine at rest
    settled: Callable[[], bool] = lambda: True
    facts: Callable[[], dict[str, Any]] = dict  # returns further entries of the summary; called at the end
    engaged: Callable[[], None] = lambda: None  # called once, when the task begins
    faults: HostFaults | None = None  # scripted faults of the loop itself; None: none
    # returns the largest lateness of an emulator in another process [s]; None: not known
    emulator_lateness: Callable[[], float | None] = lambda: None
    # called once, when a calibration begins, with its duration [s]: an emulated hand moves the machine
    guided: Callable[[float], None] = lambda duration: None


POWER_UP = 0.1  # [s] time for which the drives have been powered when the loop starts


def in_lockstep(setup: RigSetup, engine: str = "auto") -> Environment:
    """The environment of a run on emulated drives in virtual time."""
    return environment_of(setup, make_emulator(setup, engine))


def make_emulator(setup: RigSetup, engine: str = "auto", plant: SimulatedPlant | None = None) -> Emulator:
    """The emulated drives of a config on buses of their own, with the scripted faults scheduled.

    Args:
        engine: Engine of the simulated plant.
        plant: The machine of an earlier run of the same config, which begins again; None: a new one is compiled.
    """
    rates = {name: BusRates.of(bus) for name, bus in setup.settings.buses.items()}
    return Emulator.build(emulated_rig(setup, engine), rates, plant)


def environment_of(setup: RigSetup, emulator: Emulator) -> Environment:
    """The environment of a run on these emulated drives; lets them power up first."""
    emulator.clock.sleep_until(nanoseconds(POWER_UP))

    def facts() -> dict[str, Any]:
        reports = emulator.observer.report()
        loads = {name: wire.load() for name, wire in emulator.wires.items()}
        return {
            "observer": [str(each) for each in reports[:100]],
            "emulator": {"seed": setup.seed, "bus_load": loads, "diverged": emulator.plant.diverged},
        }

    def guided(duration: float) -> None:
        emulator.plant.guide(hand_of(setup, duration), emulator.clock.now())

    return Environment(
        emulator.buses, emulator.clock, emulated=True, lockstep=True, truth=emulator.truth,
        settled=emulator.settled, facts=facts, engaged=emulator.engaged, faults=emulator.host_faults, guided=guided,
    )  # fmt: skip


def hand_of(setup: RigSetup, duration: float) -> Motion:
    """A hand that moves every axis of the machine in a time [s]."""
    drives = setup.settings.drives
    limits, stops = [drive.position_limits for drive in drives], [drive.stops for drive in drives]
    return hand_motion(setup.loop.system.model.plain, setup.sensing.displacements, setup.start, limits, duration, stops)


def emulated_rig(setup: RigSetup, engine: str = "auto") -> EmulatedRig:
    """The machine, the drives and the scripted faults of a config.

    Raises:
        ConfigError: The plant refuses the parameters of `hil.emulation`.
    """
    settings, values = setup.settings, setup.settings.values.emulation
    actuator = ActuatorOptions(lag=values.current_lag, coulomb=values.coulomb_friction, viscous=values.viscous_friction)
    drives = [true_settings(drive, settings.values) for drive in settings.drives]
    sensors = [true_settings(sensor, settings.values) for sensor in settings.sensors]
    nodes = [node_class(node)(node, settings.values.period) for node in (*drives, *sensors)]
    return EmulatedRig(
        simulated_system(setup),
        setup.start,
        settings.values.period,
        drives,
        twins((*drives, *sensors)),
        sensors,
        actuators={drive.name: actuator for drive in settings.drives},
        brake_time=values.brake_time,
        brake_torque=values.brake_torque,
        encoders={node.settings.name: _encoder(values, node.quantum()[0] * node.settings.gear) for node in nodes},
        configured=settings.drives,
        supply=None if values.supply is None else SupplyOptions(**values.supply.model_dump()),
        thermal=ThermalOptions(**values.thermal.model_dump(exclude_none=True)),
        faults=scripted_faults(settings),
        seed=setup.seed,
        engine=engine,
    )


def scripted_faults(settings: HilSettings) -> list[Fault]:
    """The fault script of a config, which `hil_settings` has checked."""
    rig = (*settings.drives, *settings.sensors)
    nodes = targets(rig, twins(rig))
    fd_buses = [name for name, keys in settings.buses.items() if keys.get("fd")]
    return read_faults(settings.values.faults, nodes, settings.buses, fd_buses)[0]


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
