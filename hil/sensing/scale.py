"""Whether the positions of a node move as fast as its speeds say: wrong counts per turn, units and signs show here.

    |y(t) - y(t0) - int y' dt|  >  SHARE int |y'| dt + errors of two positions and of the speed

Design: a pure function of the axis's memory and an accepted sample. A window that holds too little motion to tell a
scale of 4 apart goes on. The path, not the displacement, is the measure, so a vibration whose speed lags is no finding.
"""

import math
from typing import NamedTuple

from hil.drives.base import Sample
from hil.loop.clock import SECOND
from hil.sensing.channels import Channel

WINDOW = 0.03  # [s] shortest time over which motion and speed are compared
LONGEST = 0.3  # [s] time after which a window without enough motion starts again
SHARE = 0.4  # allowed difference as a share of the path: filtered speeds lag, above all when a motion begins
ENOUGH = 3.0  # a window can be judged when its path is this many times the errors of its samples
TOLD = 0.5  # a window whose displacement is less than this share of its path, as the motion turns back, tells nothing
GAP = 3.0  # intervals without a sample after which a window starts again: the speed between is not known
IN_A_ROW = 2  # consecutive windows that stop the machine


class ScaleMemory(NamedTuple):
    """What a window has gathered."""

    since: int = 0  # [ns] when it began
    position: float = 0.0  # [joint unit] displacement then
    moved: float = 0.0  # [joint unit] integral of the speed
    path: float = 0.0  # [joint unit] integral of its size
    beyond: int = 0  # windows in a row before it in which the two disagreed


def compare(
    channel: Channel, unit: str, memory: ScaleMemory, last: Sample | None, sample: Sample
) -> tuple[ScaleMemory, str]:
    """Adds an accepted sample.

    Args:
        unit: Unit of its displacement.
        memory: Its state before the sample.
        last: The accepted sample before; None: there is none.

    Returns:
        The new state, and what is wrong (empty: nothing).
    """
    begin = ScaleMemory(sample.time, sample.position)
    if last is None or not math.isfinite(last.velocity + sample.velocity):
        return begin, ""
    step = (sample.time - last.time) / SECOND
    if step > GAP * channel.interval:
        return begin, ""
    mean = 0.5 * (last.velocity + sample.velocity)
    moved, path = memory.moved + step * mean, memory.path + step * abs(mean)
    elapsed, travelled = (sample.time - memory.since) / SECOND, sample.position - memory.position
    errors = 2.0 * channel.position_error + channel.speed_error * elapsed
    if elapsed < WINDOW:
        return memory._replace(moved=moved, path=path), ""
    if not abs(travelled - moved) > SHARE * path + errors:
        if path > ENOUGH * errors or elapsed >= LONGEST:
            told = abs(moved) > TOLD * path
            return begin._replace(beyond=0 if told else memory.beyond), ""
        return memory._replace(moved=moved, path=path), ""
    beyond = memory.beyond + 1
    if beyond < IN_A_ROW:
        return begin._replace(beyond=beyond), ""
    return begin._replace(beyond=beyond), (
        f"its position moves by {travelled:+.3g} {unit} in {elapsed:.2g} s, its speed says {moved:+.3g} {unit} (check "
        "counts per turn, unit and sign of the speed, in the drive and in the config)"
    )
