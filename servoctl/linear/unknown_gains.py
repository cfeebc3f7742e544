"""Is a law with gains that no limit knows stable at its period? By its derivatives at the start.

Design: gains of rows are compared with the period in `assembly.gains`, at every state. Of a class or a function of the
user's only the linearised loop knows the gains, frozen at the start. A loop that grows in continuous time too is not
judged here: the period is not its fault.
"""

from typing import NamedTuple

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.gains import has_unknown_gains
from servoctl.linear.convert import state_at
from servoctl.linear.jacobians import local
from servoctl.linear.sampled import LocalLoop, least_stable, timings
from servoctl.mechanics.timing import Timing


class HeldLoop(NamedTuple):
    """A loop that decays in continuous time, with its timing."""

    timing: Timing
    growth: float  # largest factor by which a motion grows from sample to sample; below 1 all decay
    stable: bool

    def __str__(self) -> str:
        if self.stable:
            return f"stable at the start ({self.timing})"
        return (
            f"unstable at the start ({self.timing}): a motion that decays in continuous time grows by a factor of "
            f"{self.growth:.3g} from sample to sample (shorten the period, or lower the gains)"
        )


def held_loops(run: Run) -> list[HeldLoop]:
    """The sampled loops of a law with a class or a function of one's own; none for other laws.

    Raises:
        TaskError: The plant or the law cannot be differentiated.
    """
    held = [timing for timing in timings(run) if timing.period is not None]
    if not held or not has_unknown_gains(run.system):
        return []
    at = local(run, *state_at(run))
    if not LocalLoop(at, Timing(None)).stable:
        return []
    loops = [least_stable(at, timing) for timing in held]
    radii = [float(np.abs(np.linalg.eigvals(loop.matrix)).max(initial=0.0)) for loop in loops]
    return [HeldLoop(loop.timing, radius, loop.stable) for loop, radius in zip(loops, radii, strict=True)]
