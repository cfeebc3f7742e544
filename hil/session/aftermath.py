"""What an emulated machine does after the end of a run: rows until it rests. Nothing is sent to the drives any more."""

import numpy as np

from hil.loop import SECOND, Tick, nanoseconds
from hil.safety.plan import Phase
from hil.session.parts import RunParts


def record_aftermath(parts: RunParts, ticks: int) -> None:
    """Records rows in stage `over` while time is virtual and a drive is on, a brake open or the machine in motion.

    Args:
        parts: The run, whose drives were told to go off.
        ticks: Number of its ticks.
    """
    environment, rig = parts.environment, parts.rig
    if not (environment.lockstep and rig.sends):
        return
    clock, values = environment.clock, parts.setup.settings.values
    parts.stages.mode, parts.stages.law_torques = Phase.OVER, parts.controller.nothing()
    period, now, nothing = nanoseconds(values.period), clock.now(), np.zeros(len(rig.drives))
    end = now + nanoseconds(values.emulation.after)
    parts.facts["loop_end"] = now / SECOND  # from here on no law is evaluated
    while True:
        reading = rig.listen()
        parts.logbook.add_row(Tick(ticks, now, now, period, 0), reading, nothing, now)
        if environment.settled() or now + period > end:
            return
        ticks, now = ticks + 1, now + period
        clock.sleep_until(now)
