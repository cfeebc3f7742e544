"""The CANopen side of an emulated node: NMT, SDO server, PDOs, SYNC, heartbeats, emergencies.

Design: on SYNC a node first sends its measurements, then applies the received commands: a controlword acts at the
SYNC after it, and shows in the statusword one SYNC later.

Source: CiA 301, from the tables in python-canopen and in vendors' manuals.
"""

import struct
from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite, tau

from hil.codecs import cia402 as codec
from hil.codecs.cia402 import BOOT_UP, OPERATIONAL, PRE_OPERATIONAL, STOPPED
from hil.emulator.node import EmulatedNode
from hil.emulator.objects import INVALID, MODE, Key, ObjectEntry, Pdo, answer, unfit
from hil.emulator.timers import Timer, Watchdog
from hil.frame import Frame
from hil.loop.clock import SECOND

MILLISECOND = SECOND // 1000

STOP, ENTER_PRE_OPERATIONAL, RESET_NODE = 2, 128, 129  # further commands of network management (NMT)
HEARTBEAT_LOST, RECOVERED_FROM_BUS_OFF, PDO_TOO_SHORT = 0x8130, 0x8140, 0x8210  # emergency codes
POSITION, VELOCITY = (0x6064, 0), (0x606C, 0)

HALF, FULL = 1 << 31, (1 << 32) - 1  # (n + HALF & FULL) - HALF is n in a signed integer of 32 bits, which wraps around
HEARTBEATS = codec.HEARTBEAT, 0x780  # ids of heartbeats: a value, and the mask of its bits


class CanOpenNode(EmulatedNode):
    """A node on CANopen: the communication of a drive, or of an encoder, which only measures.

    Options: `counts_per_turn` [increments] (65536), `velocity_unit` [rad/s] (one increment per second).
    """

    def connect(self, entries: Mapping[Key, ObjectEntry]) -> None:
        """Prepares communication and units."""
        self._counts = self.number("counts_per_turn", 65536) / tau  # increments per radian of the motor
        self._velocity_unit = self.number("velocity_unit", 1.0 / self._counts)
        self._entries, self._id = dict(entries), self.settings.node
        self.values: dict[Key, int] = {}  # key -> value of every object
        self.nmt = BOOT_UP  # state of network management
        self._heartbeat = Timer(self.world, self._send_heartbeat)
        self._masters: dict[int, tuple[int, Watchdog]] = {}
        self._handlers: dict[int, Callable[[bytes], None]] = {}
        self._received: dict[int, Pdo] = {}
        self._events = [Timer(self.world, partial(self._repeat, number)) for number in range(4)]
        self._load(lambda key: True)

    # The device behind the communication.

    def written(self, key: Key, value: int) -> int:
        """Called before an object is written; returns 0 to accept it, or an abort code."""
        return 0

    def commanded(self) -> None:
        """Called after a PDO has written objects."""

    def disconnected(self, code: int) -> None:
        """Called at the loss of communication; `code` is 0 if an NMT command stopped it."""

    def reset(self, whole: bool) -> None:
        """Called on a reset of the node (`whole`), or of its communication alone."""

    def measure(self, everything: bool) -> None:
        """Updates all measured objects, or position and velocity alone; an invalid measurement leaves them: there is no
        NaN.
        """
        position, velocity = self.encoder.read(self.world.now)
        if isfinite(position + velocity):
            self.values[POSITION] = (round(position * self._counts) + HALF & FULL) - HALF
            self.values[VELOCITY] = (round(velocity / self._velocity_unit) + HALF & FULL) - HALF

    # Communication.

    def heartbeat_ids(self) -> tuple[int, int]:
        return HEARTBEATS

    def listens(self) -> frozenset[int]:
        return frozenset(self._handlers)

    def timers(self) -> list[Timer]:
        return [self._heartbeat, *self._events]

    def boot(self) -> None:
        self._load(lambda key: True)
        self._announce()

    def halt(self) -> None:
        self._disconnect()

    def _disconnect(self) -> None:
        self._heartbeat.stop()
        self._stop_monitoring()
        self.enter_nmt(BOOT_UP)

    def receive(self, frame: Frame) -> None:
        handler = self._handlers.get(frame.id)
        if handler is not None and self.nmt != BOOT_UP and not (frame.extended or frame.remote):
            handler(frame.data)

    def emergency(self, code: int, register: int) -> None:
        """Sends an emergency; code 0: none is left."""
        self.values[0x1001, 0] = register
        if self.nmt not in (BOOT_UP, STOPPED) and not self.values[0x1014, 0] & INVALID:
            self.send(self.values[0x1014, 0] & 0x7FF, struct.pack("<HB5s", code, register, bytes(5)))

    def changed(self, key: Key) -> None:
        """Sends event-driven PDOs that carry an object which has changed."""
        for pdo in self._sent:
            if pdo.valid and not pdo.synchronous and key in pdo.keys:
                self._transmit(pdo)

    def enter_nmt(self, state: int) -> None:
        """Changes the state of NMT, and with it what is sent by itself."""
        self.nmt = state
        for number, (timer, pdo) in enumerate(zip(self._events, self._sent, strict=True)):
            sends = state == OPERATIONAL and pdo.valid and not pdo.synchronous
            period = self.values[0x1800 + number, 5] * MILLISECOND if sends else 0
            timer.start(period, period)

    def _repeat(self, number: int) -> None:
        self._transmit(self._sent[number])

    def _serve(self, request: bytes) -> None:
        if self.nmt == STOPPED or len(request) != 8 or request[0] >> 5 == 4:
            return
        self.send(codec.SDO_ANSWER + self._id, answer(request, self._entries, self.aborts, self._read, self.write))

    def _read(self, key: Key) -> int:
        self.measure(True)
        return self.values[key]

    def write(self, key: Key, value: int) -> int:
        """Writes an object; returns 0, or an abort code."""
        index = key[0]
        of_pdo = 0x1400 <= index < 0x1C00
        refused = self._entries[key].refusal(value)
        if not refused:
            refused = unfit(self.values, self._entries, key, value) if of_pdo else self.written(key, value)
        if refused:
            return refused
        self.values[key] = value
        if index == 0x1017:
            self._heartbeat.start(value * MILLISECOND)
        elif index == 0x1016:
            self._watch_masters()
        elif of_pdo:
            transmit, number = index >= 0x1800, index & 0xFF
            (self._sent if transmit else self._taken)[number] = Pdo(self.values, self._entries, number, transmit)
            self._sort()
        return 0

    def _sort(self) -> None:
        self._received = {pdo.identity: pdo for pdo in self._taken if pdo.valid}
        self._synchronous = [pdo for pdo in self._sent if pdo.valid and pdo.synchronous]
        self._waiting_for_sync = [pdo for pdo in self._received.values() if pdo.synchronous]
        self.enter_nmt(self.nmt)
        self._listen()

    def _listen(self) -> None:
        """Chooses what each id means; an RPDO goes before everything else."""
        self._handlers = {
            codec.HEARTBEAT + master: partial(self._hear, *watch) for master, watch in self._masters.items()
        }
        self._handlers |= {codec.NMT: self._obey_nmt, codec.SDO_REQUEST + self._id: self._serve, codec.SYNC: self._sync}
        self._handlers |= {identity: partial(self._take, pdo) for identity, pdo in self._received.items()}
        self.relisten()

    def _take(self, pdo: Pdo, data: bytes) -> None:
        if self.nmt != OPERATIONAL:
            return
        if len(data) < pdo.size:
            self.emergency(PDO_TOO_SHORT, self.values[0x1001, 0] | 0x10)
            return
        if pdo.synchronous:
            pdo.pending = data
        else:
            self._apply(pdo, data)
            self.commanded()

    def _apply(self, pdo: Pdo, data: bytes) -> None:
        values = self.values
        for key, value in zip(pdo.keys, pdo.unpack(data), strict=False):  # equally long: the check costs a third
            if not (key == MODE and self.written(key, value)):
                values[key] = value

    def _sync(self, data: bytes) -> None:
        if self.nmt != OPERATIONAL:
            return
        due, everything = [], False
        for pdo in self._synchronous:
            pdo.counter += 1
            if pdo.counter >= pdo.kind:
                pdo.counter = 0
                due.append(pdo)
                everything = everything or pdo.more
        if due:
            self.measure(everything)
            values = self.values
            for pdo in due:
                self.send(pdo.identity, pdo.pack(*pdo.collect(values)))
        told = False
        for pdo in self._waiting_for_sync:
            if pdo.pending is not None:
                self._apply(pdo, pdo.pending)
                pdo.pending, told = None, True
        if told:
            self.commanded()

    def _transmit(self, pdo: Pdo) -> None:
        if self.nmt == OPERATIONAL:
            self.measure(True)
            self.send(pdo.identity, pdo.pack(*pdo.collect(self.values)))

    def _obey_nmt(self, data: bytes) -> None:
        if len(data) < 2 or data[1] not in (0, self._id):
            return
        command, before = data[0], self.nmt
        if command == codec.START:
            self.enter_nmt(OPERATIONAL)
            if self.values[0x1001, 0] & 0x10 and not self.values.get((0x603F, 0), 0):
                self.emergency(0, 0)  # the lost communication is back
            for pdo in self._sent:
                if pdo.valid and not pdo.synchronous:
                    self._transmit(pdo)
        elif command == STOP:
            self.enter_nmt(STOPPED)
        elif command == ENTER_PRE_OPERATIONAL:
            self.enter_nmt(PRE_OPERATIONAL)
        elif command in (RESET_NODE, codec.RESET_COMMUNICATION):
            self.disconnected(0)
            self._disconnect()
            self._load(lambda key: command == RESET_NODE or 0x1000 <= key[0] < 0x2000)
            self.reset(command == RESET_NODE)
            self.world.after(5 * MILLISECOND, self._announce)
            return
        if before == OPERATIONAL and self.nmt == STOPPED:
            self.disconnected(0)

    def _load(self, chosen: Callable[[Key], bool]) -> None:
        self.values |= {key: entry.value for key, entry in self._entries.items() if chosen(key)}
        self._masters = {}
        self._taken, self._sent = (
            [Pdo(self.values, self._entries, number, transmit) for number in range(4)] for transmit in (False, True)
        )
        self._sort()

    def _announce(self) -> None:
        self.send(codec.HEARTBEAT + self._id, bytes([BOOT_UP]))
        self.enter_nmt(PRE_OPERATIONAL)
        self._heartbeat.start(self.values[0x1017, 0] * MILLISECOND)

    def _send_heartbeat(self) -> None:
        if not self.heart_stopped:
            self.send(codec.HEARTBEAT + self._id, bytes([self.nmt]))

    def _watch_masters(self) -> None:
        self._stop_monitoring()
        self._masters = {}
        for sub in (1, 2):
            value = self.values[0x1016, sub]
            master, timeout = value >> 16 & 0x7F, (value & 0xFFFF) * MILLISECOND
            if timeout and master and self.option("watchdog", True):
                self._masters[master] = timeout, Watchdog(self.world, partial(self._lost, HEARTBEAT_LOST))
        self._listen()

    def _hear(self, timeout: int, watchdog: Watchdog, data: bytes) -> None:
        """Feeds a watchdog; the first heartbeat starts it."""
        if watchdog.timeout:
            watchdog.feed()
        else:
            watchdog.start(timeout)

    def _stop_monitoring(self) -> None:
        for _, watchdog in self._masters.values():
            watchdog.stop()

    def _lost(self, code: int) -> None:
        """Called when a heartbeat or PDO is missing; the watchdogs restart with the next one."""
        self._stop_monitoring()
        self.emergency(code, self.values[0x1001, 0] | 0x11)
        self.disconnected(code)
        if self.nmt == OPERATIONAL:
            behaviour = self.values[0x1029, 1]
            if behaviour != 1:
                self.enter_nmt(STOPPED if behaviour == 2 else PRE_OPERATIONAL)
