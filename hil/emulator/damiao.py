"""The registers of an emulated Damiao drive, as its owner's tools read and write them: see `hil.codecs.damiao`."""

import struct
from collections.abc import Callable, Mapping

from hil.codecs import damiao as codec

ESC_ID, GEAR, P_MOTOR, X_OUT = 8, 20, 80, codec.LAST

_WRITABLE = frozenset({*range(11), *range(21, 36)})
_KNOWN = frozenset({*range(37), *range(50, 57), *range(59, 66), P_MOTOR, X_OUT})

_USUAL = {0: 15.0, 1: 0.9, 2: 100.0, 3: 0.9, 6: 30.0, 14: 5013, 16: 14, GEAR: 10.0, 29: 32.0, 30: 1.0, 60: 24.0,
          61: 25.0, 62: 25.0}  # fmt: skip
"""Values of registers that have no effect here: voltages, temperatures, versions."""


class EmulatedRegisters:
    """Registers and the requests about them.

    Args:
        node: Id of the drive.
        values: Register -> its value at power-on, of those that have an effect.
        position: Position of the shaft [rad].
        refresh: Sends a reply as to a command.
        written: Called after a write with the register.
    """

    def __init__(
        self,
        node: int,
        values: Mapping[int, float],
        position: Callable[[], float],
        refresh: Callable[[], None],
        written: Callable[[int], None],
    ) -> None:
        self._node, self._position, self._refresh, self._written = node, position, refresh, written
        # register -> value
        self.values: dict[int, float] = {**dict.fromkeys(_KNOWN, 0.0), **_USUAL, ESC_ID: node, **values}

    def answer(self, data: bytes) -> bytes | None:
        """The answer to a request; None: it is for another drive, or has no answer of its own."""
        if len(data) < 4 or data[0] | data[1] << 8 != self._node:
            return None
        command, register = data[2], data[3]
        if command == codec.REFRESH:
            self._refresh()
        elif command == codec.SAVE:
            return data[:4].ljust(8, b"\0")
        elif register in _KNOWN and command == codec.READ:
            if register in (P_MOTOR, X_OUT):
                self.values[register] = self._position()
            return data[:4] + self._packed(register)
        elif register in _WRITABLE and command == codec.WRITE and len(data) == 8:
            self.values[register] = struct.unpack_from("<I" if register in codec.COUNTS else "<f", data, 4)[0]
            self._written(register)
            return data[:4] + self._packed(register)
        return None

    def _packed(self, register: int) -> bytes:
        value = self.values[register]
        return struct.pack("<I", int(value)) if register in codec.COUNTS else struct.pack("<f", value)
