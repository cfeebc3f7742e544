"""What the tests of emulated drives share: a machine of two axes, a bench of drives on it, a host without drivers."""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hil.bus.load import BusRates
from hil.drives.settings import DriveSettings, SensorSettings
from hil.drives.table import TableDrive
from hil.emulator.emulator import EmulatedRig, Emulator
from hil.emulator.fault_script import read_faults
from hil.emulator.process import EmulatorServer
from hil.emulator.wire import EmulatedBus
from hil.frame import Frame
from hil.protocols.registry import build, emulations
from servoctl.assembly.make import make_system
from servoctl.config.hil import Emulation
from servoctl.mechanics.plant import Plant
from servoctl.simulation.system import System
from servoctl.types import Array, State
from tests.hil.command_observer import CommandObserver
from tests.small_plants import Masses

MILLISECOND = 1_000_000

SHORT = ("hil.safety.zero_time=0.02", "hil.safety.ramp_time=0.1", "hil.emulation.after=0")
"""A bring-up of 0.12 s instead of 0.7 s, which is most of a short run, and no rows of how the machine comes to rest."""

TURN = 2 * math.pi


@dataclass(frozen=True)
class Axes(Masses):
    """Two masses that slide alone, each pushed by a force: q'' = (u - weight) / m."""

    forces: str = "a b"
    m: float = 2.0  # [kg]


def system_of(plant: Plant, start: State) -> System:
    """A plant as an open loop."""
    return make_system(plant, {}, None, {}, start, None, 1e-6)


def drive_settings(protocol: str, name: str = "a", node: int = 1, **changes: Any) -> DriveSettings:
    """Settings of a drive with a gear of 2 and an inverted sign."""
    options = {
        "cia402": {"counts_per_turn": 100_000, "velocity_unit": TURN / 1000},
        "odrive": {"feedback_period": 0.002},
        "mit": {},
        "moteus": {},
        "robstride": {"motor": "rs-02"},
    }[protocol]
    usual = DriveSettings(
        name, "main", protocol, node, gear=2.0, sign=-1, offset=0.25, options=options, torque_limit=10.0,
        torque_rate_limit=1e4, speed_limit=4.0, position_limits=(-10.0, 10.0), rated_torque=4.0,
        fd=protocol == "moteus", brs=protocol == "moteus",
    )  # fmt: skip
    return replace(usual, **changes)


def bare_drive(protocol: str, **changes: Any) -> TableDrive:
    """A driver without a gear: the joint is the motor."""
    usual: dict[str, Any] = {"gear": 1.0, "sign": 1, "offset": 0.0, "torque_limit": 1.0, "position_limits": (-1.0, 1.0)}
    drive = build(drive_settings(protocol, **{**usual, **changes}), 0.002)
    assert isinstance(drive, TableDrive)
    return drive


@dataclass
class Bench:
    """Emulated drives and a host that does what a test tells it."""

    emulator: Emulator
    observer: CommandObserver

    @property
    def bus(self) -> EmulatedBus:
        return self.emulator.buses["main"]

    @property
    def now(self) -> int:
        return self.emulator.world.now

    @property
    def node(self) -> Any:
        """The drive `a`; its class is that of its protocol."""
        return self.emulator.drives["a"]

    def collect(self, milliseconds: float) -> list[Frame]:
        """What comes in during a time."""
        until, found = self.now + round(milliseconds * MILLISECOND), []
        while (frame := self.bus.receive(until)) is not None:
            found.append(frame)
        return found

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            self.bus.send(frame)

    def ask(self, frame: Frame, milliseconds: float = 2.0) -> list[Frame]:
        self.bus.send(frame)
        return self.collect(milliseconds)


def bench(
    *drives: DriveSettings,
    sensors: Sequence[SensorSettings] = (),
    faults: Sequence[Mapping[str, Any]] = (),
    plant: Plant | None = None,
    start: State | None = None,
    period: float = 0.002,
    lag: float = 0.0,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    noise: float = 0.0,
) -> Bench:
    """Drives on the machine of `Axes`, at rest at x = 0.5, y = 0; `options`: further ones, of the emulated drives."""
    plant = plant or Axes()
    start = start or State(0.0, np.array([0.5, 0.0]), np.zeros(2))
    drives = tuple(replace(drive, options={**drive.options, **(options or {})}) for drive in drives)
    nodes = (*drives, *sensors)
    read, problems = read_faults(faults, nodes, emulations(nodes), {"main": False})
    assert not problems, problems
    rig = EmulatedRig(
        system_of(plant, start),
        start,
        period,
        drives,
        emulations(nodes),
        sensors,
        Emulation(current_lag=lag, encoder_noise=noise),
        faults=read,
        seed=seed,
        engine="vm",
    )
    fd = any(drive.fd for drive in drives)
    emulator = Emulator.build(rig, {"main": BusRates(1_000_000, 5_000_000 if fd else 1_000_000, fd)})
    return Bench(emulator, CommandObserver(emulator, drives))


@contextmanager
def served(server: EmulatorServer) -> Iterator[EmulatorServer]:
    """Drives served by a thread until the test is over; then their buses are closed."""
    over = threading.Event()
    thread = threading.Thread(target=server.serve, args=(over.is_set,))
    thread.start()
    try:
        yield server
    finally:
        over.set()
        thread.join()
        for outlet in server.outlets.values():
            outlet.bus.close()


class Clockwork:
    """A machine that never moves by itself and remembers for how long it has run."""

    size, elapsed = 1, 0.0

    def start(self, t: float, x: Array) -> Array:
        return np.zeros(1)

    def after(self, t: float, x: Array, rest: Array, u: Array, h: float) -> tuple[Array, Array]:
        self.elapsed = float(rest[0]) + h
        return x, rest + h
