"""Sentences for what sensing finds wrong: C finds it and says it as a code with numbers."""

from collections.abc import Sequence
from typing import Any

from hil.core.constants import Cause, Found
from hil.loop.tick import Implausibility

SENTENCES = {
    Found.POSITION: "position is not a finite number ({0})",
    Found.VELOCITY: "velocity is not a finite number ({0})",
    Found.JUMP: "encoder jumped: {0:+.4g} {unit} in {1:.3g} ms, at most {2:.3g} {unit} are possible",
    Found.STUCK: "encoder stands still at {0:.6g} {unit} for {1:.3g} s while the model moves by {2:.3g} {unit} "
    "(the encoder is stuck, or the joint is blocked)",
    Found.SCALE: "its position moves by {0:+.3g} {unit} in {1:.2g} s, its speed says {2:+.3g} {unit} (check counts per "
    "turn, unit and sign of the speed, in the drive and in the config)",
    Found.CONTRADICTION: "encoders contradict each other: residual {0:+.3g} {unit}, at most {1:.3g} is possible",
    Found.LOST: "its motion shows nothing of the {0:+.3g} that was sent (no power, safe torque off, a wrong mode, or a "
    "coupling that slips)",
    Found.AGAINST: "it moves against the {0:+.3g} that was sent, unless a load drives it; it was not proved before",
    Found.NOT_MADE: "it reports {0:+.3g} where {1:+.3g} was sent (no power, safe torque off, a wrong mode, or a wrong "
    "rated torque or range table)",
    Found.DISTURBANCE: "its motion needs {0:+.3g} more than the torque sent, at most {1:.3g} is allowed: {cause}",
    Found.CHANGE: "its motion needs {0:+.3g} more than {1:g} s before: {cause}",
}

CAUSES = {
    Cause.NONE: "",
    Cause.BLOCKED: "the joint is blocked: it stands still whatever torque is added (brake, end stop, or its encoder)",
    Cause.PART: "{2:.0f} % of its torque arrives: a coupling that slips, or a wrong constant",
    Cause.ALONE: "a load on this joint alone, or torque that does not arrive",
    Cause.LOAD: "a load that the model does not have",
}

REMEDY = (
    "check torque constant, rated_torque, range table, gear and coupling of the drive, and the load in the model; "
    "or raise hil.safety.tracking"
)


def implausibility(verdict: Any, names: Sequence[str], units: Sequence[str] = ()) -> Implausibility:
    """The finding of a `sense_verdict`; `names` and `units` are those of the channels."""
    found, channel, stops = Found(verdict.found), verdict.channel, bool(verdict.stops)
    numbers, motion = list(verdict.numbers), found >= Found.LOST
    cause, unit = CAUSES[Cause(verdict.cause)].format(*numbers), "" if motion else units[channel]
    reason = SENTENCES[found].format(*numbers, unit=unit, cause=cause)
    if found is Found.DISTURBANCE or (found is Found.CHANGE and stops):
        reason += f": {REMEDY}"
    return Implausibility(
        names[channel], reason, stops, motion, torqueless=found is Found.LOST, reversed=found is Found.AGAINST
    )
