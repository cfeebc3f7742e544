"""Processor time of a tick in virtual time, part by part.

Design: the run is that of `servoctl hil`. The clock is read where the loop waits, sends and receives: there the
emulated world works. The remaining time belongs to the loop.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, cast

from hil.assembly.emulation import in_lockstep
from hil.assembly.environment import Environment
from hil.assembly.prepare import RigSetup, load
from hil.bus import Bus, Health
from hil.frame import Frame
from hil.loop import Clock, Reading, Rig, WallClock
from hil.safety.plan import Stage
from hil.session.run import HilRun
from hil.tick.ahead import AheadRig
from servoctl.types import Array

REPEATS = 3
"""Runs for the whole time; the median counts."""

RESTED = 3.0
"""Longest paced run [s]."""

WORLD, READ, DECIDE, WRITE, LOG, REST = (
    "emulated world", "read: SYNC, dispatch, sensing", "decide: stages, law, safety", "write: torques, watchdogs",
    "log: row, timing", "the loop itself",
)  # fmt: skip


PARTS = (WORLD, READ, DECIDE, WRITE, LOG, REST)

CALLS = 5000
"""Calls of an empty function that show what it costs to read the clock."""


class Watch:
    """Processor time by part; time of an inner part does not count for the outer one.

    Attributes:
        spent: Part -> time, that of reading the clock included [s].
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Sets all times to zero."""
        self.spent = dict.fromkeys(PARTS, 0.0)
        self._inner, self._outer = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0)
        self._part, self._since = REST, time.thread_time()

    @property
    def net(self) -> dict[str, float]:
        """Part -> time, less that of reading the clock [s]."""
        inside, outside = _clock_costs()
        return {
            part: max(0.0, spent - self._inner[part] * inside - self._outer[part] * outside)
            for part, spent in self.spent.items()
        }

    def turn(self, part: str) -> str:
        """Counts time for a part from now on; returns the part before."""
        now, before = time.thread_time(), self._part
        self.spent[before] += now - self._since
        self._part, self._since = part, now
        return before

    def covered(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """The function, with its time counted for a part."""

        def call(*arguments: Any) -> Any:
            outer = self.turn(part)
            self._inner[part] += 1
            self._outer[outer] += 1
            try:
                return function(*arguments)
            finally:
                self.turn(outer)

        return call


@cache
def _clock_costs() -> tuple[float, float]:
    """What a watched call adds to its own part, and to that of its caller [s]."""
    watch = Watch()
    empty = watch.covered(lambda: None, WORLD)
    for _ in range(CALLS):
        empty()
    watch.turn(REST)
    return watch.spent[WORLD] / CALLS, watch.spent[REST] / CALLS


class _WatchedClock(Clock):
    """A clock that counts waiting as work of the emulated world."""

    def __init__(self, clock: Clock, watch: Watch) -> None:
        self._now, self._sleep_until = clock.now, watch.covered(clock.sleep_until, WORLD)

    def now(self) -> int:
        return self._now()

    def sleep_until(self, moment: int) -> None:
        self._sleep_until(moment)


class _PacedClock(Clock):
    """A virtual clock that keeps pace with the wall clock, so that the processor pauses between ticks."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._wall = clock, WallClock()

    def now(self) -> int:
        return self._clock.now()

    def sleep_until(self, moment: int) -> None:
        self._clock.sleep_until(moment)
        self._wall.sleep_until(moment)


class _WatchedBus(Bus):
    """A bus in the emulated world."""

    def __init__(self, bus: Bus, watch: Watch) -> None:
        self.name, self._bus = bus.name, bus
        self._send, self._receive = watch.covered(bus.send, WORLD), watch.covered(bus.receive, WORLD)
        self._receive_each, self._watch = watch.covered(bus.receive_each, WORLD), watch

    def send(self, frame: Frame) -> None:
        self._send(frame)

    def receive(self, until: int) -> Frame | None:
        frame: Frame | None = self._receive(until)
        return frame

    def receive_each(self, until: int, take: Callable[[Frame], bool]) -> None:
        self._receive_each(until, self._watch.covered(take, READ))

    @property
    def well(self) -> bool:
        return self._bus.well

    @property
    def health(self) -> Health:
        return self._bus.health

    def close(self) -> None:
        self._bus.close()


class _WatchedRig(Rig):
    """A rig that counts reading and writing as parts; time counts from the first tick."""

    def __init__(self, rig: AheadRig, watch: Watch, parts: bool) -> None:
        self._rig, self._watch = rig, watch
        self._read = watch.covered(rig.read, READ) if parts else rig.read
        self._write = watch.covered(rig.write, WRITE) if parts else rig.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rig, name)

    def start(self, deadline: int) -> None:
        self._rig.start(deadline)
        self._watch.begin()

    def read(self, due: int, wait: int) -> Reading:
        reading: Reading = self._read(due, wait)
        return reading

    def write(self, command: Array) -> None:
        self._write(command)

    def stop(self) -> None:
        self._rig.stop()


class TickCosts(NamedTuple):
    """Processor times of a run.

    Attributes:
        ticks: Number of ticks.
        period: Period of the loop [s].
        axes: Number of drives.
        time: Processor time of all ticks, measured without parts [s].
        rested: Processor time of one tick when the processor pauses for the rest of each period [s].
        parts: Part -> processor time [s], from another run; what it takes to read the clock is subtracted.
    """

    ticks: int
    period: float
    axes: int
    time: float
    rested: float
    parts: dict[str, float]


class _Costed(HilRun):
    """A run with watched ticks."""

    def __init__(
        self, prepared: RigSetup, environment: Environment, duration: float, watch: Watch, parts: bool
    ) -> None:
        super().__init__(prepared, environment, Stage.FULL, duration, None, {})
        self._watch = watch
        self.parts.rig = cast(AheadRig, _WatchedRig(self.parts.rig, watch, parts))
        if parts:
            own = {"_decide": watch.covered(self._decide, DECIDE), "_log": watch.covered(self._log, LOG)}
            self.__dict__.update(own)

    def _off(self) -> None:
        self._watch.turn(REST)
        self.spent = self._watch.net
        super()._off()


def costs(config: str, duration: float, engine: str = "auto") -> TickCosts:
    """Runs a config in virtual time and in memory: for the total time, for its parts, and paced for a while.

    Args:
        config: A path, or the bare name of a shipped config.
        duration: Time in the last stage [s].
        engine: As in `servoctl hil`.

    Raises:
        ConfigError: The config is wrong.
    """
    runs = [_spent(config, duration, engine) for _ in range(REPEATS)]
    whole, count, prepared = sorted(runs, key=lambda run: sum(run[0].values()))[REPEATS // 2]
    parts, _, _ = _spent(config, duration, engine, watched)
    rested, few, _ = _spent(config, min(duration, RESTED), engine, _paced)
    period = prepared.settings.values.period
    return TickCosts(count, period, len(prepared.drives), sum(whole.values()), sum(rested.values()) / few, parts)


def own_time(config: str, duration: float, settings: Sequence[str] = (), engine: str = "auto") -> float:
    """Processor time of a tick without the emulated world [s]; see `costs`.

    Args:
        config, duration, engine: As of `costs`.
        settings: As of `--set`.
    """
    parts, ticks, _ = _spent(config, duration, engine, watched, settings)
    return (sum(parts.values()) - parts[WORLD]) / ticks


def _paced(environment: Environment, watch: Watch) -> Environment:
    return replace(environment, clock=_PacedClock(environment.clock))


def watched(environment: Environment, watch: Watch) -> Environment:
    """An environment with a watched emulated world."""
    assert environment.truth is not None
    buses: dict[str, Bus] = {name: _WatchedBus(bus, watch) for name, bus in environment.buses.items()}
    truth = watch.covered(environment.truth, WORLD)
    return replace(environment, truth=truth, buses=buses, clock=_WatchedClock(environment.clock, watch))


def _spent(
    config: str,
    duration: float,
    engine: str,
    change: Callable[[Environment, Watch], Environment] | None = None,
    settings: Sequence[str] = (),
) -> tuple[dict[str, float], int, RigSetup]:
    """Time by part, number of ticks, and the rig; `change=watched` measures the parts."""
    prepared = load(config, settings, engine)
    environment, watch = in_lockstep(prepared, engine), Watch()
    parts = change is watched
    if change is not None:
        environment = change(environment, watch)
    run = _Costed(prepared, environment, duration, watch, parts)
    ended = run.run(lambda event: None)
    return run.spent, int(ended.trajectory.metadata["steps"]), prepared
