"""The CANopen side of an emulated node: NMT, SDO server, PDOs, SYNC, heartbeats, emergencies.

Design: on SYNC a node first sends its measurements, then applies the received commands: a controlword acts at the
SYNC after it, and shows in the statusword one SYNC later.

Source: CiA 301, from the tables in python-canopen and in vendors' manuals.
"""

import struct
from collections.abc import Callable, Container, Mapping
from functools import partial
from math import isfinite, tau

from hil.codecs import cia402 as codec
from hil.codecs.cia402 import BOOT_UP, OPERATIONAL, PRE_OPERATIONAL, STOPPED
from hil.emulator import objects
from hil.emulator.node import EmulatedNode
from hil.emulator.objects import INVALID, MODE, POLARITY, POSITION, VELOCITY, Key, ObjectEntry, Pdo
from hil.emulator.timers import Timer, Watchdog
from hil.frame import Frame
from hil.loop.clock import SECOND

MILLISECOND = SECOND // 1000

STOP, ENTER_PRE_OPERATIONAL, RESET_NODE = 2, 128, 129  # further commands of network management (NMT)
RECOVERED_FROM_BUS_OFF, PDO_TOO_SHORT = 0x8140, 0x8210  # emergency codes
ABORTED, UPLOAD, DOWNLOAD = 4, 2, 1  # commands of a client's SDO frame, in its upper three bits
EXPEDITED, SIZED = 2, 1  # further bits of a download

HALF, FULL = 1 << 31, (1 << 32) - 1  # (n + HALF & FULL) - HALF is n in a signed integer of 32 bits, which wraps around


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
        self._watchdog = Watchdog(self.world, self._lost)  # of the master's heartbeat
        self._events = [Timer(self.world, partial(self._repeat, number)) for number in range(len(codec.RPDOS))]
        self._handlers: dict[int, Callable[[bytes], None]] = {}  # id -> what takes its frames

    # The device behind the communication.

    def written(self, key: Key, value: int) -> int:
        """Called before an object is written; returns 0 to accept it, or an abort code."""
        return 0

    def commanded(self) -> None:
        """Called after a PDO has written objects."""

    def disconnected(self, code: int) -> None:
        """Called at the loss of communication; `code` is 0 if an NMT command stopped it."""

    def reset(self) -> None:
        """Called on a reset of the node, not of its communication alone."""

    def measure(self, everything: bool = True) -> None:
        """Updates all measured objects, or position and velocity alone, which most frames carry.

        An invalid measurement leaves them: there is no NaN.
        """
        position, velocity = self.encoder.read(self.world.now)
        if polarity := self.values.get(POLARITY):
            position = -position if polarity & objects.TURNED_POSITION else position
            velocity = -velocity if polarity & objects.TURNED_SPEED else velocity
        if isfinite(position + velocity):
            self.values[POSITION] = (round(position * self._counts) + HALF & FULL) - HALF
            self.values[VELOCITY] = (round(velocity / self._velocity_unit) + HALF & FULL) - HALF

    # Communication.

    def heartbeat_ids(self) -> tuple[int, int]:
        return codec.HEARTBEAT, 0x1FFF_FF80

    def listens(self) -> Container[int]:
        return self._handlers

    def timers(self) -> list[Timer]:
        return [self._heartbeat, *self._events]

    def boot(self) -> None:
        self._load(lambda key: True)
        self._announce()

    def halt(self) -> None:
        self._heartbeat.stop()
        self._watchdog.stop()
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
        if self.nmt != STOPPED and len(request) == 8 and request[0] >> 5 != ABORTED:
            self.send(codec.SDO_ANSWER + self._id, self._answer(request))

    def _answer(self, request: bytes) -> bytes:
        """The answer to an SDO request; both have 8 bytes."""
        place, (index, sub), command = request[1:4], struct.unpack_from("<HB", request, 1), request[0] >> 5
        entry, code = self._entries.get((index, sub)), self.aborts.get(index, self.aborts.get(None, 0))
        if not code and entry is None:
            code = objects.NO_SUBINDEX if (index, 0) in self._entries else objects.NO_OBJECT
        elif not code and entry is not None and command == UPLOAD:
            self.measure()
            data = entry.form.pack(self.values[index, sub])
            return (bytes([0x43 | 4 - len(data) << 2]) + place + data).ljust(8, b"\0")
        elif not code and entry is not None and command == DOWNLOAD and request[0] & EXPEDITED:
            size = 4 - (request[0] >> 2 & 3) if request[0] & SIZED else entry.form.size
            fits = size == entry.form.size
            code = self.write((index, sub), entry.form.unpack_from(request, 4)[0]) if fits else objects.WRONG_LENGTH
        elif not code:
            code = objects.UNKNOWN_COMMAND
        return (b"\x80" if code else b"\x60") + place + struct.pack("<I", code)

    def write(self, key: Key, value: int) -> int:
        """Writes an object; returns 0, or an abort code."""
        index = key[0]
        of_pdo = 0x1400 <= index < 0x1C00
        refused = self._entries[key].refusal(value)
        if not refused:
            refused = objects.unfit(self.values, self._entries, key, value) if of_pdo else self.written(key, value)
        if refused:
            return refused
        self.values[key] = value
        if index == 0x1017:
            self._heartbeat.start(value * MILLISECOND)
        elif index == 0x1016:
            self._watchdog.stop()
            self._listen()
        elif of_pdo and not index & 0x200:
            self._map()
        return 0

    def _map(self) -> None:
        """Reads the configuration of all PDOs again: the mapping of one changes only while it is off."""
        taken, self._sent = (
            [Pdo(self.values, self._entries, base + number) for number in range(len(codec.RPDOS))]
            for base in (0x1400, 0x1800)
        )
        self._received = {pdo.identity: pdo for pdo in taken if pdo.valid}
        self._synchronous = [pdo for pdo in self._sent if pdo.valid and pdo.synchronous]
        self._waiting_for_sync = [pdo for pdo in self._received.values() if pdo.synchronous]
        self.enter_nmt(self.nmt)
        self._listen()

    def _listen(self) -> None:
        """Chooses what each id means; an RPDO goes before everything else."""
        self._handlers.clear()
        master = self.values[0x1016, 1] >> 16 & 0x7F
        if master and self._master_timeout:
            self._handlers[codec.HEARTBEAT + master] = self._hear
        self._handlers |= {codec.NMT: self._obey_nmt, codec.SDO_REQUEST + self._id: self._serve, codec.SYNC: self._sync}
        self._handlers |= {identity: partial(self._take, pdo) for identity, pdo in self._received.items()}

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
        due = []
        for pdo in self._synchronous:
            pdo.counter += 1
            if pdo.counter >= pdo.kind:
                pdo.counter = 0
                due.append(pdo)
        if due:
            self.measure(any([pdo.more for pdo in due]))
        for pdo in due:
            self.send(pdo.identity, pdo.packed(self.values))
        told = False
        for pdo in self._waiting_for_sync:
            if pdo.pending is not None:
                self._apply(pdo, pdo.pending)
                pdo.pending, told = None, True
        if told:
            self.commanded()

    def _transmit(self, pdo: Pdo) -> None:
        if self.nmt == OPERATIONAL:
            self.measure()
            self.send(pdo.identity, pdo.packed(self.values))

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
            if before == OPERATIONAL:
                self.disconnected(0)
        elif command == ENTER_PRE_OPERATIONAL:
            self.enter_nmt(PRE_OPERATIONAL)
        elif command in (RESET_NODE, codec.RESET_COMMUNICATION):
            self.disconnected(0)
            CanOpenNode.halt(self)
            self._load(lambda key: command == RESET_NODE or 0x1000 <= key[0] < 0x2000)
            if command == RESET_NODE:
                self.reset()
            self.world.after(5 * MILLISECOND, self._announce)

    def _load(self, chosen: Callable[[Key], bool]) -> None:
        self.values |= {key: entry.value for key, entry in self._entries.items() if chosen(key)}
        self._map()

    def _announce(self) -> None:
        self.send(codec.HEARTBEAT + self._id, bytes([BOOT_UP]))
        self.enter_nmt(PRE_OPERATIONAL)
        self._heartbeat.start(self.values[0x1017, 0] * MILLISECOND)

    def _send_heartbeat(self) -> None:
        if not self.heart_stopped:
            self.send(codec.HEARTBEAT + self._id, bytes([self.nmt]))

    @property
    def _master_timeout(self) -> int:
        return (self.values[0x1016, 1] & 0xFFFF) * MILLISECOND

    def _hear(self, data: bytes) -> None:
        """Feeds the watchdog; the first heartbeat starts it."""
        self._watchdog.start(self._master_timeout)

    def _lost(self) -> None:
        """Called when a heartbeat is missing; the watchdog starts again with the next one."""
        self.emergency(codec.HEARTBEAT_LOST, self.values[0x1001, 0] | 0x11)
        self.disconnected(codec.HEARTBEAT_LOST)
        behaviour = self.values[0x1029, 1]
        if self.nmt == OPERATIONAL and behaviour != 1:
            self.enter_nmt(STOPPED if behaviour == 2 else PRE_OPERATIONAL)
