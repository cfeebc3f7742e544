"""Fault effects: what each fault of the script does to emulated drives, and how it ends."""

import random
from collections.abc import Callable, Iterable
from functools import partial, reduce
from typing import Any, Protocol

from hil.emulator.bus import EmulatedBus
from hil.emulator.disturbances import Corruption, Delay, Disturbance, Duplicate, Loss, Selection
from hil.emulator.faults import Fault
from hil.emulator.host_faults import HostFaults
from hil.emulator.motor import Motor
from hil.emulator.node import EmulatedDrive, EmulatedNode
from hil.emulator.plant import SimulatedPlant
from hil.emulator.station import Station
from hil.emulator.timers import Timer
from hil.emulator.wire import EmulatedWire
from hil.frame import Frame
from hil.loop.clock import SECOND, nanoseconds
from hil.loop.virtual_time import World

End = Callable[[], None]  # ends the effect of a fault
REBOOT_TIME = 0.3  # [s] time of a reboot if the fault gives none


ATTRIBUTES: dict[str, tuple[str, str | None]] = {
    "refuse_enable": ("refuses", None),
    "wrong_mode": ("wrong_mode", None),
    "silent": ("silent", None),
    "late": ("delay", "delay"),
    "encoder_nan": ("encoder.invalid", None),
    "encoder_wrap": ("encoder.wrap", "range"),
    "encoder_flip": ("encoder.flipped", None),
    "torque_table": ("torque_table", "factor"),
}
"""Kind of fault -> attribute of the node that it sets while it lasts, and the parameter with the value; None: True."""


class FaultTargets(Protocol):
    """Interface of the emulated drives to faults; `Emulator` has it."""

    world: World  # time of the drives
    plant: SimulatedPlant  # the machine
    nodes: dict[str, EmulatedNode]  # name -> drive or encoder node
    wires: dict[str, EmulatedWire]  # name -> emulated wire
    buses: dict[str, EmulatedBus]  # name -> the host's controller on that wire
    host_faults: HostFaults  # faults of the loop itself

    def drive(self, name: str) -> EmulatedDrive:
        """The drive of that name."""


def schedule(faults: Iterable[Fault], since: str, emulator: FaultTargets, seed: int) -> None:
    """Schedules the faults whose time counts from now.

    Args:
        faults: The script.
        since: The present event, `power_on` or `engaged`; faults whose time counts from the other one are left out.
        emulator: The emulated drives.
        seed: Seed of the run; each fault has its own stream.
    """
    for number, fault in enumerate(faults):
        if fault.since == since:
            FaultInjector(fault, emulator, f"{seed}/fault {number}").schedule()


class FaultInjector:
    """Starts one fault of the script at its time, and ends it.

    The method `_<kind>` starts a fault of that kind and returns what ends it; `ATTRIBUTES` has the kinds that only set
    an attribute of the node.

    Args:
        fault: The fault.
        emulator: The emulated drives.
        seed: Seed of its random numbers.
    """

    def __init__(self, fault: Fault, emulator: FaultTargets, seed: str) -> None:
        self._fault, self._emulator, self._world = fault, emulator, emulator.world
        self._random = random.Random(seed)
        self._parameters = fault.parameters

    def schedule(self) -> None:
        """Schedules the start of the fault, counted from now."""
        self._world.after(nanoseconds(self._fault.at), self._begin)

    def _begin(self) -> None:
        kind = self._fault.kind
        end: End | None = self._set_attribute(*ATTRIBUTES[kind]) if kind in ATTRIBUTES else getattr(self, f"_{kind}")()
        if end is not None and self._fault.duration is not None:
            self._world.after(nanoseconds(self._fault.duration), end)

    def _set_attribute(self, path: str, parameter: str | None) -> End:
        *parts, name = path.split(".")
        value: Any = True if parameter is None else self._parameters[parameter]
        return self._set(reduce(getattr, parts, self._node), name, nanoseconds(value) if name == "delay" else value)

    def _lost(self) -> End:
        p = self._parameters
        return self._disturb(Loss(self._which(), p["p"], p["burst"]))

    def _delay(self) -> End:
        p = self._parameters
        constant, jitter, spike = (nanoseconds(p[name]) for name in ("delay", "jitter", "spike"))
        return self._disturb(Delay(self._which(), constant, jitter, spike, p["spike_p"]))

    def _duplicate(self) -> End:
        p = self._parameters
        return self._disturb(Duplicate(self._which(), p["n"], nanoseconds(p["age"]), p["p"]))

    def _corruption(self) -> End:
        return self._disturb(Corruption(self._which(), self._parameters["p"]))

    def _cut(self) -> End:
        ends = []
        for wire, station in self._stations():
            wire.connect(station, False)
            ends.append(partial(wire.connect, station, True))
        return partial(_all, ends)

    def _bus_off(self) -> End:
        for wire, station in self._stations():
            if self._parameters["restart"] is not None:
                station.restart = nanoseconds(self._parameters["restart"])
            wire.force_off(station)
        return lambda: _all([partial(wire.restart, station) for wire, station in self._stations()])

    def _babble(self) -> End:
        p = self._parameters
        frame = Frame(p["id"], bytes(p["size"]), extended=p["id"] > 0x7FF, fd=p["fd"], brs=p["fd"])
        return self._send_often(frame, lambda wire: round(wire.frame_time(frame) / max(p["load"], 1e-3)))

    def _foreign_frames(self) -> End:
        p = self._parameters
        extended = p["extended"] or p["id"] > 0x7FF
        frame = Frame(p["id"], bytes.fromhex(p["data"]), extended, fd=p["fd"], brs=p["fd"])
        return self._send_often(frame, lambda wire: nanoseconds(p["period"]))

    def _wrong_length(self) -> End:
        p = self._parameters

        def mangle(identity: int, data: bytes) -> bytes:
            return data.ljust(p["length"], b"\0")[: p["length"]] if self._random.random() < p["p"] else data

        return self._mangle(mangle)

    def _id_clash(self) -> End:
        node = self._node
        wire = self._emulator.wires[node.settings.bus]
        twin = wire.attach("intruder", _ignore, frozenset(), restart=None)

        def mangle(identity: int, data: bytes) -> bytes:
            other = Frame(identity, bytes(byte ^ 0xFF for byte in data), fd=node.settings.fd, brs=node.settings.brs)
            if self._parameters["collide"]:
                twin.send(other)
            else:
                self._world.after(SECOND // 2000, partial(_send, twin, other))
            return data

        end = self._mangle(mangle)
        return lambda: _all([end, partial(wire.power, twin, False)])

    def _drive_fault(self) -> End | None:
        drive = self._emulator.drive(self._name)
        code = self._parameters["code"]
        drive.trip(drive.usual_code if code is None else code)
        return drive.clear_fault if self._parameters["clear"] else None

    def _reboot(self) -> None:
        duration = self._fault.duration
        self._node.reboot(nanoseconds(REBOOT_TIME if duration is None else duration))

    def _sdo_abort(self) -> End:
        index, aborts = self._parameters["index"], self._node.aborts
        aborts[index] = self._parameters["code"]

        def end() -> None:
            aborts.pop(index, None)

        return end

    def _clock_drift(self) -> End:
        self._node.set_drift(self._parameters["ppm"])
        return partial(self._node.set_drift, 0.0)

    def _heartbeat_loss(self) -> End:
        if self._parameters["of"] == "drive":
            return self._set(self._node, "heart_stopped", True)
        loss = Loss(Selection(self._random, "from_host", *self._node.heartbeat_ids()), 1.0, 1)
        return _disturb(self._emulator.wires[self._node.settings.bus], loss)

    def _encoder_jump(self) -> End:
        encoder = self._node.encoder
        return self._set(encoder, "jump", encoder.jump + self._parameters["delta"])

    def _encoder_stuck(self) -> End:
        encoder = self._node.encoder
        encoder.freeze(True)
        return partial(encoder.freeze, False)

    def _encoder_drift(self) -> End:
        self._node.encoder.drifting = self._world.now
        return self._set(self._node.encoder, "drift", self._parameters["rate"])

    def _derating(self) -> End:
        drive = self._emulator.drive(self._name)
        actuator, settings = drive.motor.actuator, drive.settings
        if actuator.limit == float("inf"):
            drive.motor.limit(abs(settings.motor_torque(settings.torque_limit)))
        return self._applied(self._set(actuator, "derating", self._parameters["factor"]), drive.motor.refresh)

    def _no_torque(self) -> End:
        return self._applied(self._set(self._motor.actuator, "powered", False), self._motor.refresh)

    def _torque_constant(self) -> End:
        return self._at_motor(self._emulator.plant.scale, self._parameters["factor"], 1.0)

    def _brake_stuck(self) -> End:
        return self._applied(self._set(self._motor, "stuck", True), self._motor.refresh_brake)

    def _brake_worn(self) -> End:
        return self._applied(self._set(self._motor, "grip", self._parameters["factor"]), self._motor.refresh_brake)

    def _blocked(self) -> End:
        return self._at_motor(self._emulator.plant.brake, True, False)

    def _push(self) -> End:
        torque = self._parameters["torque"]
        return self._at_motor(self._emulator.plant.push, torque, -torque)

    def _at_motor(self, act: Callable[[int, Any, int], None], begin: Any, end: Any) -> End:
        """Acts on the machine at the motor, with one value now and another at the end."""
        index, world = self._motor.index, self._world
        act(index, begin, world.now)
        return lambda: act(index, end, world.now)

    def _applied(self, end: End, apply: End) -> End:
        """Applies a change, now and at its end."""
        apply()
        return partial(_all, [end, apply])

    def _stall(self) -> None:
        self._emulator.host_faults.begin_stall(nanoseconds(self._fault.duration or 0.0))

    def _output(self) -> End:
        return self._emulator.host_faults.begin_output(self._parameters["value"], self._parameters["step"])

    def _clock_step(self) -> End:
        step = nanoseconds(self._parameters["step"])
        buses = [self._emulator.buses[wire.name] for wire in self._wires()]
        return partial(_all, [self._set(bus, "clock_step", step) for bus in buses])

    @property
    def _name(self) -> str:
        assert self._fault.drive is not None
        return self._fault.drive

    @property
    def _motor(self) -> Motor:
        return self._emulator.drive(self._name).motor

    @property
    def _node(self) -> EmulatedNode:
        return self._emulator.nodes[self._name]

    def _wires(self) -> list[EmulatedWire]:
        wires = self._emulator.wires
        return list(wires.values()) if self._fault.bus is None else [wires[self._fault.bus]]

    def _stations(self) -> list[tuple[EmulatedWire, Station]]:
        """The node's station, or else the host's on each bus that is meant."""
        if self._fault.drive is not None:
            node = self._node
            return [(self._emulator.wires[node.settings.bus], node.station)]
        return [(wire, self._emulator.buses[wire.name].station) for wire in self._wires()]

    def _which(self) -> Selection:
        p = self._parameters
        return Selection(self._random, p["direction"], p["id"], p["mask"])

    def _disturb(self, disturbance: Disturbance) -> End:
        return partial(_all, [_disturb(wire, disturbance) for wire in self._wires()])

    def _send_often(self, frame: Frame, period: Callable[[EmulatedWire], int]) -> End:
        ends: list[End] = []
        for wire in self._wires():
            # one frame on the wire and one behind it: a full bus leaves no gap for others
            intruder = wire.attach("intruder", _ignore, frozenset(), capacity=2)
            timer = Timer(self._world, partial(_send, intruder, frame))
            timer.start(period(wire))
            ends += [timer.stop, partial(wire.power, intruder, False)]
        return partial(_all, ends)

    def _mangle(self, mangle: Callable[[int, bytes], bytes]) -> End:
        return self._set(self._node, "mangle", mangle)

    def _set(self, target: object, name: str, value: object) -> End:
        before = getattr(target, name)
        setattr(target, name, value)
        return partial(setattr, target, name, before)


def _disturb(wire: EmulatedWire, disturbance: Disturbance) -> End:
    wire.disturbances.append(disturbance)
    return partial(wire.disturbances.remove, disturbance)


def _send(station: Station, frame: Frame) -> None:
    station.send(frame)


def _ignore(frame: Frame) -> None:
    """Ignores received frames."""


def _all(ends: Iterable[End]) -> None:
    for end in ends:
        end()
