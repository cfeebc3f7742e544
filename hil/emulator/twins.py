"""The emulation of a protocol: which classes stand in for its nodes, and which one reads the commands to them."""

from typing import NamedTuple

from hil.emulator.commands import CommandReader
from hil.emulator.node import EmulatedDrive, EmulatedNode


class Twin(NamedTuple):
    """The emulation of a protocol."""

    drive: type[EmulatedDrive]  # class of an emulated drive
    reader: type[CommandReader]  # class that reads the loop's commands to a drive; it shares no code with `drive`
    sensor: type[EmulatedNode] | None = None  # class of an emulated encoder node; None if the protocol has none
