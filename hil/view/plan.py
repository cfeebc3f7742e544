"""What the loop and the page's process agree on."""

import signal
from typing import Any, NamedTuple

from hil.recorder.memory import Capacity

SIGNAL = signal.SIGUSR1
"""Tells the loop that the stop was pressed, whatever it is doing."""

LINGER = 2.0
"""How long viewers have to see the last picture [s]."""


class Drawn(NamedTuple):
    """A plant on its way to the page's process.

    Attributes:
        pickled: The plant.
        module: Name of the module that its class is of.
        path: `file.py:Name` of a class that is in a file of the user's, which the process must load by itself; empty
            where the module can be imported by its name.
    """

    pickled: bytes
    module: str
    path: str


class PageSettings(NamedTuple):
    """What the process is started with.

    Attributes:
        memory: Descriptor of the recorder's memory.
        capacity: Of its rings.
        wishes: Descriptor of the memory of wishes.
        columns: Of a row, in order.
        bitrates: Name of a bus -> its bit rate [bit/s].
        gains: Path of a gain -> its bounds.
        about: What else the page begins with; plain values.
        plant: The plant, to be drawn; None where it cannot be.
        parent: Process id of the loop.
    """

    memory: int
    capacity: Capacity
    wishes: int
    columns: list[str]
    bitrates: dict[str, float]
    gains: dict[str, tuple[float, float]]
    about: dict[str, Any]
    plant: Drawn | None
    parent: int
