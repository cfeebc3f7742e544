"""What the loop tells the live page's process at its start."""

import signal
from typing import Any, NamedTuple

from hil.recorder.memory import Capacity

SIGNAL = signal.SIGUSR1
"""Signal to the loop that the stop button was pressed."""

LINGER = 2.0
"""Time limit for viewers to receive the last picture [s]."""


class PickledPlant(NamedTuple):
    """A plant that is sent to the page's process.

    Attributes:
        pickled: The plant.
        module: Name of the module of its class.
        path: `file.py:Name` if the class is in a user's file, which the process must load by path; otherwise empty.
    """

    pickled: bytes
    module: str
    path: str


class PageSettings(NamedTuple):
    """Parameters of the page's process.

    Attributes:
        memory: File descriptor of the recorder's memory.
        capacity: Capacity of its rings.
        requests: File descriptor of the memory of `Requests`.
        columns: Columns of a row, in order.
        bitrates: Name of a bus -> its bit rate [bit/s].
        gains: Path of a gain -> its bounds.
        about: Further constant values for the page.
        plant: The plant to be drawn; None: no drawing.
        parent: Process id of the loop.
    """

    memory: int
    capacity: Capacity
    requests: int
    columns: list[str]
    bitrates: dict[str, float]
    gains: dict[str, tuple[float, float]]
    about: dict[str, Any]
    plant: PickledPlant | None
    parent: int
