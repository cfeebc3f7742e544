"""Emulated drives on buses of python-can, on the wall clock, in their own process.

Design: the nodes are the same; the bus is a real one, so no bit times are emulated. The drives' time follows the clock
of this process and stops while the process does not run, so that drives do not catch up on missed frames.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from hil.bus import Bus, BusError
from hil.bus.open import EmulatorMessage, emulator_frame, emulator_message, is_loopback, open_buses
from hil.drives.settings import SensorSettings
from hil.emulator.emulator import EmulatedRig, Emulator, Fault
from hil.emulator.faults import KINDS
from hil.emulator.plant import Motion, SimulatedPlant
from hil.emulator.station import Medium, Station, key
from hil.frame import Frame
from hil.loop.clock import SECOND, Clock, World
from servoctl.errors import ConfigError

LONGEST_GAP = SECOND // 20  # [ns] a longer pause of this process does not count in the drives' time
SHORTEST_WAIT = SECOND // 5000  # [ns] time that the server waits for each of several buses
LONGEST_WAIT = SECOND // 50  # [ns] `stop` is called at least this often
QUIET = SECOND // 5  # [ns] the drives are free for another loop after this time without frames

HOST_TARGETS = ("bus", "host", "host_or_node")


class Outlet(Medium):
    """A bus of python-can with emulated nodes; its real controller counts errors, so no station is ever bus-off."""

    def __init__(self, world: World, bus: Bus) -> None:
        super().__init__(world)
        self.bus = bus
        self.heard = 0  # [ns] time of the host's last frame to one of the nodes; 0: there was none

    def power(self, station: Station, powered: bool) -> None:
        station.powered = powered
        station.queue.clear()

    def pending(self, station: Station) -> None:
        while station.queue:
            with suppress(BusError):  # the bus does not accept the frame
                self.bus.send(station.queue.popleft())

    def deliver(self, frame: Frame) -> None:
        """Delivers a frame to its nodes."""
        number = key(frame)
        failure: Exception | None = None
        for station in self.stations:
            if station.powered and station.ids is not None and number in station.ids:
                self.heard = self.world.now
                try:
                    station.receive(frame)
                except Exception as error:  # of one node; the others still receive the frame
                    failure = failure or error
        if failure is not None:
            raise failure


class EmulatorServer:
    """Emulated drives on open buses; each loop that asks for them finds them freshly powered on."""

    def __init__(
        self,
        rig: EmulatedRig,  # its faults are those of drives, encoders and actuators
        buses: Mapping[str, Bus],  # name -> open bus
        clock: Clock,
        # called with a line when a drive switches its torque on or off, or brakes; must not block
        tell: Callable[[str], None] = lambda line: None,
        # time [s] -> motion of a hand that takes so long; None: no hand moves the machine
        hand: Callable[[float], Motion] | None = None,
    ) -> None:
        """Powers the drives on.

        ConfigError for a fault that acts on emulated wires or on the loop.
        """
        for fault in rig.faults:
            check_fault(fault)
        self._rig, self._buses, self._clock, self._tell_line, self._hand = rig, buses, clock, tell, hand
        self._power_on(rig.plant())

    def _power_on(self, plant: SimulatedPlant) -> None:
        world, self._lag, self._waiting = World(), self._clock.now(), True
        self._latest = 0
        self._motion: Motion | None = None
        # name of a bus -> the bus with its nodes
        self.outlets = {name: Outlet(world, bus) for name, bus in self._buses.items()}
        # the drives and the machine
        self.emulator = Emulator(self._rig, world, plant, self.outlets)
        for drive in self.emulator.drives.values():
            drive.motor.told = partial(self._tell, drive.settings)

    def _asked(self) -> bool:
        """Whether another loop has the drives; if one had them before, they are powered on again."""
        heard, now = max(outlet.heard for outlet in self.outlets.values()), self.emulator.world.now
        if any(drive.motor.enabled for drive in self.emulator.drives.values()) or (heard and now - heard < QUIET):
            return True
        if heard:
            self._tell_line(f"{now / SECOND:9.4f} s  a new loop: the drives are powered on again, at the start pose")
            self._power_on(self.emulator.plant)
        return False

    def _begun(self) -> None:
        """Schedules the faults whose time counts from the start of the task; a hand that was asked for begins."""
        if self._waiting:
            self._waiting = False
            self.emulator.engaged()
            if self._motion is not None:
                self.emulator.plant.guide(self._motion, self.emulator.world.now)

    def _answers(self, bus: Bus, frame: Frame) -> bool:
        """Obeys a frame of a loop that is for the emulator itself; returns whether it is one."""
        known = emulator_message(frame)
        if known is None:
            return False
        message, time = known
        if message is EmulatorMessage.ARE_YOU_FREE:
            bus.send(emulator_frame(EmulatorMessage.TAKEN if self._asked() else EmulatorMessage.FREE))
        elif message is EmulatorMessage.BEGUN:
            self._begun()
        elif message is EmulatorMessage.HOW_LATE:
            bus.send(emulator_frame(EmulatorMessage.LATENESS, self._latest / SECOND))
        elif message is EmulatorMessage.HAND and self._hand is not None:
            self._motion = self._hand(time)
        return True

    def serve(self, stop: Callable[[], bool]) -> None:
        """Runs until `stop()`; BusError if a bus is down."""
        while not stop():
            self._follow()
            due = self.emulator.world.next_event
            until = self._clock.now() + (LONGEST_WAIT if len(self._buses) == 1 else SHORTEST_WAIT)
            if due is not None:
                until = min(until, due + self._lag)
            for name, bus in self._buses.items():
                frame = bus.receive(until)
                while frame is not None:
                    self._latest = max(self._latest, self._clock.now() - frame.time)
                    self._follow()
                    if not self._answers(bus, frame):
                        self.outlets[name].deliver(frame)
                    frame = bus.receive(0)

    def _tell(self, settings: SensorSettings, word: str) -> None:
        now = self.emulator.world.now
        silence = (now - self.outlets[settings.bus].heard) / 1e6
        since = f"{silence:.1f} ms after the last frame on {settings.bus}"
        self._tell_line(f"{now / SECOND:9.4f} s  {settings.name}: {word}, {since}")

    def _follow(self) -> None:
        """Advances drives and machine to the time of the clock, less long pauses of this process."""
        world, now = self.emulator.world, self._clock.now()
        due = world.next_event
        if due is not None:
            self._latest = max(self._latest, now - self._lag - due)
        gap = now - self._lag - world.now
        if gap > LONGEST_GAP:
            self._lag += gap - LONGEST_GAP
        world.advance(now - self._lag)
        self.emulator.plant.advance(world.now)  # nothing else does without a loop, whose first frame would wait for it


def open_for_emulation(buses: Mapping[str, Mapping[str, Any]], clock: Clock, vcan: bool = False) -> dict[str, Bus]:
    """Opens buses for emulated drives; only those that do not leave this machine, and with `vcan` virtual SocketCAN
    ones.

    Raises ConfigError if a bus may be a physical one; names all such buses. BusError if a bus cannot be opened.
    """
    problems = [f"hil.buses.{name}: {why}" for name, keys in buses.items() if (why := _physical(keys, vcan))]
    if problems:
        raise ConfigError(problems)
    return open_buses(buses, clock)


def _physical(keys: Mapping[str, Any], vcan: bool) -> str:
    """Why drives must not be emulated on a bus; empty if they may be."""
    interface, channel = keys.get("interface"), str(keys.get("channel"))
    if is_loopback(keys):
        return ""
    if interface == "socketcan" and channel.startswith("vcan"):
        return "" if vcan else f"{channel} is a virtual CAN interface (use --vcan to emulate drives on it)"
    if interface == "emulated":
        return "emulated buses are inside the process of the loop (use udp_multicast with hop_limit: 0)"
    if interface == "udp_multicast":
        return "udp_multicast may leave this machine (set hop_limit: 0)"
    return f"{interface} {channel} may have real drives on it (use virtual, or udp_multicast with hop_limit: 0)"


def check_fault(fault: Fault) -> None:
    """Raises ConfigError for a fault that needs an emulated wire, or the loop in virtual time."""
    of_master = fault.kind == "heartbeat_loss" and fault.parameters["of"] == "master"
    if KINDS[fault.kind].target in HOST_TARGETS or fault.kind == "id_clash" or of_master:
        raise ConfigError(f"hil.faults: {fault.kind}: only on emulated wires in lock-step (interface: emulated)")
