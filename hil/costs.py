"""What a tick of a run in lock-step costs: the processor's time, part by part.

Design: the run is the one that `servoctl hil` makes. Time is taken at borders that it has anyway: while the loop waits,
sends and receives, the emulated world works; the rest is the loop's own.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

from hil.bus import Bus
from hil.emulation import in_lockstep
from hil.place import Place
from hil.prepare import Prepared, load
from hil.rig import CanRig
from hil.run import HilRun
from hil.safety.plan import Stage
from servoctl.loop import Clock

WORLD, READ, DECIDE, WRITE, LOG, REST = (
    "emulated world",
    "read: SYNC, dispatch, sensing",
    "decide: stages, law, safety",
    "write: torques, watchdogs",
    "log: row, timing",
    "the loop itself",
)


class Watch:
    """Processor time by part; what runs inside another part counts for itself alone.

    Attributes:
        spent: Part -> time [s].
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forgets what was."""
        self.spent = dict.fromkeys((WORLD, READ, DECIDE, WRITE, LOG, REST), 0.0)
        self._part, self._since = REST, time.thread_time()

    def turn(self, part: str) -> str:
        """From now on time counts for a part; returns for which it counted before."""
        now, before = time.thread_time(), self._part
        self.spent[before] += now - self._since
        self._part, self._since = part, now
        return before

    def covered(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """A function whose time counts for a part."""

        def call(*arguments: Any) -> Any:
            outer = self.turn(part)
            try:
                return function(*arguments)
            finally:
                self.turn(outer)

        return call


class Watched:
    """An object of which the time in some methods counts for parts."""

    def __init__(self, owner: object, methods: dict[str, Callable[..., Any]]) -> None:
        """Takes the object, and what is called instead of its methods."""
        self._owner = owner
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)


class Costs(NamedTuple):
    """What a run cost.

    Attributes:
        ticks: Number.
        period: Of the loop [s].
        axes: Number of drives.
        time: Processor time of the ticks, taken without looking at the parts [s].
        parts: Part -> processor time [s], taken in another run: to look costs some time itself.
    """

    ticks: int
    period: float
    axes: int
    time: float
    parts: dict[str, float]


class _Costed(HilRun):
    """A run whose ticks are watched."""

    def __init__(self, prepared: Prepared, place: Place, duration: float, watch: Watch, parts: bool) -> None:
        super().__init__(prepared, place, Stage.FULL, duration, None, {})
        self._watch, rig = watch, self._rig

        def start(deadline: int) -> None:
            rig.start(deadline)
            watch.begin()

        methods: dict[str, Callable[..., Any]] = {"start": start}
        if parts:
            methods |= {"read": watch.covered(rig.read, READ), "write": watch.covered(rig.write, WRITE)}
            own = {"_decide": watch.covered(self._decide, DECIDE), "_log": watch.covered(self._log, LOG)}
            self.__dict__.update(own)
        self._rig = cast(CanRig, Watched(rig, methods))

    def _off(self) -> None:
        self._watch.turn(REST)
        self.spent = dict(self._watch.spent)
        super()._off()


def costs(config: str, duration: float, engine: str = "auto") -> Costs:
    """Runs a config in lock-step twice, in memory: once for the time, once for its parts.

    Args:
        config: A path, or the bare name of a shipped config.
        duration: Time in the last stage [s].
        engine: As of `servoctl hil`.

    Raises:
        ConfigError: The config is wrong.
    """
    whole, count, prepared = _spent(config, duration, engine, parts=False)
    parts, _, _ = _spent(config, duration, engine, parts=True)
    period = prepared.settings.values.period
    return Costs(count, period, len(prepared.drives), sum(whole.values()), parts)


def _spent(config: str, duration: float, engine: str, parts: bool) -> tuple[dict[str, float], int, Prepared]:
    """Time by part, number of ticks, and what ran."""
    prepared = load(config, engine=engine)
    place, watch = in_lockstep(prepared, engine), Watch()
    if parts and place.truth is not None:
        buses = {
            name: cast(Bus, Watched(bus, {way: watch.covered(getattr(bus, way), WORLD) for way in ("send", "receive")}))
            for name, bus in place.buses.items()
        }
        clock = Watched(place.clock, {"sleep_until": watch.covered(place.clock.sleep_until, WORLD)})
        truth = watch.covered(place.truth, WORLD)
        place = replace(place, truth=truth, buses=buses, clock=cast(Clock, clock))
    run = _Costed(prepared, place, duration, watch, parts)
    ended = run.run(lambda event: None)
    return run.spent, int(ended.trajectory.metadata["steps"]), prepared
