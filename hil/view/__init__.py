"""The live page of a run on drives: a separate process shows the data that the recorder gets.

Design: the tick does no work for the page. The page's process maps the recorder's memory read-only and follows its
rings without consuming records. In the other direction there are only two requests: a stop, with a signal so that the
loop gets it at any time, and values for gains, which the loop reads once per tick and checks itself. Anyone with the
address, which contains a token, can send both; the server listens on the loopback interface only.
"""

import signal
from typing import Any, NamedTuple

from hil.recorder.memory import Capacity

SIGNAL = getattr(signal, "SIGUSR1", signal.SIGTERM)  # signal to the loop that the stop button was pressed
LINGER = 2.0  # [s] time limit for viewers to receive the last picture
STOP = -1  # stands for the stop, in place of the number of a gain


class PickledPlant(NamedTuple):
    """A plant that is sent to the page's process."""

    pickled: bytes  # the plant
    module: str  # name of the module of its class
    path: str  # `file.py:Name` if the class is in a user's file, which the process must load by path; otherwise empty


class PageSettings(NamedTuple):
    """What the page's process is started with."""

    memory: int  # file descriptor of the recorder's memory
    capacity: Capacity  # capacity of its rings
    columns: list[str]  # columns of a row, in order
    gains: dict[str, tuple[float, float]]  # path of a gain -> its bounds
    about: dict[str, Any]  # further constant values for the page
    plant: PickledPlant | None  # the plant to be drawn; None: no drawing
    parent: int  # process id of the loop
