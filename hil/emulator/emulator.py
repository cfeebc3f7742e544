"""Builds emulated drives, their buses and the simulated machine from plain values.

Drives may share a supply: braking raises its voltage, and too high a voltage switches them off.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from hil.bus.load import BusRates
from hil.drives.settings import DriveSettings, SensorSettings
from hil.emulator.motor import Encoder, Motor
from hil.emulator.node import EmulatedDrive, EmulatedNode
from hil.emulator.plant import SimulatedPlant
from hil.emulator.station import Medium, Station
from hil.emulator.timers import Timer
from hil.emulator.wire import Disturbance, EmulatedBus, EmulatedWire
from hil.frame import Frame
from hil.loop.clock import SECOND, VirtualClock, World, nanoseconds
from servoctl.config.hil import Emulation, SupplyConfig
from servoctl.simulation.system import System
from servoctl.types import Array, State

PERIOD = 0.001  # [s] time between two looks at the power


class Supply:
    """The link between a supply and its drives, `d(C V^2 / 2)/dt = -(power of the motors) - (that of the resistor)`.

    Losses of motors and drives are left out, so that the voltage is no lower than on a real machine.
    """

    def __init__(
        self, world: World, plant: SimulatedPlant, drives: Sequence[EmulatedDrive], options: SupplyConfig
    ) -> None:
        self._world, self._plant, self._drives, self._options = world, plant, drives, options
        self._set(options.voltage)
        self._timer = Timer(world, self._step)
        self._timer.start(nanoseconds(PERIOD))

    def _set(self, voltage: float) -> None:
        self.voltage = voltage  # [V] voltage now
        for drive in self._drives:
            drive.voltage = voltage

    def _step(self) -> None:
        options = self._options
        enabled = [drive.motor for drive in self._drives if drive.motor.enabled]
        power = 0.0
        if enabled:
            rates, torques = self._plant.motion(self._world.now)[1], self._plant.torques(self._world.now)
            power = sum(torques[motor.index] * rates[motor.index] for motor in enabled)
        if options.resistor is not None and self.voltage > (options.voltage + options.trip) / 2:
            power += self.voltage**2 / options.resistor
        square = self.voltage**2 - 2 * power * nanoseconds(PERIOD) / SECOND / options.capacitance
        self._set(max(options.voltage, sqrt(max(0.0, square))))
        if self.voltage >= options.trip:
            for drive in self._drives:
                drive.fail(drive.overvoltage_code)


End = Callable[[], object]  # ends the effect of a fault
Begin = Callable[..., End | None]  # starts a fault by its injector and parameters; returns what ends it


def each_of(ends: Iterable[End]) -> End:
    """Ends several effects."""
    together = list(ends)
    return lambda: [end() for end in together]


def ignore(frame: Frame) -> None:
    """Takes a frame that an intruder receives."""


@dataclass(frozen=True)
class Fault:
    kind: str  # its name in the script
    begin: Begin  # starts it
    at: float  # [s] when it begins
    duration: float | None  # [s] how long it lasts; None: to the end
    since: str  # start of the time `at`: `power_on`, or `engaged`
    drive: str | None  # name of the node that it acts on; None: none, or all
    bus: str | None  # name of the bus that it acts on; None: none, or all
    parameters: Mapping[str, Any]  # name -> value, for all parameters of its kind


class FaultInjector:
    """Starts one fault of the script, and ends it; what the kinds of `hil.emulator.faults` act by."""

    def __init__(self, fault: Fault, emulator: "Emulator", seed: str) -> None:
        self.fault, self.emulator, self.world = fault, emulator, emulator.world
        self.random = random.Random(seed)

    def begin(self) -> None:
        end = self.fault.begin(self, **self.fault.parameters)
        if end is not None and self.fault.duration is not None:
            self.world.after(nanoseconds(self.fault.duration), end)

    @property
    def node(self) -> EmulatedNode:
        return self.emulator.nodes[self.fault.drive or ""]

    @property
    def drive(self) -> EmulatedDrive:
        return self.emulator.drives[self.fault.drive or ""]

    @property
    def motor(self) -> Motor:
        return self.drive.motor

    def set_actuator(self, **values: Any) -> End:
        """Sets attributes of the actuator; see `set`."""
        actuator = self.motor.actuator
        return self.set(actuator, lambda: actuator.refresh(self.world.now), **values)

    @property
    def wires(self) -> list[EmulatedWire]:
        """The wire that is meant, or all."""
        wires = self.emulator.wires
        return list(wires.values()) if self.fault.bus is None else [wires[self.fault.bus]]

    @property
    def stations(self) -> list[tuple[EmulatedWire, Station]]:
        """The node's station, or else the host's on each bus that is meant."""
        if self.fault.drive is not None:
            return [(self.emulator.wires[self.node.settings.bus], self.node.station)]
        return [(wire, self.emulator.buses[wire.name].station) for wire in self.wires]

    def set(self, target: object, apply: End = lambda: None, **values: Any) -> End:
        """Sets attributes until the end; the latest of the faults that act counts. `apply` is called after a change."""
        layers = {name: self.emulator.layers[target, name] for name in values}

        def show() -> None:
            self.emulator.plant.advance(self.world.now)  # until now with what was
            for name, layer in layers.items():
                setattr(target, name, layer[-1])
            apply()

        def end() -> None:
            for name, layer in layers.items():
                layer.remove(values[name])
            show()

        for name, layer in layers.items():
            layer += [values[name]] if layer else [getattr(target, name), values[name]]
        show()
        return end

    def disturb(self, which: Mapping[str, Any], **how: Any) -> End:
        """Disturbs the selected frames on the wires; `how`: as of `Disturbance`."""
        disturbance = Disturbance(which["direction"], which["id"], which["mask"], **how)
        return each_of(wire.disturb(disturbance) for wire in self.wires)

    def send_often(self, frame: Frame, period: Callable[[EmulatedWire], int]) -> End:
        """Sends a frame on each wire, with a period [ns]."""
        ends: list[End] = []
        for wire in self.wires:
            # one frame on the wire and one behind it: a full bus leaves no gap for others
            intruder = wire.attach(ignore, frozenset(), capacity=2)
            timer = Timer(self.world, partial(intruder.send, frame))
            timer.start(period(wire))
            ends += [timer.stop, partial(wire.power, intruder, False)]
        return each_of(ends)


class HostFaults:
    """The faults of the loop that act now."""

    def __init__(self) -> None:
        self.stalled = 0  # [ns] time for which the loop must stall at its next tick; faults set it and the following
        # what becomes of its torques: `nan`, `inf`, or `step` and what is added [actuator units]; None: nothing
        self.output: tuple[str, float] | None = None

    def stall(self) -> int:
        """Time for which the loop must stall now [ns], usually 0; the stall is over afterwards."""
        stall, self.stalled = self.stalled, 0
        return stall

    @property
    def tampers(self) -> bool:
        return self.output is not None

    def tamper(self, u: Array) -> Array:
        if self.output is None:
            return u
        value, step = self.output
        return u + step if value == "step" else np.full_like(u, float(value))


AT_REST = 1e-6  # [coordinate unit/s] a machine rests if no coordinate is faster
STEPS_PER_PERIOD = 4  # steps of the machine in one period of the loop


@dataclass(frozen=True)
class EmulatedRig:
    """What is emulated: a machine with its drives, and what happens to them."""

    system: System  # system with the plant; task and law are not used
    start: State  # pose and velocity at power-on
    period: float  # [s] period of the loop
    drives: Sequence[DriveSettings]  # one per actuator, in the plant's order
    classes: Mapping[str, type[EmulatedNode]]  # name of each drive and sensor -> the class that emulates it
    sensors: Sequence[SensorSettings] = ()  # nodes that only measure
    options: Emulation = field(default_factory=Emulation)  # section `hil.emulation`
    # drive or sensor -> smallest step of its encoder, at the motor [rad]; 0, the default: none
    resolutions: Mapping[str, float] = field(default_factory=dict)
    # fault script, from `hil.emulator.fault_script.read_faults`; entries `since: engaged` wait for `engaged`
    faults: Sequence[Fault] = ()
    seed: int = 0  # seed of all random numbers
    engine: str = "auto"  # engine of the simulated plant: `auto`, `c`, `vm` or `numpy`

    def plant(self) -> SimulatedPlant:
        """The machine, at rest in its start pose."""
        gains = {drive.name: drive.sign * drive.gear for drive in self.drives}
        return SimulatedPlant(
            self.system,
            self.start,
            max(1, nanoseconds(self.period) // STEPS_PER_PERIOD),
            self.engine,
            self.options,
            [gains.get(name, 1.0) for name in self.system.model.plant.actuators],
        )


class Emulator:
    """Emulated drives, at first just powered on at the start pose, with closed brakes."""

    def __init__(self, rig: EmulatedRig, world: World, plant: SimulatedPlant, media: Mapping[str, Medium]) -> None:
        """Begins with the machine at its start, attaches nodes to buses and powers them on; `build` makes all these."""
        plant.restart()
        self.world = world  # time of the drives
        self.plant = plant  # the machine
        self.clock = VirtualClock(world)  # the same time, for the loop
        self._rig = rig
        self.nodes: dict[str, EmulatedNode] = {}  # name -> drive or encoder node
        self.drives: dict[str, EmulatedDrive] = {}  # those of them that are drives, in the order of the rig
        # name -> wire; empty if the drives are on real buses
        self.wires = {name: medium for name, medium in media.items() if isinstance(medium, EmulatedWire)}
        actuators, coordinates = list(plant.model.plant.actuators), list(plant.model.plant.coordinates)
        for node in (*rig.drives, *rig.sensors):
            name, medium = node.name, media[node.bus]
            index = actuators.index(name) if isinstance(node, DriveSettings) else coordinates.index(name)
            encoder = Encoder(plant, node, index, rig.seed, rig.resolutions.get(name, 0.0), rig.options.encoder_noise)
            kind = rig.classes[name]
            if isinstance(node, DriveSettings):
                assert issubclass(kind, EmulatedDrive)
                motor = Motor(world, plant, index, node, rig.options)
                self.nodes[name] = self.drives[name] = kind(medium, node, encoder, motor)
            else:
                self.nodes[name] = kind(medium, node, encoder)
        # name -> the host's controller on that wire
        self.buses = {name: EmulatedBus(wire) for name, wire in self.wires.items()}
        self.host_faults = HostFaults()  # faults of the loop itself
        # object and attribute -> its own value, and those of the faults that act on it, the latest last
        self.layers = defaultdict[tuple[object, str], list[Any]](list)
        for each in self.nodes.values():
            each.boot()
        if rig.options.supply is not None:
            Supply(world, plant, list(self.drives.values()), rig.options.supply)
        self._schedule("power_on")

    @classmethod
    def build(cls, rig: EmulatedRig, buses: Mapping[str, BusRates], plant: SimulatedPlant | None = None) -> "Emulator":
        """Drives on emulated wires in virtual time.

        `buses`: name -> its bit rates. `plant`: the machine of an earlier run, which begins again; None: a new one.
        """
        world = World()
        wires = {name: EmulatedWire(world, name, rates) for name, rates in buses.items()}
        return cls(rig, world, plant or rig.plant(), wires)

    def engaged(self) -> None:
        """Schedules the faults whose time counts from the start of the task."""
        self._schedule("engaged")

    def _schedule(self, since: str) -> None:
        """Schedules the faults that count from an event, which is now; each has its own stream of random numbers."""
        for number, fault in enumerate(self._rig.faults):
            if fault.since == since:
                injector = FaultInjector(fault, self, f"{self._rig.seed}/fault {number}")
                self.world.after(nanoseconds(fault.at), injector.begin)

    @property
    def state(self) -> tuple[Array, Array]:
        """True q and v now."""
        q, v = self.plant.state(self.world.now)
        return q.copy(), v.copy()

    def settled(self) -> bool:
        """Whether all drives are off, their brakes closed and the machine at rest."""
        _, v = self.plant.state(self.world.now)
        return all(drive.motor.settled for drive in self.drives.values()) and bool(np.abs(v).max() <= AT_REST)

    def truth(self) -> list[float]:
        """The columns `true_q` and `true_v`, then of each motor `true_u`, `true_on` and `true_brake`, now."""
        q, v = self.plant.state(self.world.now)
        motors = [drive.motor for drive in self.drives.values()]
        torques = self.plant.torques(self.world.now)
        on, braked = [motor.makes_torque for motor in motors], [motor.braked for motor in motors]
        return [*q.tolist(), *v.tolist(), *torques, *on, *braked]
