"""The events of a run on drives and the reaction to each."""

from enum import Enum, IntEnum
from typing import Any, NamedTuple


class Reaction(IntEnum):
    """What follows an event, in order of severity."""

    NOTE = 0
    """Counted, and written down once."""

    WARN = 1
    """Written down, and said to the operator."""

    STOP = 2
    """Controlled stop: damping and what holds the pose, until the machine stands; then every drive off."""

    DISABLE = 3
    """Every drive brakes by itself where it can, and goes off, at once."""


class Origin(Enum):
    """Whose fault an event is; the value is the exit code of a run that it ends."""

    NOBODY = 0
    RIG = 3
    TASK = 4
    OPERATOR = 130


class EventKind(Enum):
    """Every event: reaction, whose fault, and what it means."""

    MISSED = (Reaction.NOTE, Origin.RIG, "no sample in the last period and a half")
    STALE = (Reaction.STOP, Origin.RIG, "the last sample is stale")
    LOST = (Reaction.DISABLE, Origin.RIG, "no sample any more")
    DRIVE_FAULT = (Reaction.STOP, Origin.RIG, "the drive reports a fault")
    DRIVE_STATE = (Reaction.STOP, Origin.RIG, "the drive is not enabled any more")
    HEARTBEAT = (Reaction.DISABLE, Origin.RIG, "the drive gives no sign of life")
    REJECTED = (Reaction.NOTE, Origin.RIG, "a frame that is not valid was dropped")
    IMPLAUSIBLE = (Reaction.NOTE, Origin.RIG, "a sample that cannot be was dropped")
    ENCODER = (Reaction.STOP, Origin.RIG, "the encoder cannot be right")
    TRACKING = (Reaction.STOP, Origin.RIG, "the machine does not follow its model")
    NON_FINITE = (Reaction.STOP, Origin.TASK, "the law has no finite command")
    POSITION = (Reaction.STOP, Origin.TASK, "the joint is beyond its position limits")
    SPEED = (Reaction.STOP, Origin.TASK, "the joint is faster than its speed limit")
    RUNAWAY = (Reaction.DISABLE, Origin.TASK, "the joint is faster than 1.2 times its speed limit")
    CLAMPED = (Reaction.WARN, Origin.TASK, "the torque was clamped in more than half of the last 0.5 s")
    CLAMPED_STOP = (Reaction.STOP, Origin.TASK, "the torque was clamped in more than half of the last 0.5 s")
    SATURATED = (Reaction.WARN, Origin.RIG, "the drive cannot make the torque that it is asked for")
    BUS = (Reaction.DISABLE, Origin.RIG, "the bus is down")
    BUS_WARNING = (Reaction.WARN, Origin.RIG, "the bus has errors")
    OVERRUN = (Reaction.NOTE, Origin.RIG, "periods were skipped")
    OVERRUNS = (
        Reaction.STOP,
        Origin.RIG,
        "too many periods were skipped: grant real-time rights (servoctl doctor), end other work or take a longer "
        "hil.period",
    )
    REALTIME = (Reaction.WARN, Origin.NOBODY, "not granted for real time")
    TASK = (Reaction.STOP, Origin.TASK, "the law cannot do the task")
    NOT_ENGAGED = (Reaction.STOP, Origin.TASK, "the task's violations did not fall below engage_tolerance")
    START_POSE = (Reaction.DISABLE, Origin.RIG, "the encoders contradict the start pose")
    FOREIGN = (Reaction.STOP, Origin.RIG, "somebody else commands the drive")
    HANDSHAKE = (Reaction.DISABLE, Origin.RIG, "the drive refuses, or does not answer in time")
    INTERRUPTED = (Reaction.STOP, Origin.OPERATOR, "the operator stops the run")
    EXCEPTION = (Reaction.DISABLE, Origin.RIG, "the loop has failed")
    NOT_CONFIRMED = (Reaction.WARN, Origin.RIG, "THE DRIVE DID NOT CONFIRM THAT IT IS OFF: use the emergency stop")
    NEVER_ENABLED = (
        Reaction.WARN,
        Origin.NOBODY,
        "this run never enabled the drive and sent it no torque; whether it is on by others it has not said",
    )
    RECORDER = (Reaction.WARN, Origin.RIG, "not everything is recorded")
    GAIN = (Reaction.WARN, Origin.NOBODY, "gain, by the operator")
    VIEW = (Reaction.WARN, Origin.NOBODY, "the live page is gone; the run goes on")
    STAGE = (Reaction.NOTE, Origin.NOBODY, "")

    def __init__(self, reaction: Reaction, origin: Origin, meaning: str) -> None:
        self.reaction, self.origin, self.meaning = reaction, origin, meaning


class Event(NamedTuple):
    """Something that happened.

    Attributes:
        time: On the run's clock [ns]; never before an event that was noticed earlier.
        kind: What.
        subject: Of which drive, bus or row; empty where of none.
        detail: Numbers with units; may be empty.
    """

    time: int
    kind: EventKind
    subject: str
    detail: str

    def __str__(self) -> str:
        """A sentence for a person."""
        subject = f"{self.subject}: " if self.subject else ""
        if not self.kind.meaning:
            return f"{subject}{self.detail}"
        return f"{subject}{self.kind.meaning}" + (f" ({self.detail})" if self.detail else "")

    def as_dict(self) -> dict[str, Any]:
        """For `events.jsonl`."""
        return {
            "t": self.time / 1e9,
            "kind": self.kind.name.lower(),
            "reaction": self.kind.reaction.name.lower(),
            "subject": self.subject,
            "text": str(self),
        }
