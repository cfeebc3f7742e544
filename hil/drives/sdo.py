"""How objects of a CANopen node are read and set over SDO, as steps of a handshake.

Design: all objects that the driver uses have at most 4 bytes, which one frame carries (expedited transfer). A request
that is not answered is sent once more.

Source: CiA 301, 7.2.4.3 (transfers, abort codes).
"""

import struct
from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

from hil.codecs import cia402 as codec
from hil.codecs.cia402 import OBJECTS, U32, object_name
from hil.drives.base import DriveError, HandshakeStep
from hil.frame import Frame

T = TypeVar("T")
Transfer: TypeAlias = Generator[HandshakeStep, None, T]  # steps of a transfer, which returns a value

LIMIT = 0.3  # [s] longest time for one answer
ATTEMPTS = 2  # a request may be lost
PAUSE = 0.01  # [s] time between two questions whether an object has a value
ABSENT = (0x0602_0000, 0x0609_0011)  # abort codes: no such object, no such subindex

ABORTS = {  # abort code -> what it says
    0x0504_0001: "Command is not known",
    0x0601_0000: "Unsupported access",
    0x0601_0001: "Object can only be written",
    0x0601_0002: "Object can only be read",
    0x0602_0000: "Object does not exist",
    0x0604_0041: "Object cannot be mapped to the PDO",
    0x0604_0042: "Mapped objects would exceed the PDO",
    0x0604_0043: "Incompatible parameters",
    0x0606_0000: "Hardware error",
    0x0607_0010: "Length of the value does not match",
    0x0609_0011: "Subindex does not exist",
    0x0609_0030: "Value is out of range",
    0x0609_0031: "Value is too high",
    0x0609_0032: "Value is too low",
    0x0800_0000: "General error",
    0x0800_0020: "Value cannot be stored",
    0x0800_0021: "Value cannot be stored because of local control",
    0x0800_0022: "Value cannot be stored in the present state",
}


class AbsentError(DriveError):
    """A node does not have an object."""


class Objects:
    """The objects of one node.

    Each transfer raises DriveError where the drive refuses, does not answer, or keeps another value than was set.
    """

    def __init__(self, node: int) -> None:
        self._request = codec.SDO_REQUEST + node
        self._object = self._answer = b""  # index and subindex that the answer must name, and the answer

    def take(self, data: bytes) -> None:
        """Takes a frame of the node's SDO server; late answers to other requests are left out."""
        if len(data) == 8 and data[1:4] == self._object:
            self._answer = data

    def read(self, index: int, sub: int = 0) -> Transfer[int]:
        what, form = f"{object_name(index, sub)} cannot be read", OBJECTS[index, sub][1]
        answer = yield from self._ask(what, codec.sdo_request(index, sub))
        if answer[0] & codec.UPLOADED_BITS != codec.UPLOADED:
            raise DriveError(f"{what}: its answer is no expedited upload (command 0x{answer[0]:02X})")
        size = 4 - (answer[0] >> 2 & 3) if answer[0] & 1 else 4
        if size < form.size:  # some drives send more than the object has
            raise DriveError(f"{what}: it has {size} bytes, expected {form.size}")
        return int(form.unpack_from(answer, 4)[0])

    def write(self, index: int, value: int, sub: int = 0) -> Transfer[None]:
        what = f"{object_name(index, sub)} cannot be set to {value}"
        try:
            request = codec.sdo_request(index, sub, value)
        except struct.error as error:
            raise DriveError(f"{what}: it has {OBJECTS[index, sub][1].size} bytes") from error
        answer = yield from self._ask(what, request)
        if answer[0] != codec.DOWNLOADED:
            raise DriveError(f"{what}: its answer is none to a download (command 0x{answer[0]:02X})")

    def set(self, index: int, value: int, sub: int = 0) -> Transfer[None]:
        yield from self.write(index, value, sub)
        yield from self.check(index, value, sub)

    def offer(self, index: int, value: int) -> Transfer[bool]:
        """Sets an object and reads it back, if the drive has it; returns whether it has."""
        try:
            yield from self.write(index, value)
        except AbsentError:
            return False
        yield from self.check(index, value)
        return True

    def check(self, index: int, value: int, sub: int = 0, ignored: int = 0) -> Transfer[None]:
        """Reads back what was set; bits in `ignored` may differ."""
        kept = yield from self.read(index, sub)
        if (kept ^ value) & ~ignored:
            raise DriveError(f"{object_name(index, sub)} was set to {value} and reads {kept}")

    def find(self, index: int, sub: int = 0) -> Transfer[int | None]:
        """Reads an object; None if the drive does not have it."""
        try:
            return (yield from self.read(index, sub))
        except AbsentError:
            return None

    def wait(self, index: int, value: int, limit: float) -> Transfer[None]:
        """Reads an object until it has a value; a step that takes longer than `limit` [s] fails."""
        form = OBJECTS[index, 0][1]

        def reads_it() -> bool:
            answer = self._answer
            return bool(answer) and (answer[0] == codec.ABORT or form.unpack_from(answer, 4)[0] == value)

        what = f"{object_name(index)} reads {value}"
        yield from self._ask(what, codec.sdo_request(index), reads_it, PAUSE, max(1, round(limit / PAUSE)))

    def _ask(
        self,
        what: str,
        request: bytes,
        done: Callable[[], bool] | None = None,
        limit: float = LIMIT,
        attempts: int = ATTEMPTS,
    ) -> Transfer[bytes]:
        """Sends a request until an answer has come or `done`; returns the answer, 8 bytes."""
        self._object, self._answer = request[1:4], b""
        expected = what if done else f"{what}: no SDO response"
        came = done or (lambda: bool(self._answer))
        yield HandshakeStep([Frame(self._request, request)], came, limit, expected, attempts, prompt=True)
        answer, self._object = self._answer, b""
        if answer[0] != codec.ABORT:
            return answer
        (code,) = U32.unpack_from(answer, 4)
        text = f"{what}: {ABORTS.get(code, 'it is refused')} (abort code 0x{code:08X})"
        raise AbsentError(text) if code in ABSENT else DriveError(text)
