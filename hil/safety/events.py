"""The events of a run on drives, and the reaction to each."""

from enum import Enum, IntEnum
from typing import NamedTuple

from hil.loop import Implausibility


class Reaction(IntEnum):
    """Reaction to an event, in order of severity."""

    NOTE = 0  # the event is counted, and recorded once
    WARN = 1  # the event is recorded and shown to the operator

    STOP = 2
    """Controlled stop: damping and gravity compensation until the machine stands still, brakes closed, drives off.

    A drive that the loop has lost brakes by itself meanwhile; the brake of an axis in doubt closes at once.
    """

    DISABLE = 3  # no controlled stop: every drive brakes by itself until it stands, where it can, and goes off


class Origin(Enum):
    """Cause of an event; the value is the exit code of a run that the event ends."""

    NOBODY = 0
    RIG = 3
    TASK = 4
    OPERATOR = 130


class Doubt(Enum):
    """What of a drive an event puts in doubt; by it the drive leaves the loop, or is treated in the controlled stop."""

    NOTHING = "nothing"
    ENCODER = "encoder"  # its measurements are not used any more
    TORQUE = "torque"  # its torque may not hold the axis: its brake closes at once
    AXIS = "axis"  # its brake closes as soon as the axis stands, before those of the others
    REACH = "reach"  # the loop may not hear it any more: it brakes by itself


class EventKind(Enum):
    """Every kind of event: its reaction, its origin, its meaning, and what it puts in doubt of the drive."""

    MISSED = (Reaction.NOTE, Origin.RIG, "no sample in the last period and a half")
    STALE = (Reaction.STOP, Origin.RIG, "the last sample is stale")
    LOST = (Reaction.STOP, Origin.RIG, "samples have stopped", Doubt.REACH)
    DRIVE_FAULT = (Reaction.STOP, Origin.RIG, "the drive reports a fault", Doubt.AXIS)
    DRIVE_STATE = (Reaction.STOP, Origin.RIG, "the drive is no longer enabled")
    HEARTBEAT = (Reaction.STOP, Origin.RIG, "the drive's heartbeat has stopped", Doubt.REACH)
    REJECTED = (Reaction.NOTE, Origin.RIG, "an invalid frame was dropped")
    IMPLAUSIBLE = (Reaction.NOTE, Origin.RIG, "an implausible sample was dropped")
    ENCODER = (Reaction.STOP, Origin.RIG, "the encoder is not plausible", Doubt.ENCODER)
    TRACKING = (Reaction.STOP, Origin.RIG, "the machine does not follow its model", Doubt.TORQUE)
    REVERSED = (
        Reaction.STOP,
        Origin.RIG,
        "its torque acts the wrong way: check sign, the order of its phases, and the polarity that is set in the drive",
    )
    BACKWARDS = (
        Reaction.STOP,
        Origin.RIG,
        "its positions count the wrong way: check sign, and the direction that is set in its encoder or drive",
    )
    TORQUELESS = (Reaction.STOP, Origin.RIG, "it falls as if its motor made no torque", Doubt.TORQUE)
    RESPONSE = (
        Reaction.STOP,
        Origin.RIG,
        "it does not move as its torque says: check torque constant, rated_torque, range table, gear, encoder nodes "
        "and model",
    )
    SCALE = (
        Reaction.STOP,
        Origin.RIG,
        "its positions contradict its speeds: check the resolution of its encoder and the units of the drive",
    )
    UNSTEADY = (Reaction.STOP, Origin.RIG, "it does not stand still in stage zero: check its load and the model")
    PROVED = (Reaction.NOTE, Origin.NOBODY, "torque and scale agree with the model")
    UNPROVED = (Reaction.WARN, Origin.NOBODY, "sign and scale of its torque are not confirmed")
    LOAD = (Reaction.WARN, Origin.NOBODY, "the machine carries a load that is not in its model")
    NON_FINITE = (Reaction.STOP, Origin.TASK, "the law has no finite command")
    POSITION = (Reaction.STOP, Origin.TASK, "the joint is beyond its position limits", Doubt.AXIS)
    SPEED = (Reaction.STOP, Origin.TASK, "the joint is faster than its speed limit")
    RUNAWAY = (Reaction.DISABLE, Origin.TASK, "the joint is faster than 1.2 times its speed limit")
    CLAMPED = (Reaction.WARN, Origin.TASK, "the torque was clamped in more than half of the last 0.5 s")
    CLAMPED_STOP = (Reaction.STOP, Origin.TASK, "the torque was clamped in more than half of the last 0.5 s")
    SATURATED = (Reaction.WARN, Origin.RIG, "the drive cannot make the requested torque")
    FADES = (Reaction.WARN, Origin.NOBODY, "it is so fast that the drive may limit its torque")
    UNSEEN = (Reaction.WARN, Origin.NOBODY, "the drive does not show what the config says that it does")
    HOT = (Reaction.WARN, Origin.NOBODY, "the drive gets hot, and may switch off by itself")
    HOT_MOTOR = (Reaction.WARN, Origin.NOBODY, "its motor gets hot, and the drive may switch off by itself")
    SUPPLY = (Reaction.WARN, Origin.NOBODY, "its bus voltage is unusual, and the drive may switch off by itself")
    DRIVE_WARNING = (Reaction.WARN, Origin.NOBODY, "the drive itself warns, and may switch off by itself")
    OVERLOAD = (Reaction.WARN, Origin.NOBODY, "its motor is loaded for long, and the drive may limit its torque")
    BUS = (Reaction.STOP, Origin.RIG, "the bus is down", Doubt.REACH)
    BUS_PASSIVE = (Reaction.STOP, Origin.RIG, "the bus has many errors")
    NOT_STOPPED = (Reaction.WARN, Origin.NOBODY, "it still moves at the end of stop_time: the controlled stop ends")
    STOPS_OTHERWISE = (Reaction.WARN, Origin.NOBODY, "it is not certain how the drive stops by itself")
    BUS_WARNING = (Reaction.WARN, Origin.RIG, "the bus has errors")
    OVERRUN = (Reaction.NOTE, Origin.RIG, "periods were skipped")
    OVERRUNS = (
        Reaction.STOP,
        Origin.RIG,
        "too many periods were skipped: grant real-time rights (servoctl doctor), stop other programs or set a longer "
        "hil.period",
    )
    REALTIME = (Reaction.WARN, Origin.NOBODY, "not granted for real time")
    TASK = (Reaction.STOP, Origin.TASK, "the law cannot do the task")
    NOT_ENGAGED = (Reaction.STOP, Origin.TASK, "the task errors did not fall below engage_tolerance")
    START_POSE = (Reaction.DISABLE, Origin.RIG, "the encoders contradict the start pose")
    FOREIGN = (Reaction.STOP, Origin.RIG, "another master commands the drive")
    CALIBRATION = (Reaction.STOP, Origin.RIG, "the calibration is refused")
    HANDSHAKE = (Reaction.DISABLE, Origin.RIG, "the drive refuses, or does not answer in time")
    UNMET = (Reaction.WARN, Origin.TASK, "the task was missed over most of the run")
    INTERRUPTED = (Reaction.STOP, Origin.OPERATOR, "the operator stops the run")
    EXCEPTION = (Reaction.DISABLE, Origin.RIG, "the loop has failed")
    NOT_CONFIRMED = (Reaction.WARN, Origin.RIG, "THE DRIVE DID NOT CONFIRM THAT IT IS OFF: use the emergency stop")
    NEVER_ENABLED = (
        Reaction.WARN,
        Origin.NOBODY,
        "this run never enabled the drive and sent it no torque; the drive did not report whether another master has "
        "enabled it",
    )
    RECORDER = (Reaction.WARN, Origin.RIG, "the record is incomplete")
    EMULATOR = (Reaction.WARN, Origin.NOBODY, "how late the emulated drives were")
    GAIN = (Reaction.NOTE, Origin.NOBODY, "the operator asks for another gain")
    VIEW = (Reaction.WARN, Origin.NOBODY, "the live page has ended; the run continues")
    STAGE = (Reaction.NOTE, Origin.NOBODY, "")

    def __init__(self, reaction: Reaction, origin: Origin, meaning: str, doubt: Doubt = Doubt.NOTHING) -> None:
        self.reaction, self.origin, self.meaning, self.doubt = reaction, origin, meaning, doubt


def kind_of(finding: Implausibility) -> EventKind:
    """Kind of event that a finding of the sensing raises."""
    if finding.kind.reversed:
        return EventKind.REVERSED
    if finding.kind.motion:
        return EventKind.TRACKING if finding.stops else EventKind.LOAD
    return EventKind.ENCODER if finding.stops else EventKind.IMPLAUSIBLE


class Event(NamedTuple):
    """One event of a run."""

    time: int  # time on the run's clock [ns]; never before the event that was reported last
    kind: EventKind  # kind of event
    subject: str  # name of the drive, bus or row that it concerns; may be empty
    detail: str  # numbers with units; may be empty

    def __str__(self) -> str:
        """The event as a sentence for the operator."""
        subject = f"{self.subject}: " if self.subject else ""
        if not self.kind.meaning:
            return f"{subject}{self.detail}"
        return f"{subject}{self.kind.meaning}" + (f" ({self.detail})" if self.detail else "")
