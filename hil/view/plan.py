"""What the loop and the page's process agree on."""

import signal
from typing import Any, NamedTuple

from hil.recorder.memory import Capacity

SIGNAL = signal.SIGUSR1
"""Tells the loop that the stop was pressed, whatever it is doing."""

LINGER = 2.0
"""How long viewers have to see the last picture [s]."""


class Plan(NamedTuple):
    """What the process is started with.

    Attributes:
        memory: Descriptor of the recorder's memory.
        capacity: Of its rings.
        wishes: Descriptor of the memory of wishes.
        columns: Of a row, in order.
        bitrates: Name of a bus -> its bit rate [bit/s].
        gains: Path of a gain -> its bounds.
        about: What else the page begins with; plain values.
        plant: The plant, pickled, to be drawn; empty where it cannot be.
        parent: Process id of the loop.
    """

    memory: int
    capacity: Capacity
    wishes: int
    columns: list[str]
    bitrates: dict[str, float]
    gains: dict[str, tuple[float, float]]
    about: dict[str, Any]
    plant: bytes
    parent: int
