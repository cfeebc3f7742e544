"""A CAN frame: what codecs, drives, buses and the emulator exchange."""

from typing import Final, NamedTuple

CLASSIC_SIZE: Final = 8  # [byte] largest payload of a classic frame

FD_SIZES: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64)
"""Sizes of the payload of an FD frame, by data length code [byte]."""


SENT, EXTENDED, REMOTE, ERROR, FD, BRS = 1, 2, 4, 8, 16, 32
"""Flags of a recorded frame: whether the loop sent it, and those of its properties."""


class IdFamily(NamedTuple):
    """Ids that hold data: all that agree in some bits."""

    mask: int  # those bits
    value: int

    def __contains__(self, identity: object) -> bool:
        return isinstance(identity, int) and identity & self.mask == self.value


class Frame(NamedTuple):
    """A CAN frame, classic or FD."""

    id: int  # arbitration id, 11 bits, or 29 if `extended`; for an error frame the class bits of SocketCAN
    data: bytes = b""  # payload, 0 to 8 bytes; for an FD frame as many as one of `FD_SIZES`
    extended: bool = False  # whether the id has 29 bits
    # whether it asks for data: the payload is empty, and `length` is the number of bytes asked for
    remote: bool = False
    error: bool = False  # whether it is the controller's report of an error, and not a frame from the wire
    length: int = 0  # data length code of a remote frame; for others that were checked len(data) holds
    time: int = 0  # time at which it was received, on the run's clock [ns]; 0 if it was not received
    fd: bool = False  # whether it is an FD frame
    brs: bool = False  # whether an FD frame carries its data at the bus's data bit rate (bit rate switch)

    @property
    def flags(self) -> int:
        """Its properties as flags."""
        if not (self.extended or self.remote or self.error or self.fd):
            return 0
        kind = self.extended * EXTENDED | self.remote * REMOTE | self.error * ERROR
        return kind | self.fd * FD | self.brs * BRS

    def at(self, time: int) -> "Frame":
        """The same frame, received at this time [ns]."""
        return Frame(self.id, self.data, self.extended, self.remote, self.error, self.length, time, self.fd, self.brs)

    def __str__(self) -> str:
        kind = "error " if self.error else "remote " if self.remote else ""
        mark = f"##{int(self.brs)}" if self.fd else "#"
        return f"{kind}{self.id:0{8 if self.extended else 3}X}{mark}{self.data.hex().upper()}"


def size_problem(frame: Frame) -> str:
    """Why no frame of its kind has a payload of this size; empty if one has."""
    size = len(frame.data)
    if frame.fd:
        expected = ", ".join(map(str, FD_SIZES))
        return "" if size in FD_SIZES else f"an FD frame has one of {expected} bytes, this one {size}"
    return "" if size <= CLASSIC_SIZE else f"a classic frame has at most {CLASSIC_SIZE} bytes, this one {size}"


def fd_size(size: int) -> int:
    """The smallest payload of an FD frame that holds so many bytes; ValueError if no frame holds them."""
    for each in FD_SIZES:
        if each >= size:
            return each
    raise ValueError(f"an FD frame holds at most {FD_SIZES[-1]} bytes, not {size}")
