"""Emulated drives, their buses and the machine behind them, put together from plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hil.drives.settings import DriveSettings, SensorSettings
from hil.emulator.actuator import ActuatorOptions
from hil.emulator.bus import QUEUE, EmulatedBus
from hil.emulator.cia402 import CiA402, CiA402Encoder
from hil.emulator.encoder import Encoder, EncoderModel
from hil.emulator.fault_effects import schedule
from hil.emulator.faults import Fault
from hil.emulator.host_faults import HostFaults
from hil.emulator.mit import Mit
from hil.emulator.motor import Motor
from hil.emulator.node import EmulatedDrive, EmulatedNode, Medium
from hil.emulator.observer import JITTER, WAITING, Observer
from hil.emulator.odrive import ODrive, ODriveEncoder
from hil.emulator.plant import FRICTION_SPEED, SimulatedPlant
from hil.emulator.wire import Wire
from hil.loop.clock import nanoseconds
from hil.loop.virtual_time import VirtualClock, World
from servoctl.errors import ConfigError
from servoctl.simulation.system import System
from servoctl.types import Array, State

DRIVES: dict[str, type[Mit] | type[ODrive] | type[CiA402]] = {"cia402": CiA402, "odrive": ODrive, "mit": Mit}
"""Protocol -> drive."""

ENCODERS: dict[str, type[ODriveEncoder] | type[CiA402Encoder]] = {"odrive": ODriveEncoder, "cia402": CiA402Encoder}
"""Protocol -> node that only measures."""

STEPS_PER_PERIOD = 4
"""Least steps of the machine in one period of the loop."""


@dataclass(frozen=True)
class BusOptions:
    """What a bus is like.

    Attributes:
        bitrate: [bit/s].
        stuffing: `actual` or `worst`.
        queue: Frames that wait in the host's controller at most.
        restart: Time after bus-off at which the host's controller asks to come back [s]; None: never.
    """

    bitrate: int = 1_000_000
    stuffing: str = "actual"
    queue: int = QUEUE
    restart: float | None = None


@dataclass(frozen=True)
class EmulationOptions:
    """What the emulated machine is like, beyond what the config says of the real one.

    Attributes:
        actuators: Drive -> its actuator; usual ones where left out.
        encoders: Drive or sensor -> its encoder.
        quirks: Drive or sensor -> what its protocol's emulation knows beyond the options: option -> value.
        seed: Of everything random.
        engine: Of the simulated plant: `auto`, `c`, `vm` or `numpy`.
    """

    actuators: Mapping[str, ActuatorOptions] = field(default_factory=dict)
    encoders: Mapping[str, EncoderModel] = field(default_factory=dict)
    quirks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seed: int = 0
    engine: str = "auto"


class Emulator:
    """Emulated drives: just powered on, at rest at the start pose, brakes closed where there are any.

    Attributes:
        world: Their time.
        clock: The same, for the loop.
        plant: The machine.
        nodes: Name -> drive or encoder node.
        wires: Name -> wire; empty where the drives are on real buses.
        buses: Name -> the host's controller on it.
        observer: Watches what the host sends.
        host_faults: What the loop must do to itself.
    """

    def __init__(
        self,
        world: World,
        plant: SimulatedPlant,
        media: Mapping[str, Medium],
        drives: Sequence[DriveSettings],
        sensors: Sequence[SensorSettings],
        emulation: EmulationOptions,
    ) -> None:
        """Puts nodes on media, and powers them on; `build` makes all of it.

        Raises:
            ConfigError: A node names something that there is not; every one at once.
        """
        self.world, self.plant, self.clock = world, plant, VirtualClock(world)
        _check(plant, media, drives, sensors)
        self.nodes: dict[str, EmulatedNode] = {}
        self.wires: dict[str, Wire] = {}
        self.buses: dict[str, EmulatedBus] = {}
        actuators, coordinates = list(plant.model.plant.actuators), list(plant.model.plant.coordinates)
        for drive in drives:
            index = actuators.index(drive.name)
            usual = EncoderModel()
            encoder = Encoder(plant, drive, index, emulation.encoders.get(drive.name, usual), emulation.seed)
            delay = emulation.actuators.get(drive.name, ActuatorOptions()).brake_delay
            motor = Motor(world, plant, index, drive, delay)
            quirks = emulation.quirks.get(drive.name, {})
            self.nodes[drive.name] = DRIVES[drive.protocol](world, media[drive.bus], drive, encoder, motor, quirks)
        for sensor in sensors:
            index, usual = coordinates.index(sensor.name), EncoderModel()
            options = emulation.encoders.get(sensor.name, usual)
            encoder = Encoder(plant, sensor, index, options, emulation.seed, coordinate=True)
            quirks = emulation.quirks.get(sensor.name, {})
            self.nodes[sensor.name] = ENCODERS[sensor.protocol](world, media[sensor.bus], sensor, encoder, quirks)
        self.observer = Observer(world, drives)
        self.host_faults = HostFaults()
        for node in self.nodes.values():
            node.boot()

    @classmethod
    def build(
        cls,
        system: System,
        start: State,
        period: float,
        drives: Sequence[DriveSettings],
        sensors: Sequence[SensorSettings] = (),
        buses: Mapping[str, BusOptions] | None = None,
        emulation: EmulationOptions | None = None,
        faults: Sequence[Fault] = (),
    ) -> "Emulator":
        """Drives on emulated wires in virtual time.

        Args:
            system: Whose plant it is; task and law are left out.
            start: Pose and velocity at power-on.
            period: Of the loop [s].
            drives: One per actuator.
            sensors: Nodes that only measure.
            buses: Name -> what it is like; None: `main`, as usual.
            emulation: What the machine is like; None: as usual.
            faults: What goes wrong, from `hil.emulator.faults.read_faults`; those `since: engaged` wait for `engaged`.

        Raises:
            ConfigError: A node names something that there is not; every one at once.
        """
        emulation = emulation or EmulationOptions()
        world = World()
        wires = {
            name: Wire(world, name, options.bitrate, options.stuffing)
            for name, options in (buses or {"main": BusOptions()}).items()
        }
        plant = make_plant(system, start, period, drives, emulation)
        emulator = cls(world, plant, wires, drives, sensors, emulation)
        emulator.wires = wires
        emulator.observer.jitter = JITTER + nanoseconds(WAITING * period)
        for name, options in (buses or {"main": BusOptions()}).items():
            restart = None if options.restart is None else nanoseconds(options.restart)
            emulator.buses[name] = EmulatedBus(wires[name], options.queue, restart)
            emulator.observer.watch(wires[name])
        emulator._faults, emulator._seed = faults, emulation.seed
        schedule(faults, "power_on", emulator, emulation.seed)
        return emulator

    _faults: Sequence[Fault] = ()
    _seed = 0

    def engaged(self) -> None:
        """Starts the clock of the faults that count from here."""
        schedule(self._faults, "engaged", self, self._seed)

    def drive(self, name: str) -> EmulatedDrive:
        """A drive by name."""
        node = self.nodes[name]
        assert isinstance(node, EmulatedDrive)
        return node

    @property
    def state(self) -> tuple[Array, Array]:
        """True q and v now."""
        q, v = self.plant.state(self.world.now)
        return q.copy(), v.copy()


def make_plant(
    system: System, start: State, period: float, drives: Sequence[DriveSettings], emulation: EmulationOptions
) -> SimulatedPlant:
    """The machine of some drives; arguments as of `Emulator.build`."""
    settings = {drive.name: drive for drive in drives}
    names = list(system.model.plant.actuators)
    known = [settings.get(name) for name in names]
    return SimulatedPlant(
        system,
        start,
        max(1, nanoseconds(period) // STEPS_PER_PERIOD),
        emulation.engine,
        [emulation.actuators.get(name, ActuatorOptions()) for name in names],
        [1.0 if drive is None else drive.sign * drive.gear for drive in known],
        [1.0 if drive is None else FRICTION_SPEED * drive.speed_limit for drive in known],
    )


def _check(
    plant: SimulatedPlant,
    media: Mapping[str, Medium],
    drives: Sequence[DriveSettings],
    sensors: Sequence[SensorSettings],
) -> None:
    """Raises ConfigError with every node that cannot be."""
    problems = []
    for kind, nodes, known, protocols in (
        ("actuator", drives, plant.model.plant.actuators, list(DRIVES)),
        ("coordinate", sensors, plant.model.plant.coordinates, list(ENCODERS)),
    ):
        for node in nodes:
            if node.name not in known:
                problems.append(f"{node.name}: no such {kind} (there are: {', '.join(known)})")
            if node.bus not in media:
                problems.append(f"{node.name}.bus: no bus {node.bus!r} (there are: {', '.join(media)})")
            if node.protocol not in protocols:
                problems.append(f"{node.name}.protocol: expected {' or '.join(protocols)}, got {node.protocol!r}")
    if problems:
        raise ConfigError(problems)
