"""A CAN frame: what codecs, drives, buses and the emulator exchange."""

from typing import Final


class Frame:
    """An immutable classic CAN frame.

    Attributes:
        id: Arbitration id, 11 bits, or 29 if `extended`; for an error frame the class bits of SocketCAN.
        data: Payload, 0 to 8 bytes.
        extended: Whether the id has 29 bits.
        remote: Whether it asks for data: the payload is empty, and `length` is the number of bytes asked for.
        error: Whether it is the controller's report of an error, and not a frame from the wire.
        length: Data length code of a remote frame; for other frames len(data) holds.
        time: Time at which it was received, on the run's clock [ns]; 0 if it was not received.
    """

    __slots__ = ("data", "error", "extended", "id", "length", "remote", "time")

    def __init__(
        self,
        id: int,
        data: bytes = b"",
        extended: bool = False,
        remote: bool = False,
        error: bool = False,
        length: int = 0,
        time: int = 0,
    ) -> None:
        self.id: Final = id
        self.data: Final = data
        self.extended: Final = extended
        self.remote: Final = remote
        self.error: Final = error
        self.length: Final = length
        self.time: Final = time

    def at(self, time: int) -> "Frame":
        """The same frame, received at this time [ns]."""
        return Frame(self.id, self.data, self.extended, self.remote, self.error, self.length, time)

    def _values(self) -> tuple[int, bytes, bool, bool, bool, int, int]:
        return self.id, self.data, self.extended, self.remote, self.error, self.length, self.time

    def __reduce__(self) -> tuple[type["Frame"], tuple[int, bytes, bool, bool, bool, int, int]]:
        return Frame, self._values()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Frame{self._values()!r}"

    def __str__(self) -> str:
        kind = "error " if self.error else "remote " if self.remote else ""
        return f"{kind}{self.id:0{8 if self.extended else 3}X}#{self.data.hex().upper()}"
