"""The emulation of a protocol: which classes stand in for its nodes, and which one reads the commands to them."""

from typing import NamedTuple

from hil.emulator.commands import CommandReader
from hil.emulator.node import EmulatedDrive, EmulatedNode


class Twin(NamedTuple):
    """The emulation of a protocol.

    Attributes:
        drive: Class of an emulated drive.
        reader: Class that reads the loop's commands to a drive; it shares no code with `drive`.
        sensor: Class of an emulated encoder node; None if the protocol has none.
    """

    drive: type[EmulatedDrive]
    reader: type[CommandReader]
    sensor: type[EmulatedNode] | None = None
