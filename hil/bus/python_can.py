"""Any python-can bus as a bus of ours: nothing waits, nothing runs in a thread, and what is down stays so.

Design: python-can is asked for what is there now and never to wait, where the bus has a file descriptor to wait on: its
own waiting reckons with the system time, which may be set while it waits, and its filters in Python end a drain early.

Time of a frame: the kernel stamps frames with the system time, which may be set too. Only the age of a frame is taken
from that, and only within what is certain: it came after the queue was last seen empty and after the frame before it,
and not later than now. On interfaces that do not stamp with the system time, a frame came when it was taken in.
"""

import errno
import os
import select
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import can

from hil.bus.base import Bus, BusError, Health, Link
from hil.bus.error_frames import report, worse
from hil.bus.raw import Raw, Taken, UnreadableError
from hil.frame import Frame
from hil.loop.clock import SECOND, Clock

RECEIVE_BUFFER = 4 << 20
"""Asked of the kernel [byte]; one classic frame takes about 800 of them."""

_ECHO_AGE = SECOND // 10
_ECHOES = 1024
_SO_RCVBUFFORCE, _SO_MEMINFO, _MEMINFO_DROPS, _MEMINFO_WORDS = 33, 55, 8, 9  # Linux, asm-generic/socket.h

_Key = tuple[int, bytes, bool, bool, int]


class Filter(NamedTuple):
    """Frames that are let in: those whose id equals `id` in the bits of `mask`.

    Attributes:
        id: Arbitration id.
        mask: Bits that count.
        extended: Whether ids of 29 bits are meant, rather than of 11.
    """

    id: int
    mask: int = 0x1FFFFFFF
    extended: bool = False


class PythonCanBus(Bus):
    """A python-can bus, which this closes.

    Attributes:
        name: As the config calls it.
    """

    def __init__(
        self,
        name: str,
        bus: can.BusABC,
        clock: Clock,
        filters: Sequence[Filter] = (),
        *,
        echoes: bool = False,
        system_time: bool = False,
        receive_buffer: int = RECEIVE_BUFFER,
        raw: Callable[[socket.socket], Raw] | None = None,
    ) -> None:
        """Takes an open bus over.

        Args:
            name: As the config calls it.
            bus: Open, and used by nobody else.
            clock: The run's, which goes as fast as the machine's.
            filters: What is let in; none lets everything in. They hold here whether the interface filters or not.
            echoes: Whether the interface hands back what is sent on it.
            system_time: Whether it stamps frames with the system time of their arrival.
            receive_buffer: Size to ask of the kernel [byte].
            raw: What knows the bytes on the bus's socket; None: frames go through python-can.
        """
        self.name = name
        self._bus = bus
        self._clock = clock
        self._filters = tuple(filters)
        self._system_time = system_time
        self._earliest = clock.now()
        self._sent_lately: _Echoes | None = _Echoes() if echoes else None
        self._link, self._reason = Link.ACTIVE, ""
        self._sent = self._received = self._echoes = self._errors = self._refused = self._invalid = self._lost = 0
        self._closed = False
        try:
            self._descriptor: int | None = bus.fileno()
        except NotImplementedError:
            self._descriptor = None
        self._socket = _options(self._descriptor, receive_buffer)
        self._raw = None if raw is None or self._socket is None else raw(self._socket)

    def send(self, frame: Frame) -> None:
        """Hands a frame to the controller, without waiting.

        A bus that was down is tried again: frames that disable a drive may still get through.

        Raises:
            BusError: The bus is down, or the controller's queue is full: which counts as down.
            ValueError: The payload is longer than that of a classic frame.
        """
        if len(frame.data) > 8:
            raise ValueError(f"{frame}: a classic frame has at most 8 bytes, this one {len(frame.data)}")
        length = frame.length if frame.remote else len(frame.data)
        self._must_be_open()
        moment = self._clock.now()
        try:
            if self._raw is None:
                self._bus.send(_message(frame, length), timeout=0.0)
            else:
                self._raw.send(frame)
        except (can.CanError, OSError) as error:
            self._refused += 1
            raise self._down(error) from error
        self._sent += 1
        if self._sent_lately is not None:
            self._sent_lately.add(_key(frame, length), moment)

    def receive(self, until: int) -> Frame | None:
        self._must_be_open()
        while True:
            before = self._clock.now()
            left = (until - before) / SECOND
            message = self._take(0.0 if self._raw is None else left)
            if message is None:
                self._earliest = before
                if before >= until:
                    return None
                message = self._wait(left)
            frame = None if message is None else self._accept(message)
            if frame is not None:
                self._received += 1
                return frame

    @property
    def well(self) -> bool:
        return self._link is Link.ACTIVE and not self._errors

    @property
    def health(self) -> Health:
        if self._socket is not None:
            with suppress(OSError):
                words = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * _MEMINFO_WORDS)
                drops = struct.unpack_from("=I", words, 4 * _MEMINFO_DROPS)[0]
                self._lost = max(0, drops - (0 if self._raw is None else self._raw.dropped))
        return Health(
            self._link,
            self._reason,
            self._sent,
            self._received,
            self._echoes,
            self._errors,
            self._refused,
            self._invalid,
            self._lost,
        )

    def restarted(self) -> None:
        self._link, self._reason = Link.ACTIVE, ""

    def close(self) -> None:
        if not self._closed:
            self._lost = self.health.lost
            self._closed = True
            if self._raw is not None:
                self._raw.close()
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            self._bus.shutdown()

    def _must_be_open(self) -> None:
        if self._closed:
            raise BusError(f"bus {self.name}: closed")

    def _wait(self, timeout: float) -> Taken | None:
        """The next message; None where none came, at the latest after `timeout` [s]."""
        if self._raw is not None:
            return None  # the socket itself has waited
        if self._descriptor is None:
            return self._take(timeout)
        try:
            ready, _, _ = select.select([self._descriptor], [], [], timeout)
        except (OSError, ValueError) as error:
            raise self._down(error) from error
        return self._take(0.0) if ready else None

    def _take(self, timeout: float) -> Taken | None:
        while True:
            try:
                if self._raw is not None:
                    return self._raw.receive(timeout)
                message = self._bus.recv(timeout)
                return None if message is None else _taken(message)
            except UnreadableError:
                self._invalid += 1
                timeout = 0.0  # whoever goes on waiting knows for how long
            except (can.CanError, OSError) as error:
                if not _unreadable(error):
                    raise self._down(error) from error
                self._invalid += 1

    def _accept(self, message: Taken) -> Frame | None:
        """The frame of a message; None where it is nothing for the caller."""
        identity, data, remote, error, dlc = message.id, message.data, message.remote, message.error, message.dlc
        moment = now = self._clock.now()
        if self._system_time:
            moment += message.stamp - time.time_ns()
            if moment > now:
                moment = now
            elif moment < self._earliest:
                moment = self._earliest
        self._earliest = moment
        length = dlc if remote else len(data)
        if message.fd or length > 8 or length != dlc or identity >> (29 if message.extended or error else 11):
            self._invalid += 1
            return None
        frame = Frame(identity, data, message.extended, remote, error, length if remote else 0, moment)
        if self._sent_lately is not None and self._sent_lately.take(_key(frame, length), moment):
            self._echoes += 1
            return None
        if error:
            self._errors += 1
            said = report(frame)
            if worse(said.link, self._link) is said.link:
                self._link, self._reason = said
            return None
        return frame if not self._filters or self._lets_in(frame) else None

    def _lets_in(self, frame: Frame) -> bool:
        return any(frame.extended == each.extended and not (frame.id ^ each.id) & each.mask for each in self._filters)

    def _down(self, error: Exception) -> BusError:
        self._link, self._reason = Link.DOWN, _reason(error)
        return BusError(f"bus {self.name}: {self._reason}")


class _Echoes:
    """What was sent lately, to know it again when it comes back.

    Each frame is expected once. An echo that is lost is given up after a while, by the times at which frames came in,
    so that one that waited in the queue for long is still known.
    """

    def __init__(self) -> None:
        self._order: deque[tuple[int, _Key]] = deque()
        self._expected: Counter[_Key] = Counter()

    def add(self, key: _Key, moment: int) -> None:
        if len(self._order) >= _ECHOES:
            self._forget()
        self._order.append((moment, key))
        self._expected[key] += 1

    def take(self, key: _Key, moment: int) -> bool:
        """Whether a frame that came in at `moment` [ns] is expected; then no longer."""
        while self._order and self._order[0][0] < moment - _ECHO_AGE:
            self._forget()
        if not self._expected[key]:
            del self._expected[key]
            return False
        first = next(index for index, (_, each) in enumerate(self._order) if each == key)
        del self._order[first]
        self._drop(key)
        return True

    def _forget(self) -> None:
        self._drop(self._order.popleft()[1])

    def _drop(self, key: _Key) -> None:
        self._expected[key] -= 1
        if not self._expected[key]:
            del self._expected[key]


def _message(frame: Frame, length: int) -> can.Message:
    return can.Message(
        arbitration_id=frame.id,
        is_extended_id=frame.extended,
        is_remote_frame=frame.remote,
        is_error_frame=frame.error,
        dlc=length,
        data=frame.data,
    )


def _taken(message: Any) -> Taken:
    """What python-can hands on as an interface says it: 0 and 1 may be flags, but not to compiled code."""
    return Taken(
        message.arbitration_id,
        bytes(message.data),
        bool(message.is_extended_id),
        bool(message.is_remote_frame),
        bool(message.is_error_frame),
        message.dlc,
        bool(message.is_fd),
        round(message.timestamp * SECOND),
    )


def _key(frame: Frame, length: int) -> _Key:
    return frame.id, frame.data, frame.extended, frame.remote, length


def _options(descriptor: int | None, receive_buffer: int) -> socket.socket | None:
    """The socket under a bus, its receive buffer enlarged; None where there is no socket, or not Linux's."""
    if descriptor is None or sys.platform != "linux":
        return None
    copy = os.dup(descriptor)
    try:
        own = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)  # no socket: a serial line
        return None
    try:
        own.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, receive_buffer)
    except OSError:
        with suppress(OSError):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    return own


def _unreadable(error: Exception) -> bool:
    """Whether python-can could not make sense of what came in, rather than not get at it."""
    cause = error.__cause__
    return isinstance(error, can.CanOperationError) and cause is not None and not isinstance(cause, OSError)


_REASONS = {
    errno.ENOBUFS: "transmit queue full: nobody acknowledges, or the queue is short (ip link set NAME txqueuelen 100)",
    errno.ENETDOWN: "the interface is down (ip link set NAME up)",
    errno.ENODEV: "the interface is gone",
    errno.ENXIO: "the interface is gone",
}


def _reason(error: Exception) -> str:
    numbers = (getattr(each, name, None) for each in (error, error.__cause__) for name in ("error_code", "errno"))
    for number in numbers:
        if number in _REASONS:
            return _REASONS[number]
    cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
    return f"{str(error).strip() or type(error).__name__}{cause}"
