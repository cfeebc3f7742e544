"""Whether the loop computes on this machine what it computed where servoctl was tested.

Design: a run on emulated drives repeats to the bit. The frames of one are shipped: the loop gets those that it received
then, at the same times, and must send the same ones, from the bring-up until the drives are off. So the tick, compiled
by this machine's compiler, has gone through every stage before a real bus opens.
"""

from collections import deque
from functools import partial
from itertools import zip_longest
from pathlib import Path

import hil
from hil.assembly.emulation import POWER_UP, Environment
from hil.assembly.prepare import load
from hil.bus import Bus, Health
from hil.frame import Frame
from hil.loop import SECOND, nanoseconds
from hil.loop.clock import VirtualClock, World
from hil.recorder import read_frames
from hil.safety.plan import Phase
from hil.session.run import HilRun
from servoctl.config.overrides import Override
from servoctl.engine import compiler
from servoctl.errors import RigError

CONFIG = "two_mass_spring_drive"
SHORT = ("hil.safety.zero_time=0.02", "hil.safety.ramp_time=0.1")
"""The bring-up takes 0.12 s instead of 0.7 s."""
PLANT = f'plant.class="{(Path(hil.__file__).parents[1] / "plants" / "two_mass_spring.py").as_posix()}:TwoMassSpring"'
"""Its class by the file: a user may have a package of the name `plants`."""
DURATION = 0.1  # [s] time in the task
RECORDED = Path(__file__).parent / "recorded"  # folder with the frames


class PlayedBus(Bus):
    """A bus on which recorded frames arrive when they did, whatever is sent."""

    def __init__(self, name: str, world: World, frames: list[Frame]) -> None:
        self.name, self._world = name, world
        self.sent: list[Frame] = []  # what was sent, with the time [ns]
        self._inbox: deque[Frame] = deque()
        for frame in frames:
            world.at(frame.time, partial(self._inbox.append, frame))

    def send(self, frame: Frame) -> None:
        self.sent.append(frame.at(self._world.now))

    def receive(self, until: int) -> Frame | None:
        return self._inbox.popleft() if self._inbox or self._world.advance(until, self._inbox) else None

    @property
    def health(self) -> Health:
        return Health()

    def close(self) -> None: ...


def first_difference(overrides: tuple[Override, ...] = (), engine: str = "auto") -> str:
    """Plays the recorded run, with changes of its config; the first frame that differs, in words, or nothing."""
    recorded = list(read_frames(RECORDED))
    setup, world = load(CONFIG, (*SHORT, PLANT, *overrides), engine), World()
    (name,) = setup.settings.buses
    bus = PlayedBus(name, world, [frame for _, sent, frame, _ in recorded if not sent])
    environment = Environment({name: bus}, VirtualClock(world), emulated=True, lockstep=True)
    environment.clock.sleep_until(nanoseconds(POWER_UP))
    HilRun(setup, environment, Phase.FULL, DURATION).run(None, lambda event: None)
    expected = [frame.at(time) for _, sent, frame, time in recorded if sent]
    pairs = enumerate(zip_longest(expected, bus.sent), start=1)
    return next(
        (f"frame {number}: expected {_in_words(e)}, sent {_in_words(s)}" for number, (e, s) in pairs if e != s), ""
    )


def _in_words(frame: Frame | None) -> str:
    return "none" if frame is None else f"{frame} at {frame.time / SECOND:.6f} s"


def require_equal(engine: str) -> str:
    """Plays the recorded run, before real drives may be enabled; returns a note on it.

    RigError if a frame differs: nothing that this machine computes is to be trusted.
    """
    if difference := first_difference(engine=engine):
        raise RigError(
            f"hil: this machine does not compute what was tested: a recorded run of {CONFIG}, played again, differs: "
            f"{difference} (no bus was opened; try servoctl doctor --clear-cache, then another compiler than "
            f"{' '.join(compiler.identity().split())})"
        )
    return f"a recorded run of {CONFIG}, played again on this machine, sent the same frames to the bit"
