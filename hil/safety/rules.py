"""The rules that are judged at every tick: what is measured, its limits, for how long, in which phases, which event.

Design: one table for Python and C. C compares the same numbers with the same limits, and gives a tick back as soon as
one is outside them; Python then judges that tick and counts how long. So a rule that is added here runs in every tick.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite, isnan
from typing import NamedTuple

from hil.drives.base import Drive, Node
from hil.drives.settings import GAUGES, RUNAWAY, Gauge, Quantity, gauge_limits
from hil.loop import SECOND, nanoseconds
from hil.safety.events import EventKind, Reaction
from hil.safety.plan import ENDING, Phase
from servoctl.config.hil import Safety

MISSING_HEARTBEATS = 2.5  # Heartbeat periods without a heartbeat after which the drive counts as dead

EVERYWHERE = frozenset(Phase) - frozenset(ENDING)
"""All phases in which something can still be ordered: after the controlled stop an event ends nothing more."""
COMMANDED = EVERYWHERE - {Phase.SHADOW, Phase.CALIBRATE}
"""Phases in which this run commands the drives; in the others another master may."""
TRUSTING = EVERYWHERE - {Phase.CALIBRATE}
"""Phases in which a rejected sample is wrong; a calibration is there for signs and zeros that are."""
STARTED = COMMANDED - {Phase.WAITING}


class Rule(NamedTuple):
    """A rule for one number of one node; a number that is NaN breaks none."""

    kind: EventKind  # event that it reports
    subject: str  # name of the node
    # what is judged: `position`, `speed` and `torque` of the joint [their units], `age` of its last accepted sample and
    # `silence` since its last sign of life [s], or a gauge
    measured: str
    node: int  # whose, as an index into drives and encoder nodes
    # lower, upper: limits
    lower: float
    upper: float
    tell: Callable[[float], str]  # number -> detail of the event
    ticks: int = 1  # ticks in a row beyond a limit from which on it is reported
    phases: frozenset[Phase] = STARTED  # phases in which it holds

    @property
    def waits(self) -> bool:
        """Whether it judges an age, which grows until the tick is decided."""
        return self.measured in ("age", "silence")

    @property
    def once(self) -> bool:
        """Whether it is judged no more after its first event: a drive stays hot for long."""
        return self.kind.reaction is Reaction.WARN


@dataclass(frozen=True)
class SafetyBounds:
    """Limits beyond which an event is reported."""

    period: float  # [s] period of the loop
    safety: Safety

    @cached_property
    def missed_age(self) -> int:
        """Age of a sample after which one was missed [ns]."""
        return nanoseconds(1.5 * self.period)

    @cached_property
    def stale_age(self) -> int:
        """Age of a stale sample, at least three periods [ns]."""
        return nanoseconds(max(3 * self.period, self.safety.stale))

    @cached_property
    def lost_age(self) -> int:
        """Age after which samples count as lost, at least ten periods [ns]."""
        return nanoseconds(max(10 * self.period, self.safety.lost))


def rules_of(
    drives: Sequence[Drive], sensors: Sequence[Node], bounds: SafetyBounds, units: Sequence[str]
) -> tuple[Rule, ...]:
    """The rules of a rig; `units`: unit of each drive's displacement, for the sentences."""
    rules = [rule for i, node in enumerate((*drives, *sensors)) for rule in _ages(node.settings.name, i, bounds)]
    for i, drive in enumerate(drives):
        rules += _motion(drive, i, f" {units[i]}")
        if drive.heartbeat is not None:
            silent, name = MISSING_HEARTBEATS * drive.heartbeat, drive.settings.name
            rules.append(
                Rule(EventKind.HEARTBEAT, name, "silence", i, 0.0, silent, "{:.3f} s ago".format, 1, COMMANDED)
            )
    return tuple(rules)


def _ages(name: str, node: int, bounds: SafetyBounds) -> list[Rule]:
    def rule(kind: EventKind, most: int) -> Rule:
        return Rule(kind, name, "age", node, 0.0, most / SECOND, _milliseconds, 1, TRUSTING)

    stale, lost = bounds.stale_age - 1, bounds.lost_age - 1  # from these ages on, not only beyond them
    return [rule(EventKind.MISSED, bounds.missed_age), rule(EventKind.STALE, stale), rule(EventKind.LOST, lost)]


def _milliseconds(age: float) -> str:
    return f"{age * 1e3:.1f} ms old"


def _motion(drive: Drive, node: int, unit: str) -> list[Rule]:
    settings = drive.settings
    (lower, upper), most, rate = settings.position_limits, settings.speed_limit, f"{unit}/s"

    def speed(kind: EventKind, limit: float, ticks: int) -> Rule:
        def tell(value: float) -> str:
            return f"{abs(value):.4g}, limit {most:.4g}{rate}"

        return Rule(kind, settings.name, "speed", node, -limit, limit, tell, ticks)

    def tell(value: float) -> str:
        return f"{value:.7g}, limits {lower:.7g} to {upper:.7g}{unit}"  # it may be beyond by one step of the encoder

    return [
        Rule(EventKind.POSITION, settings.name, "position", node, lower, upper, tell),
        speed(EventKind.RUNAWAY, RUNAWAY * most, 1),
        speed(EventKind.SPEED, most, 2),  # one fast sample may be noise
    ]


def assumption_rules(drives: Sequence[Drive], buses: Collection[str]) -> tuple[Rule, ...]:
    """The rules for settings that the config leaves out, of drives on these buses, where they limit the torque."""
    rules = []
    for i, drive in enumerate(drives):
        if drive.settings.bus in buses and isfinite(most := drive.assumed_speed):
            name, tell = drive.settings.name, partial(_assumed, drive)
            rules.append(Rule(EventKind.FADES, name, "speed", i, -most, most, tell, 2, COMMANDED))
    return tuple(rules)


def _assumed(drive: Drive, speed: float) -> str:
    return f"{abs(speed):.4g}; {drive.assumption}"


GAUGE_EVENTS = {
    Quantity.TEMPERATURE: EventKind.HOT,
    Quantity.MOTOR_TEMPERATURE: EventKind.HOT_MOTOR,
    Quantity.SUPPLY: EventKind.SUPPLY,
    Quantity.LOAD: EventKind.OVERLOAD,
    Quantity.WARNING: EventKind.DRIVE_WARNING,
}


def gauge_rules(drives: Sequence[Drive]) -> tuple[Rule, ...]:
    """The rules for temperatures, supply and load of drives whose bring-up is over: the first voltage is known then."""
    return tuple(
        _gauge_rule(drive, i, gauge)
        for i, drive in enumerate(drives)
        for gauge in GAUGES
        if gauge.quantity in drive.shows
    )


def _gauge_rule(drive: Drive, node: int, gauge: Gauge) -> Rule:
    lower, upper = gauge_limits(drive.settings.warn_at, gauge, drive.gauges[gauge.place])
    unit = gauge.unit and f" {gauge.unit}"

    def tell(value: float) -> str:
        return f"{gauge.meaning} {value:.4g}{unit}, warning at {lower if value < lower else upper:.4g}{unit}"

    kind = GAUGE_EVENTS[gauge.quantity]
    return Rule(kind, drive.settings.name, gauge.name, node, lower, upper, tell, 1, COMMANDED)


def hidden_gauges(drive: Drive) -> list[str]:
    """What the drive shows by the config, and has not shown during its bring-up, in words."""
    return [gauge.meaning for gauge in GAUGES if gauge.quantity in drive.shows and isnan(drive.gauges[gauge.place])]
