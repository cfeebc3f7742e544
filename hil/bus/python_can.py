"""A python-can bus as a `Bus`: it waits to send only for room, starts no thread, and stays down once it is down.

Time of a frame: the kernel stamps frames with the system time, which may be set at any moment. Only the age of a frame
is taken from that stamp, and only within what is certain: the frame came after the queue was last seen empty, after
the frame before it, and not later than now. On an interface that does not stamp with the system time, a frame counts
as received when it is read.

Design: python-can opens and closes the bus. Reading and writing the socket of SocketCAN is several times faster than
python-can's messages; the bytes are the same.

Source: Linux, include/uapi/linux/can.h.
"""

import errno
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any

import can

from hil.bus.base import PATIENCE, Bus, BusError, Health, Link
from hil.frame import CLASSIC_SIZE, FD_SIZES, Frame, size_problem
from hil.loop.clock import SECOND, Clock

_SO_TIMESTAMPNS = 35  # Linux, asm-generic/socket.h
_STAMP = struct.Struct("@ll")
_SPACE = socket.CMSG_SPACE(_STAMP.size) if hasattr(socket, "CMSG_SPACE") else 0
_CAN_FRAME = struct.Struct("=IB3x8s")
_CANFD_FRAME = struct.Struct("=IBB2x64s")
_EXTENDED, _REMOTE, _ERROR = 0x80000000, 0x40000000, 0x20000000
_BRS, _FDF = 0x01, 0x04


class UnreadableError(ValueError):
    """What came in is not a frame."""


def message_of(frame: Frame, **more: Any) -> can.Message:
    """A frame as a message of python-can, with further fields."""
    return can.Message(
        arbitration_id=frame.id, is_extended_id=frame.extended, is_remote_frame=frame.remote,
        is_error_frame=frame.error, dlc=frame.length if frame.remote else len(frame.data), data=frame.data,
        is_fd=frame.fd, bitrate_switch=frame.brs, **more,
    )  # fmt: skip


def frame_of(message: can.Message, length: int, time: int) -> Frame:
    """A message of python-can as a frame; an interface may give 0 and 1 for its flags."""
    return Frame(
        message.arbitration_id, bytes(message.data), bool(message.is_extended_id), bool(message.is_remote_frame),
        bool(message.is_error_frame), length, time, bool(message.is_fd), bool(message.bitrate_switch),
    )  # fmt: skip


class PythonCanChannel:
    """Moves frames to and from an open bus, as messages of python-can, for any interface.

    OSError or CanError where the interface refuses, or is down.

    Design: where the bus has a file descriptor, that is waited on: the waiting of python-can follows the system
    time, which may be set meanwhile. A frame that comes while we wait is left for the next call, so that its caller
    knows that the queue was empty before.
    """

    def __init__(self, bus: can.BusABC, descriptor: int | None) -> None:
        self._bus, self._descriptor = bus, descriptor
        self._arrived: can.Message | None = None

    def send(self, frame: Frame) -> None:
        """Sends a frame without waiting."""
        self._bus.send(message_of(frame), timeout=0.0)

    def receive(self, timeout: float) -> Frame | None:
        """The next frame, not yet checked. Where nothing has come in yet, it waits for at most `timeout` [s].

        The frame has the system time of its arrival [ns] and its length as the wire says it. None may come before
        the time is over: a later call then has the frame. UnreadableError: what came in is not a frame.
        """
        message: Any = self._arrived
        self._arrived = None
        if message is None:
            message = self._message(0.0)
        if message is not None:
            # `dlc` is the number of bytes for python-can, in FD frames too
            return frame_of(message, message.dlc, round(message.timestamp * SECOND))
        if timeout > 0.0:
            self._wait(timeout)
        return None

    def _wait(self, timeout: float) -> None:
        if self._descriptor is None:
            self._arrived = self._message(timeout)
            return
        try:
            select.select([self._descriptor], [], [], timeout)
        except ValueError as error:  # the descriptor was closed
            raise OSError(str(error)) from error

    def _message(self, timeout: float) -> can.Message | None:
        try:
            return self._bus.recv(timeout)
        except can.CanOperationError as error:
            # python-can raises this for bytes that are not a frame, with the decoder's error as its cause, and for a
            # bus that is down, with an OSError or nothing as its cause.
            if error.__cause__ is None or isinstance(error.__cause__, OSError):
                raise
            raise UnreadableError(str(error)) from error

    def close(self) -> None:
        """Closes what the channel itself has opened; the bus stays open."""


class SocketCanChannel:
    """The same, as bytes on a SocketCAN socket."""

    def __init__(self, opened: socket.socket) -> None:
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket, self._sender = opened, opened.dup()
        self._waiting = select.poll()
        self._waiting.register(opened, select.POLLIN | select.POLLERR)
        for each in (opened, self._sender):
            each.setblocking(False)

    def close(self) -> None:
        self._sender.close()

    def receive(self, timeout: float) -> Frame | None:
        # A last look mostly finds nothing, and an exception costs more than a poll. Other looks mostly find a frame,
        # so they read first and wait only if nothing is there.
        if timeout <= 0.0 and not self._waiting.poll(0):
            return None
        while True:
            try:
                record, extra, _, _ = self._socket.recvmsg(_CANFD_FRAME.size, _SPACE)
                break
            except BlockingIOError:
                if timeout <= 0.0 or not select.select([self._socket], [], [], timeout)[0]:
                    return None
            timeout = 0.0
        seconds, rest = _STAMP.unpack(extra[0][2])
        return self._read(record, seconds * SECOND + rest)

    def send(self, frame: Frame) -> None:
        flags = frame.extended * _EXTENDED | frame.remote * _REMOTE | frame.error * _ERROR
        length = frame.length if frame.remote else len(frame.data)
        if frame.fd:
            kind = _FDF | frame.brs * _BRS
            self._sender.send(_CANFD_FRAME.pack(frame.id | flags, length, kind, frame.data))
        else:
            self._sender.send(_CAN_FRAME.pack(frame.id | flags, length, frame.data))

    def _read(self, record: bytes, stamp: int) -> Frame:
        if fd := len(record) == _CANFD_FRAME.size:
            word, length, kind, data = _CANFD_FRAME.unpack(record)
        else:
            kind = 0
            word, length, data = _CAN_FRAME.unpack_from(record)
        extended, remote, error = bool(word & _EXTENDED), bool(word & _REMOTE), bool(word & _ERROR)
        identity = word & (0x1FFFFFFF if extended or error else 0x7FF)
        payload = b"" if remote else data[:length]
        return Frame(identity, payload, extended, remote, error, length, stamp, fd, bool(kind & _BRS))


RECEIVE_BUFFER = 4 << 20  # receive buffer to ask of the kernel [byte]; one frame takes about 800 of them

_IP_MULTICAST_ALL = 49  # Linux, linux/in.h
_SO_RCVBUFFORCE, _SO_MEMINFO, _MEMINFO_DROPS, _MEMINFO_WORDS = 33, 55, 8, 9  # Linux, asm-generic/socket.h


class PythonCanBus(Bus):
    """A python-can bus, which this closes and no other code uses."""

    def __init__(
        self,
        name: str,
        bus: can.BusABC,
        clock: Clock,
        *,
        echoes: bool = False,  # whether the interface returns what is sent on it
        system_time: bool = False,  # whether it stamps frames with the system time of their arrival
        socketcan: bool = False,  # whether frames go straight through the bus's socket, which is one of SocketCAN
        fd: bool = False,  # whether the bus carries FD frames
    ) -> None:
        self.name, self.carries_fd = name, fd
        self._bus = bus
        self._clock = clock
        self._system_time = system_time
        self.earliest = clock.now()  # [ns] the next frame comes after this moment
        self._sent_lately = Echoes() if echoes else None
        self._sent = self._received = self._echoes = self._refused = self._invalid = self._lost = 0
        self._closed, self._patient = False, True
        try:
            descriptor: int | None = bus.fileno()
        except NotImplementedError:
            descriptor = None
        self._socket = _socket_of(descriptor)
        self._channel: PythonCanChannel | SocketCanChannel
        if socketcan and self._socket is not None:
            self._channel = SocketCanChannel(self._socket)
        else:
            self._channel = PythonCanChannel(bus, descriptor)

    def send(self, frame: Frame) -> None:
        """As `Bus.send`; a bus that is down is tried again: frames that disable a drive may still get through.

        Raises BusError if the bus is down, or the queue of the controller stays full, which counts as down. ValueError
        if the payload has a size that no such frame has, or the bus carries no FD frames.
        """
        if frame.fd or len(frame.data) > CLASSIC_SIZE:
            self._check(frame)
        self._must_be_open()
        moment = self._clock.now()
        try:
            self._send(frame, moment + PATIENCE)
        except (can.CanError, OSError) as error:
            self._refused += 1
            raise self._down(error) from error
        self._sent += 1
        if self._sent_lately is not None:
            self._sent_lately.add(frame, moment)

    def _send(self, frame: Frame, until: int) -> None:
        while True:
            try:
                self._channel.send(frame)
            except (can.CanError, OSError) as error:
                full = not _FULL.isdisjoint(_numbers(error))
                if full and self._patient and (now := self._clock.now()) < until:
                    self._clock.sleep_until(min(now + _RETRY, until))
                    continue
                self._patient = self._patient and not full
                raise
            self._patient = True
            return

    def _check(self, frame: Frame) -> None:
        if frame.fd and not self.carries_fd:
            raise ValueError(f"{frame}: an FD frame, but bus {self.name} is classic (set `fd: true`)")
        if problem := size_problem(frame):
            raise ValueError(f"{frame}: {problem}")

    def receive(self, until: int) -> Frame | None:
        self._must_be_open()
        while True:
            before = self._clock.now()
            received = self._next((until - before) / SECOND)
            if received is None:
                self.earliest = before
                if before >= until:
                    return None
            elif (frame := self._accept(received)) is not None:
                self._received += 1
                return frame

    def _next(self, timeout: float) -> Frame | None:
        while True:
            try:
                return self._channel.receive(timeout)
            except UnreadableError:
                self._invalid += 1
                timeout = 0.0  # part of the time is over: the caller knows how much is left
            except (can.CanError, OSError) as error:
                raise self._down(error) from error

    @property
    def health(self) -> Health:
        if self._socket is not None:
            with suppress(OSError):
                words = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * _MEMINFO_WORDS)
                self._lost = struct.unpack_from("=I", words, 4 * _MEMINFO_DROPS)[0]
        return Health(
            self._link, self._reason, self._sent, self._received, self._echoes, self._errors, self._refused,
            self._invalid, self._lost,
        )  # fmt: skip

    @property
    def descriptor(self) -> int | None:
        """Descriptor of its socket, for the tick in C; None if its records are not SocketCAN's, or echoes come."""
        usual = self._system_time and self._sent_lately is None and isinstance(self._channel, SocketCanChannel)
        return self._socket.fileno() if usual and self._socket is not None else None

    def exchanged(self, sent: int, received: int, invalid: int, earliest: int) -> None:
        """Takes note of what the tick in C has done on the socket: numbers of frames, and a new `earliest` [ns]."""
        self._sent, self._received = self._sent + sent, self._received + received
        self._invalid += invalid
        self.earliest = earliest

    def failed(self, number: int, refused: int) -> BusError:
        """The failure of the tick in C: `errno`, and the number of frames that the controller did not accept."""
        self._refused += refused
        return self._down(OSError(number, os.strerror(number)))

    def take_back(self) -> bool:
        if self._closed:
            return False
        try:
            self._bus.flush_tx_buffer()
        except (can.CanError, NotImplementedError, OSError):
            return False
        return True

    def close(self) -> None:
        if not self._closed:
            self._lost = self.health.lost
            self._closed = True
            self._channel.close()
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            self._bus.shutdown()

    def _must_be_open(self) -> None:
        if self._closed:
            raise BusError(f"bus {self.name}: closed")

    def _accept(self, received: Frame) -> Frame | None:
        """The received frame with its time; None for an error frame or an echo."""
        identity, data, remote, error = received.id, received.data, received.remote, received.error
        moment = now = self._clock.now()
        if self._system_time:
            moment += received.time - time.time_ns()
            if moment > now:
                moment = now
            elif moment < self.earliest:
                moment = self.earliest
        self.earliest = moment
        size, extended, fd = received.length, received.extended, received.fd
        length = size if remote else len(data)
        fits = length <= CLASSIC_SIZE if not fd else self.carries_fd and not remote and length in FD_SIZES
        if not fits or length != size or identity >> (29 if extended or error else 11):
            self._invalid += 1
            return None
        frame = Frame(identity, data, extended, remote, error, length if remote else 0, moment, fd, fd and received.brs)
        if self._sent_lately is not None and self._sent_lately.take(frame):
            self._echoes += 1
            return None
        if error:
            self.report_error(frame)
            return None
        return frame

    def _down(self, error: Exception) -> BusError:
        self._link, self._reason = Link.DOWN, _reason(error)
        return BusError(f"bus {self.name}: {self._reason}")


def _socket_of(descriptor: int | None) -> socket.socket | None:
    """The socket under a bus, with a larger receive buffer; None if there is no socket, or it is not Linux's."""
    if descriptor is None or sys.platform != "linux":
        return None
    copy = os.dup(descriptor)
    try:
        opened = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)  # not a socket: a serial line
        return None
    try:
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except OSError:  # only root may exceed the system's limit
        with suppress(OSError):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    if opened.family == socket.AF_INET:
        with suppress(OSError):  # otherwise it also receives the groups that other processes have joined on this port
            opened.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
    return opened


_REASONS = {
    errno.ENOBUFS: "transmit queue full: no node acknowledges, or the queue is short (ip link set NAME txqueuelen 100)",
    errno.ENETDOWN: "the interface is down (ip link set NAME up)",
    errno.ENODEV: "the interface is gone",
    errno.ENXIO: "the interface is gone",
}

_FULL = frozenset({errno.ENOBUFS, errno.EAGAIN})

_RETRY = 50_000  # [ns] interval between two tries to send into a full queue


def _numbers(error: Exception) -> list[int | None]:
    return [getattr(each, name, None) for each in (error, error.__cause__) for name in ("error_code", "errno")]


def _reason(error: Exception) -> str:
    for number in _numbers(error):
        if number in _REASONS:
            return _REASONS[number]
    cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
    return f"{str(error).strip() or type(error).__name__}{cause}"


_AGE = SECOND // 10
_MOST = 1024


class Echoes:
    """The frames that were sent lately, each expected to come back once.

    Design: an echo that does not come is given up after 0.1 s. That time is measured between sending and the arrival
    of other frames, so an echo that waited in a queue for a long time is still recognised.
    """

    def __init__(self) -> None:
        self._expected: deque[tuple[int, Frame]] = deque(maxlen=_MOST)

    def add(self, frame: Frame, moment: int) -> None:
        """Expects the echo of a frame that was sent at `moment` [ns]."""
        self._expected.append((moment, _key(frame)))

    def take(self, frame: Frame) -> bool:
        """Whether a received frame is an expected echo; it is then no longer expected."""
        expected, key = self._expected, _key(frame)
        while expected and expected[0][0] < frame.time - _AGE:
            expected.popleft()
        for index, (_, each) in enumerate(expected):
            if each == key:
                del expected[index]
                return True
        return False


def _key(frame: Frame) -> Frame:
    """What a frame and its echo have in common."""
    return frame._replace(length=frame.length if frame.remote else 0, error=False, time=0, brs=False)
