"""How drives are asked for temperature, supply and load now and then, where no frame of each tick brings them."""

from collections.abc import Sequence
from itertools import count
from math import ceil, isnan, nan

from hil.bus.load import FrameTraffic
from hil.drives.base import Drive, HandshakeStep, Steps
from hil.drives.quantities import FIRST_GAUGE, Quantity
from hil.drives.wire import Feeds
from hil.frame import Frame

PATIENCE = 0.1  # time for the first answer [s]; a drive that gives none is asked no more


def polls(frames: Sequence[Frame], every: float | None, period: float, node: int) -> tuple[Feeds, ...]:
    """The frames, each once in a time; drives with different node ids are asked in different ticks.

    Args:
        frames: Frames that ask.
        every: That time [s]; None: they are not sent.
        period: Period of the loop [s].
        node: Id of the drive.
    """
    if every is None:
        return ()
    ticks = max(1, round(every / period))
    return tuple(Feeds(frame, ticks, (node + i) % ticks) for i, frame in enumerate(frames))


def traffic(frames: Sequence[FrameTraffic], every: float | None, period: float) -> list[FrameTraffic]:
    """Questions and answers on the bus, at their rate.

    Args:
        frames: Questions and answers, of any rate.
        every: Time between two questions of a kind [s]; None: they are not sent.
        period: Period of the loop [s].
    """
    if every is None:
        return []
    rate = 1 / (max(1, round(every / period)) * period)
    return [frame._replace(rate=rate) for frame in frames]


def first_answers(drive: Drive, quantities: Sequence[Quantity], period: float) -> Steps:
    """Asks once, so that the first values are known before the drive is enabled; what gives none is asked no more.

    Args:
        drive: The drive.
        quantities: Of each of its polls one that the answer brings.
        period: Period of the loop [s].
    """
    if not drive.polls:
        return
    places = [quantity - FIRST_GAUGE for quantity in quantities]
    for place in places:
        drive.gauges[place] = nan
    passed, ticks = count(), ceil(PATIENCE / period)

    def seen() -> list[bool]:
        return [not isnan(drive.gauges[place]) for place in places]

    def over() -> bool:
        return all(seen()) or next(passed) >= ticks

    yield HandshakeStep([poll.frame for poll in drive.polls], over, 1.0 + 2 * PATIENCE, "its own state")
    drive.polls = tuple(poll for poll, answered in zip(drive.polls, seen(), strict=True) if answered)
