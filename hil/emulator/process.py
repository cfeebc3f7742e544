"""Emulated drives on buses of python-can, on the wall clock, in a process of their own.

Design: the same models; only the wire is a real one, without bit times of ours. Their time follows the clock of this
process and stands still while the process does, so that drives do not catch up on what they had no time to say.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from hil.bus import Bus, BusError, close_all
from hil.bus.identity import answer, is_beginning, is_question
from hil.bus.open import is_loopback, open_bus
from hil.drives.settings import DriveSettings, SensorSettings
from hil.emulator.emulator import EmulationOptions, Emulator, make_plant
from hil.emulator.fault_effects import schedule
from hil.emulator.faults import KINDS, Fault
from hil.emulator.node import EmulatedDrive
from hil.emulator.plant import SimulatedPlant
from hil.emulator.station import Station, key
from hil.frame import Frame
from hil.loop.clock import SECOND, Clock
from hil.loop.virtual_time import World
from servoctl.errors import ConfigError
from servoctl.simulation.system import System
from servoctl.types import State

LONGEST_GAP = SECOND // 20
"""A longer time without this process running [ns] is taken out of the drives' time."""

SHORTEST_WAIT = SECOND // 5000
"""Time that one of several buses is waited for [ns]."""

LONGEST_WAIT = SECOND // 50
"""Time after which `stop` is asked again [ns]."""

QUIET = SECOND // 5
"""Time without a frame of a loop after which its drives are free for another [ns]."""

HOST_PLACES = ("bus", "host", "host_or_node")


class Outlet:
    """A bus of python-can that emulated nodes are on.

    Attributes:
        world: Their time.
        heard: When a frame of the host last came in for somebody here [ns]; 0: none has.
        refused: Frames that the bus did not take.
        asked: Whether the drives are another loop's, when one asks for an emulator.
        began: Called when a loop says that its task begins.
    """

    def __init__(self, world: World, bus: Bus) -> None:
        """Takes an open bus."""
        self.bus, self.refused, self.troubled = bus, 0, False
        self.asked: Callable[[], bool] = lambda: False
        self.began: Callable[[], None] = lambda: None
        self.begin(world)

    def begin(self, world: World) -> None:
        """Leaves its nodes for the new ones of another world."""
        self.world, self.heard = world, 0
        self._stations: list[Station] = []

    def attach(self, name: str, receive: Callable[[Frame], None], ids: Iterable[int]) -> Station:
        """Puts a node on the bus."""
        station = Station(self, name, receive, ids)
        self._stations.append(station)
        return station

    def listen(self, station: Station, ids: Iterable[int]) -> None:
        """Changes what a node takes."""
        station.ids = frozenset(ids)

    def power(self, station: Station, powered: bool) -> None:
        """Switches a node off or on."""
        station.powered = powered
        station.queue.clear()

    def pending(self, station: Station) -> None:
        """Sends what a node has queued."""
        while station.queue:
            try:
                self.bus.send(station.queue.popleft())
            except BusError:
                self.refused += 1

    def leave(self, station: Station) -> None:
        """A real controller counts errors itself: this one is never off."""

    def recount(self) -> None:
        """Likewise."""

    def deliver(self, frame: Frame) -> None:
        """Hands a frame to those whom it concerns; the question for an emulator is answered."""
        if is_question(frame):
            self.bus.send(answer(self.asked()))
            return
        if is_beginning(frame):
            self.began()
            return
        number = key(frame)
        failure: Exception | None = None
        for station in self._stations:
            if station.powered and station.ids is not None and number in station.ids:
                self.heard = self.world.now
                try:
                    station.receive(frame)
                except Exception as error:  # of one node: the others are to hear the frame all the same
                    failure = failure or error
        if failure is not None:
            raise failure


class EmulatorServer:
    """Emulated drives on open buses; a loop that asks for them finds them as they were at power-on.

    Attributes:
        emulator: The drives and the machine.
        outlets: Name of a bus -> what is on it.
    """

    def __init__(
        self,
        system: System,
        start: State,
        period: float,
        drives: Sequence[DriveSettings],
        sensors: Sequence[SensorSettings],
        buses: Mapping[str, Bus],
        clock: Clock,
        emulation: EmulationOptions | None = None,
        faults: Sequence[Fault] = (),
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Powers the drives on; arguments as of `Emulator.build`.

        Args:
            system: Whose plant it is.
            start: Pose at power-on.
            period: Of the loop [s].
            drives: One per actuator.
            sensors: Nodes that only measure.
            buses: Name -> open bus.
            clock: Of the buses.
            emulation: What the machine is like; None: as usual.
            faults: What goes wrong in drives, encoders and actuators.
            tell: Takes a line whenever a drive begins or ceases to make torque, or brakes; it must not wait.

        Raises:
            ConfigError: A node names something that there is not, or a fault is one of emulated wires or of the loop.
        """
        emulation = emulation or EmulationOptions()
        for fault in faults:
            check_fault(fault)
        self._clock, self._tell_line = clock, tell
        self._drives, self._sensors, self._likeness, self._faults = drives, sensors, emulation, faults
        self.outlets = {name: Outlet(World(), bus) for name, bus in buses.items()}
        for outlet in self.outlets.values():
            outlet.asked, outlet.began = self._asked, self._begun
        self._power_on(make_plant(system, start, period, drives, emulation))

    def _power_on(self, plant: SimulatedPlant) -> None:
        world, self._lag, self._waiting = World(), self._clock.now(), True
        for outlet in self.outlets.values():
            outlet.begin(world)
        self.emulator = Emulator(world, plant, self.outlets, self._drives, self._sensors, self._likeness)
        self._motors = [node.motor for node in self.emulator.nodes.values() if isinstance(node, EmulatedDrive)]
        for node in self.emulator.nodes.values():
            if isinstance(node, EmulatedDrive):
                node.motor.told = partial(self._tell, self._tell_line, node.settings)
        schedule(self._faults, "power_on", self.emulator, self._likeness.seed)

    def _asked(self) -> bool:
        """Whether the drives are another loop's; where they are not, but were, they are powered on again."""
        heard, now = max(outlet.heard for outlet in self.outlets.values()), self.emulator.world.now
        if any(motor.enabled for motor in self._motors) or (heard and now - heard < QUIET):
            return True
        if heard:
            self._tell_line(f"{now / SECOND:9.4f} s  a new loop: the drives are powered on again, at the start pose")
            self.emulator.plant.restart()
            self._power_on(self.emulator.plant)
        return False

    def _begun(self) -> None:
        """Starts the clock of the faults that count from the beginning of the task."""
        if self._waiting:
            self._waiting = False
            schedule(self._faults, "engaged", self.emulator, self._likeness.seed)

    def serve(self, stop: Callable[[], bool]) -> None:
        """Runs until `stop()`.

        Raises:
            BusError: A bus is down.
        """
        outlets = list(self.outlets.values())
        while not stop():
            self._follow()
            due = self.emulator.world.next_event
            until = self._clock.now() + (LONGEST_WAIT if len(outlets) == 1 else SHORTEST_WAIT)
            if due is not None:
                until = min(until, due + self._lag)
            for outlet in outlets:
                frame = outlet.bus.receive(until)
                while frame is not None:
                    self._follow()
                    outlet.deliver(frame)
                    frame = outlet.bus.receive(0)

    def _tell(self, tell: Callable[[str], None], settings: SensorSettings, word: str) -> None:
        now = self.emulator.world.now
        silence = (now - self.outlets[settings.bus].heard) / 1e6
        tell(f"{now / SECOND:9.4f} s  {settings.name}: {word}, {silence:.1f} ms after the last frame on {settings.bus}")

    def _follow(self) -> None:
        """Brings the drives' time up to the clock's, unless that ran away."""
        world, now = self.emulator.world, self._clock.now()
        gap = now - self._lag - world.now
        if gap > LONGEST_GAP:
            self._lag += gap - LONGEST_GAP
        world.advance(now - self._lag)


def open_for_emulation(buses: Mapping[str, Mapping[str, Any]], clock: Clock, vcan: bool = False) -> dict[str, Bus]:
    """Opens buses on which drives may be emulated: such as cannot leave this machine.

    Args:
        buses: Name -> interface and further keys, as in a config.
        clock: For the times of frames.
        vcan: Whether virtual SocketCAN interfaces, vcan*, may be used too.

    Raises:
        ConfigError: A bus may be a physical one; every such bus at once.
        BusError: A bus cannot be opened.
    """
    problems = [f"hil.buses.{name}: {why}" for name, keys in buses.items() if (why := _physical(keys, vcan))]
    if problems:
        raise ConfigError(problems)
    opened: dict[str, Bus] = {}
    try:
        for name, keys in buses.items():
            opened[name] = open_bus(name, keys, clock)
    except BusError:
        close_all(opened.values())
        raise
    return opened


def _physical(keys: Mapping[str, Any], vcan: bool) -> str:
    """Why drives may not be emulated on a bus; empty where they may."""
    interface, channel = keys.get("interface"), str(keys.get("channel"))
    if is_loopback(keys):
        return ""
    if interface == "socketcan" and channel.startswith("vcan"):
        return "" if vcan else f"{channel} is a virtual CAN interface (say --vcan if drives shall be emulated on it)"
    if interface == "emulated":
        return "emulated buses are inside the loop's own process (take udp_multicast with hop_limit: 0)"
    if interface == "udp_multicast":
        return "udp_multicast may leave this machine (set hop_limit: 0)"
    return (
        f"{interface} {channel} may have real drives on it, which are not to be emulated "
        "(take virtual, or udp_multicast with hop_limit: 0)"
    )


def check_fault(fault: Fault) -> None:
    """Raises ConfigError for a fault that needs an emulated wire or the loop in lock-step."""
    of_master = fault.kind == "heartbeat_loss" and fault.parameters["of"] == "master"
    if KINDS[fault.kind].place in HOST_PLACES or fault.kind == "id_clash" or of_master:
        raise ConfigError(f"hil.faults: {fault.kind}: only on emulated wires in lock-step (interface: emulated)")
