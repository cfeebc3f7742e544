"""What every drive offers, whatever it speaks.

Design: a drive never waits and never touches a bus. It decodes frames that are handed to it, encodes torques, and says
what a verb takes as a generator of steps: frames to send, what must then be true, and how long that may take. Whoever
runs the steps runs those of all drives side by side, on any clock.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import NamedTuple

from hil.bus.load import FrameTraffic
from hil.drives.sample import Sample
from hil.drives.settings import DriveSettings, SensorSettings
from hil.frame import Frame
from servoctl.errors import RigError


class DriveError(RigError):
    """A drive refuses, does not answer in time, or is not what the config says it is."""


class Condition(Enum):
    """How a drive stands, by the last frame that said so."""

    UNKNOWN = "has not said how it stands"
    DISABLED = "disabled"
    ENABLED = "enabled"
    STOPPING = "stopping by itself"
    FAULT = "in fault"


class Feedback(Enum):
    """When a node sends its samples."""

    SYNC = "after each SYNC"
    CYCLIC = "by its own timer"
    REPLY = "in reply to each command"


class HandshakeStep(NamedTuple):
    """One step of a verb.

    Attributes:
        send: Frames that go out at once, in this order.
        done: Whether the step is over; asked after every tick.
        limit: Time that it may take [s].
        expected: What is waited for, for the error: "axle1: <expected> within 0.5 s".
    """

    send: Sequence[Frame]
    done: Callable[[], bool]
    limit: float
    expected: str


Steps = Generator[HandshakeStep, None, None]
"""A verb in progress. It may raise `DriveError` when what the drive says is wrong."""


class Exchange(ABC):
    """The bus of one node before the loop runs, for those who must wait for an answer in the middle of a step.

    Attributes:
        listeners: Called with every frame that comes in, beside the nodes.
    """

    listeners: list[Callable[[Frame], None]]

    @abstractmethod
    def send(self, frame: Frame) -> None:
        """Sends a frame.

        Raises:
            BusError: The bus is down.
        """

    @abstractmethod
    def pump(self, done: Callable[[], bool], limit: float) -> bool:
        """Hands frames to all nodes and listeners until `done()`, or for `limit` [s]; watchdogs stay fed meanwhile.

        Returns:
            done().
        """


class Node(ABC):
    """Something on a bus that measures one displacement.

    Attributes:
        settings: What the config says of it.
        feedback: When it sends its samples.
        sample: The last valid one; None before there is one.
        identities: Ids of the frames that it sends to the host; id + extended. Frames of others are not handed to it.
        rejected: Frames with one of these ids that were not valid: wrong length, not finite, another node's.
    """

    feedback: Feedback

    def __init__(self, settings: SensorSettings) -> None:
        self.settings = settings
        self.sample: Sample | None = None
        self.rejected = 0

    @property
    @abstractmethod
    def identities(self) -> frozenset[int]:
        """Ids of the frames that this node sends."""

    @abstractmethod
    def accept(self, frame: Frame) -> None:
        """Takes a frame of this node in; an invalid one changes nothing but `rejected`. Never raises."""

    @staticmethod
    @abstractmethod
    def traffic(settings: SensorSettings, period: float) -> list[FrameTraffic]:
        """Frames per second of this node in the loop, both ways, at worst; SYNC is counted once per bus elsewhere."""

    @abstractmethod
    def poll(self) -> Sequence[Frame]:
        """Frames that ask this node for a sample, sent at the start of a tick; none where it sends by itself.

        SYNC is not among them: it goes out once per bus.
        """

    @abstractmethod
    def quantum(self) -> tuple[float, float, float]:
        """Smallest steps on the wire, at the joint: of position, velocity, torque; NaN where there is none of it."""

    def visible(self) -> float:
        """Smallest motion of the joint that surely shows [joint unit]: the wire may be finer than the encoder."""
        return self.quantum()[0]

    @abstractmethod
    def identify(self, exchange: Exchange) -> Steps:
        """Checks without moving anything that the node is what the config says: versions, units, modes, ranges."""


class Drive(Node):
    """A node that makes torque.

    Attributes:
        settings: What the config says of it.
        condition: How it stands.
        fault: What it says is wrong, in a person's words with its code; empty where nothing is.
        saturated: Whether it says that it cannot make the torque it is asked for.
        watchdog: Whether it stops by itself when nothing comes; where not, `test_watchdog` does nothing.
        watchdog_known: Whether it is known which of the two; where not, it must not make torque on a real bus.
        unread: A setting that it cannot be asked for, and what to do; empty where `identify` and `configure` see all.
        heartbeat: Longest time between frames that prove it alive [s]; None where it only answers.
        alive: When the last such frame came [ns].
        foreign: Why frames on the bus look like another master's; empty where none do.
        enable_requested: Whether this run has begun to enable it.
        quiet: Whether a verb wants the drive's watchdog to run out: until it ends the loop sends no command to this
            drive, and the bus no frame of `alive_frames`.
    """

    settings: DriveSettings
    heartbeat: float | None = None
    watchdog = True
    watchdog_known = True
    unverified = ""

    def __init__(self, settings: DriveSettings) -> None:
        super().__init__(settings)
        self.condition = Condition.UNKNOWN
        self.fault = ""
        self.saturated = False
        self.alive = 0
        self.foreign = ""
        self.enable_requested = False
        self.quiet = False

    @property
    def confirmed_off(self) -> bool:
        """Whether it says that it makes no torque."""
        return self.condition in (Condition.DISABLED, Condition.FAULT)

    @property
    def possibly_on(self) -> bool:
        """Whether it may make torque that this run has to answer for, or says that it does."""
        return not self.confirmed_off and (self.enable_requested or self.condition is not Condition.UNKNOWN)

    @abstractmethod
    def command(self, torque: float) -> Frame:
        """The frame that asks for a torque.

        Args:
            torque: At the joint, finite and within `torque_limit` [actuator unit].

        Raises:
            ValueError: It is not finite, or above the limit: nothing may be sent.
        """

    def torque_bytes(self, frame: Frame) -> bytes | None:
        """The part of a frame that says the torque, as `command` encodes it; None where it is no command of torque.

        Args:
            frame: One that was sent with the id of a command.
        """
        return frame.data

    @abstractmethod
    def alive_frames(self) -> Sequence[Frame]:
        """Frames that keep the drive's watchdog fed, beside commands; equal ones go out once per bus and tick."""

    @abstractmethod
    def configure(self, exchange: Exchange) -> Steps:
        """Sets mode, limits and watchdog and reads them back; the drive stays disabled."""

    @abstractmethod
    def test_watchdog(self) -> Steps:
        """Lets the armed watchdog run out, sees the drive go to fault by itself, resets that; never makes torque."""

    @abstractmethod
    def enable(self, torque: float) -> Steps:
        """Brings the drive to `ENABLED`, with this torque from the first instant on."""

    @abstractmethod
    def reset(self) -> Steps:
        """Clears a fault that is latched in the drive; it stays disabled."""

    @abstractmethod
    def disable_frames(self) -> Sequence[Frame]:
        """Frames that disable the drive from whatever condition it is in; may be sent again and again."""

    @abstractmethod
    def quick_stop_frames(self) -> Sequence[Frame]:
        """Frames at which the drive brakes by itself where it can, else those of `disable_frames`."""
