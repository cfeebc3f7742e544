"""The reaction that each fault requires and its deadline, from the rules of safety, never from what a run did.

Times count from the start of the fault. A rule that counts from a frame, or from the limit of an age, gets one period
more, because so much may pass until the next frame.

Frames lost with probability p: samples that drives send on a timer or at SYNC are less than 0.9 ms old at a tick, so
three must be lost in a row. An MIT reply answers the torque of the previous tick: it is 2.1 ms old, and since a tick
waits 0.6 of a period for a missing reply, two lost in a row give an age of 8.5 ms, above `STALE`. A reply is missing if
the command or the reply is lost, probability 2 p; two drives in the remaining 164 ticks therefore go stale in
8 * 164 p^2 of the runs, 4.9 % for p from 0.1 % to 1 % (24 of 600 did). With CiA 402, where a SYNC may be lost too, it
is 3 * 164 * 8 p^3, 0.1 %; with ODrive it is an eighth of that. No test checks these rates; `by_age` checks each run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from hil.drives.settings import RUNAWAY
from tests.hil.faults.carts.scenario import BEFORE, PERIOD, WATCHDOG, Scenario

GOES_ON = "goes on"

STALE = max(3 * PERIOD, 0.005)
STOP_TIME = 0.2
"""Longest controlled stop [s]; the value in carts.yaml."""
OWN_BRAKING = 0.45
"""Longest time that the loop waits for drives that brake by themselves [s]."""
STOPPED = STOP_TIME + OWN_BRAKING + 0.1
"""Longest time from the ending event to the last drive off, with a controlled stop [s]."""
BRAKING = 0.26
"""Time that a drive needs to brake to standstill by itself: its ramp, and the end of its loop [s]."""
BRING_UP = 5.0
"""Drives are enabled, or refused, within this time [s]."""
FASTEST_CART, SPEED_LIMIT = 1.6, 2.0
"""Largest speed of the carts in the task, and speed limit of their drives [m/s]."""
AT_ONCE = frozenset({"runaway", "start_pose", "handshake", "exception"})
"""Endings without a controlled stop: drives brake by themselves."""
TASK = frozenset({"non_finite", "position", "speed", "runaway", "clamped_stop", "task", "not_engaged"})
"""Endings that the task causes."""


@dataclass(frozen=True)
class Expected:
    """The reaction that a scenario requires.

    Attributes:
        endings: Kinds of events that may end the run; `GOES_ON` if it may go on.
        within: Longest time from the fault to that event [s].
        unheard: Whether a drive may no longer receive our frames, so that its own watchdog must switch it off.
        mute: Whether a drive may be unable to confirm that it is off.
        misled: Largest error of the position that the law gets [m].
        fed: Whether another master may keep a drive on that we can no longer reach.
        off: Longest time from the fault to the last drive off [s]; None: it follows from the ending.
        by_age: Whether the run must end as `stale` exactly if the host got no sample of a node for `STALE`.
        told: Kind of event that must be reported if the run goes on; empty: none.
    """

    endings: frozenset[str]
    within: float = inf
    unheard: bool = False
    mute: bool = False
    misled: float = inf
    fed: bool = False
    off: float | None = None
    by_age: bool = False
    told: str = ""

    def exit_code(self, ending: str, confirmed: bool) -> int:
        """The exit code that the run must have."""
        if not confirmed:
            return 3
        return {GOES_ON: 0, "interrupted": 130}.get(ending, 4 if ending in TASK else 3)

    def off_within(self, scenario: Scenario, ending: str) -> float:
        """Longest time from the fault to the last drive off [s]."""
        if self.off is not None:
            return self.off
        braking = BRAKING if scenario.protocol == "cia402" else 0.0
        reaction = 2 * PERIOD + OWN_BRAKING if ending in AT_ONCE else STOPPED
        return max(self.within + reaction, WATCHDOG + PERIOD + braking if self.unheard else 0.0)


def expected(scenario: Scenario) -> Expected:
    """The reaction that a scenario requires."""
    if scenario.row in BEFORE:
        return Expected(frozenset({"handshake"}), BRING_UP)
    if scenario.estimation and scenario.motion == "at speed" and scenario.row in _LOADS:
        return _MET
    given = _ROWS[scenario.row]
    return given(scenario) if callable(given) else given


def _of(*endings: str, **more: float | bool | str) -> Expected:
    return Expected(frozenset(endings), **more)  # type: ignore[arg-type]


_ON = _of(GOES_ON)
_ASKED = ("mit", "moteus", "robstride")
"""Protocols whose drives report only when asked."""
_STALE = _of("stale", within=STALE + PERIOD)
_DEAF = _of("stale", "bus", "bus_passive", within=STALE + PERIOD, unheard=True, mute=True)
_JUMP = _of("encoder", within=3 * PERIOD, misled=0.02)


def _moving(still: Expected, moving: Expected) -> Callable[[Scenario], Expected]:
    return lambda scenario: moving if scenario.motion == "at speed" else still


def _in_the_hand(floating: Expected, otherwise: Expected) -> Callable[[Scenario], Expected]:
    return lambda scenario: floating if scenario.motion == "floating" else otherwise


def _by_protocol(**each: Expected) -> Callable[[Scenario], Expected]:
    return lambda scenario: each[scenario.protocol]


def _with(given: Expected, **more: float | bool) -> Expected:
    return Expected(**{**vars(given), **more})


def _drive_fault(extra: float = 0.0) -> Expected:
    return _of("drive_fault", within=2 * PERIOD + extra)


def _another_master(scenario: Scenario) -> Expected:
    """Two senders of one id collide: we may be error passive or bus-off before a frame of the other arrives."""
    return _of(
        "foreign",
        "bus",
        "bus_passive",
        within=2 * PERIOD + scenario.faults[0]["period"],
        unheard=True,
        mute=True,
        fed=True,
    )


def _stall(scenario: Scenario) -> Expected:
    """The samples age while the loop stalls, so the run ends as stale, whatever the drives do.

    A stall shorter than the watchdog leaves a drive on, and the loop stops it; our last heartbeat may already be a
    third of the watchdog old when the stall begins.
    """
    duration: float = scenario.faults[0]["for"]
    within = duration + 2 * PERIOD
    if duration < WATCHDOG * 2 / 3 - 2 * PERIOD:
        return _of("stale", within=within)
    if duration < WATCHDOG:
        return _of("stale", "lost", "drive_fault", "drive_state", within=within, unheard=True)
    braking = BRAKING if scenario.protocol == "cia402" else 0.0
    return _of("stale", "lost", "drive_fault", "drive_state", within=within, off=WATCHDOG + PERIOD + braking)


def _drift(scenario: Scenario) -> Expected:
    """If drift and motion together exceed the speed limit, the limit may be noticed first."""
    speed = scenario.faults[0]["rate"] + (FASTEST_CART if scenario.motion == "at speed" else 0.0)
    limits = {"speed": SPEED_LIMIT, "runaway": RUNAWAY * SPEED_LIMIT}
    return _of("encoder", *(kind for kind, limit in limits.items() if speed > limit), within=0.1)


_FAULT = _by_protocol(
    odrive=_drive_fault(),
    cia402=_drive_fault(),
    **dict.fromkeys(_ASKED, _drive_fault(PERIOD)),
)
# two windows of 0.1 s, the first full one after the fault; near the largest speed almost no torque is needed
_WEAK = _moving(_ON, _of("tracking", within=0.4))
# a law with an estimator meets a load and goes on; what cannot be told from a load counts as one, and is reported
_LOADS = ("torque constant wrong", "torque table wrong", "hand pushes")
_MET = _of("tracking", GOES_ON, within=0.4, told="load")
_TWINS = _of(GOES_ON, "stale", "drive_fault", "drive_state", "bus", "bus_passive", within=STALE + 2 * PERIOD)

_ROWS: dict[str, Expected | Callable[[Scenario], Expected]] = {
    # two replies in a row leave one of 8.5 ms, see above
    "one or two samples lost": _by_protocol(
        odrive=_ON, cia402=_ON, **dict.fromkeys(_ASKED, _of(GOES_ON, "stale", by_age=True))
    ),
    "samples lost": _with(_STALE, mute=True),
    "commands lost": _by_protocol(
        odrive=_of("drive_fault", within=WATCHDOG + 2 * PERIOD, unheard=True),
        cia402=_with(_STALE, unheard=True, mute=True),  # it has left NMT operational, and is asked in vain
        **dict.fromkeys(_ASKED, _with(_STALE, unheard=True, mute=True)),
    ),
    "everything lost": _DEAF,
    "frames lost now and then": _of(GOES_ON, "stale", by_age=True),
    "frames late by less than a period": _ON,
    "frames late by many periods": _STALE,
    "frames twice": _ON,
    # at standstill feedback holds the pose, so an old position may differ by more than the encoders' steps
    "old frames again": _of(GOES_ON, "encoder", misled=0.02),
    "frames corrupted now and then": _ON,
    "every frame corrupted": _DEAF,
    "host's cable off": _DEAF,
    "host's cable off for a moment": _with(_DEAF, mute=False),
    "a drive's cable off": _with(_STALE, unheard=True, mute=True),
    "host's bus-off": _of("bus", within=2 * PERIOD, unheard=True, mute=True),
    "host's bus-off with restart": _of("bus", within=2 * PERIOD, unheard=True),
    # the drive is back on the bus after 1.4 ms
    "a drive's bus-off": _by_protocol(
        odrive=_ON,
        cia402=_of("drive_fault", "drive_state", within=STALE + PERIOD),
        **dict.fromkeys(_ASKED, _ON),
    ),
    "babble of low priority": _ON,
    "babble of high priority": _ON,
    "babble that fills the bus": _DEAF,
    "frames of a wrong length": _with(_STALE, mute=True),
    "frames with unknown ids": _ON,
    "another master": _another_master,
    "two nodes of one id": _TWINS,
    "drive fault": _FAULT,
    "drive fault that clears": _FAULT,
    "drive reboots": _STALE,
    "drive's heartbeat missing": _by_protocol(
        odrive=_of("heartbeat", within=2.5 * 0.02 + PERIOD, mute=True),  # only the heartbeat carries its state
        cia402=_of("heartbeat", within=2.5 * 0.1 + PERIOD),
    ),
    "master's heartbeat missing": _of("drive_fault", within=WATCHDOG + 2 * PERIOD, unheard=True),
    "drive silent": _with(_STALE, mute=True),
    "encoder node silent": _STALE,
    "encoder node's cable off": _STALE,
    "encoder node reboots": _STALE,
    "replies late by less than a period": _ON,
    "replies late by many periods": _STALE,
    "drive's clock drifts": _ON,
    "time stamps step": _of(GOES_ON, "stale", "lost"),
    "time stamps ahead, then a drive silent": _with(_of("stale", "lost", within=STALE + PERIOD), mute=True),
    "encoder jumps": _JUMP,
    "encoder jumps back": _JUMP,
    # at standstill a stuck encoder is right, until a second encoder on the same axis sees the smallest motion
    "encoder stuck": _moving(_of(GOES_ON, "encoder"), _of("encoder", within=0.1)),
    "encoder not a number": _STALE,
    "encoder wraps": _JUMP,
    "encoder's sign flips": _JUMP,
    "encoder drifts": _drift,
    "torque derated": _WEAK,
    "torque constant wrong": _WEAK,
    "torque constant wrong by little": _ON,
    "torque table wrong": _WEAK,
    "coupling slips": _WEAK,
    "motor without torque": _WEAK,
    "loop stalls for a moment": _ON,
    "loop stalls for half the watchdog": _stall,
    "loop stalls for almost the watchdog": _stall,
    "loop stalls": _stall,
    # a joint that stands still is blocked unseen, until the law moves it
    "joint blocked": _moving(_of(GOES_ON, "tracking", "encoder"), _of("tracking", "encoder", within=0.4)),
    "hand pushes": _in_the_hand(_ON, _of("tracking", within=0.4)),
    "law says NaN": _in_the_hand(_ON, _of("non_finite", within=PERIOD)),  # a floating machine does not follow the law
    "law says infinity": _of("non_finite", within=PERIOD),
    "law jumps": _in_the_hand(_ON, _of("speed", "runaway", within=0.2)),
    "law raises": _of("exception", within=PERIOD),
    "SIGINT": _of("interrupted", within=2 * PERIOD),
    "SIGTERM": _of("interrupted", within=2 * PERIOD),
    # the bus closes in the tick after the fault, and the next tick notices it after it has waited for samples
    "bus closed": _of("bus", within=3 * PERIOD, unheard=True, mute=True),
}
