"""How objects of a CANopen node are read and set: python-canopen's SDO client, without its threads and its clock.

Design: the client would wait on its own queue for an answer. Here each frame that it sends is followed by
`Exchange.pump` until the answer has come or the time is over, on the run's clock; the client then finds the answer in
its queue, or nothing.
"""

import logging
from types import TracebackType
from typing import Any

import canopen
from canopen.objectdictionary import ObjectDictionaryError

from hil.codecs import cia402 as codec
from hil.drives.base import DriveError, Exchange
from hil.drives.object_dictionary import object_dictionary
from hil.frame import Frame

LIMIT = 0.3  # [s] longest time for one answer
ABSENT = (0x0602_0000, 0x0609_0011)  # abort codes: no such object, no such subindex
_ABORT = 0x80
_NAMED = (1, 2)  # command specifiers whose answer names the object: initiate download, initiate upload

logging.getLogger("canopen").addHandler(logging.NullHandler())  # errors are raised as DriveError


class _Network(canopen.Network):
    """A network of python-canopen that sends through an exchange and waits for the answer there."""

    def __init__(self, exchange: Exchange, node: int) -> None:
        super().__init__()
        self._exchange = exchange
        self._answer = codec.SDO_ANSWER + node
        self._answered = False
        self._object = b""  # index and subindex that the answer must name

    def send_message(self, can_id: int, data: Any, remote: bool = False) -> None:
        self._answered = False
        self._object = bytes(data[1:4]) if data[0] >> 5 in _NAMED else b""
        self._exchange.send(Frame(can_id, bytes(data), remote=remote))
        if data[0] != _ABORT:
            self._exchange.pump(lambda: self._answered, LIMIT)

    def hear(self, frame: Frame) -> None:
        fits = frame.id == self._answer and len(frame.data) == 8 and not (frame.extended or frame.remote or frame.error)
        if fits and frame.data[1:4].startswith(self._object):  # not a late answer to another request
            self._answered = True
            self.notify(frame.id, bytearray(frame.data), frame.time / 1e9)


class Objects:
    """The objects of one node; a context manager that listens to the exchange.

    Args:
        node: Address of the node.
        exchange: The bus.
    """

    def __init__(self, node: int, exchange: Exchange) -> None:
        self._exchange = exchange
        self._network = _Network(exchange, node)
        remote = canopen.RemoteNode(node, object_dictionary())
        self._network.add_node(remote)
        self._sdo = remote.sdo
        self._sdo.RESPONSE_TIMEOUT = 0.0  # the answer has come, or is late
        self._sdo.MAX_RETRIES = 2  # a request may be lost

    def __enter__(self) -> "Objects":
        self._exchange.listeners.append(self._network.hear)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._exchange.listeners.remove(self._network.hear)

    def read(self, index: int, sub: int | None = None) -> int:
        """Reads an object.

        Raises:
            DriveError: The drive refuses, or does not answer.
        """
        try:
            return int(self._variable(index, sub).raw)
        except (canopen.SdoAbortedError, canopen.SdoCommunicationError, ObjectDictionaryError) as error:
            raise self._error("read", index, sub, error) from error

    def write(self, index: int, value: int, sub: int | None = None) -> None:
        """Sets an object.

        Raises:
            DriveError: The drive refuses, or does not answer.
        """
        try:
            self._variable(index, sub).raw = value
        except (canopen.SdoAbortedError, canopen.SdoCommunicationError, ObjectDictionaryError) as error:
            raise self._error(f"set to {value}", index, sub, error) from error

    def set(self, index: int, value: int, sub: int | None = None) -> None:
        """Sets an object and reads it back.

        Raises:
            DriveError: The drive refuses, does not answer, or keeps another value.
        """
        self.write(index, value, sub)
        self.check(index, value, sub)

    def offer(self, index: int, value: int) -> bool:
        """Sets an object and reads it back, if the drive has it; returns whether it has.

        Raises:
            DriveError: The drive refuses, does not answer, or keeps another value.
        """
        try:
            self._variable(index, None).raw = value
        except canopen.SdoAbortedError as error:
            if error.code in ABSENT:
                return False
            raise self._error(f"set to {value}", index, None, error) from error
        except canopen.SdoCommunicationError as error:
            raise self._error(f"set to {value}", index, None, error) from error
        self.check(index, value)
        return True

    def check(self, index: int, value: int, sub: int | None = None, ignored: int = 0) -> None:
        """Reads back what was set; bits in `ignored` may differ.

        Raises:
            DriveError: The drive refuses, does not answer, or keeps another value.
        """
        kept = self.read(index, sub)
        if (kept ^ value) & ~ignored:
            raise DriveError(f"{_name(index, sub)} was set to {value} and reads {kept}")

    def has(self, index: int, sub: int | None = None) -> bool:
        """Whether the drive has the object.

        Raises:
            DriveError: The drive does not answer, or the object has another length.
        """
        try:
            self._variable(index, sub).raw  # noqa: B018
        except canopen.SdoAbortedError as error:
            if error.code in ABSENT:
                return False
            raise self._error("read", index, sub, error) from error
        except (canopen.SdoCommunicationError, ObjectDictionaryError) as error:
            raise self._error("read", index, sub, error) from error
        return True

    @staticmethod
    def name(index: int, sub: int | None = None) -> str:
        """An object in an error: its index and its name."""
        return _name(index, sub)

    def wait(self, index: int, value: int, limit: float) -> None:
        """Reads an object until it has a value.

        Raises:
            DriveError: It has not within `limit` [s].
        """
        for _ in range(max(1, round(limit / 0.01))):
            last = self.read(index)
            if last == value:
                return
            self._exchange.pump(lambda: False, 0.01)
        raise DriveError(f"{_name(index)} reads {last}, not {value}, after {limit} s")

    def _variable(self, index: int, sub: int | None) -> Any:
        entry = self._sdo[index]
        return entry if sub is None else entry[sub]

    def _error(self, verb: str, index: int, sub: int | None, error: Exception) -> DriveError:
        return DriveError(f"{_name(index, sub)} cannot be {verb}: {error}")


def _name(index: int, sub: int | None = None) -> str:
    entry: Any = object_dictionary()[index]
    name = entry.name if sub is None else f"{entry.name}, {entry[sub].name}"
    return f"0x{index:04X}{'' if sub is None else f':{sub}'} ({name})"
