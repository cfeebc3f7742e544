"""A CAN frame, as codecs, buses and the emulator hand it on."""

from typing import NamedTuple


class Frame(NamedTuple):
    """A classic CAN frame.

    Attributes:
        id: Arbitration id, 11 bits, or 29 where `extended`; of an error frame the class bits of SocketCAN.
        data: Payload, 0 to 8 bytes.
        extended: Whether the id has 29 bits.
        remote: Whether this asks for data: the payload is empty, `length` says how much is wanted.
        error: Whether the controller reports an error by it: nothing was on the wire.
        length: Data length code of a remote frame; that of others is len(data).
        time: When it was received, on the run's clock [ns]; 0 before it was.
    """

    id: int
    data: bytes = b""
    extended: bool = False
    remote: bool = False
    error: bool = False
    length: int = 0
    time: int = 0

    def __str__(self) -> str:
        kind = "error " if self.error else "remote " if self.remote else ""
        return f"{kind}{self.id:0{8 if self.extended else 3}X}#{self.data.hex().upper()}"
