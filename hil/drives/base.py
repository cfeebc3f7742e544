"""What every drive can do, in any protocol.

Design: a driver never waits and has no bus. It decodes the frames that it is given and encodes torques. A handshake
(identify, configure, enable ...) is a generator of steps: frames to send, the condition that must then become true, and
the time limit. The caller runs the steps of all drives side by side, on any clock.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from enum import Enum
from math import inf, nan
from typing import Any, ClassVar, NamedTuple

from hil.bus.load import FrameTraffic
from hil.drives.settings import GAUGES, DriveSettings, Quantity, SensorSettings
from hil.drives.wire import Feeds, Unwrapping
from hil.frame import Frame, IdFamily
from servoctl.config.document import Problem
from servoctl.errors import RigError


class Ids(NamedTuple):
    """Ids of one node; those above 0x7FF have 29 bits."""

    exclusive: frozenset[int]  # ids that no other node may use
    shared: frozenset[int] = frozenset()  # ids that nodes of the same protocol may share


class Sample(NamedTuple):
    """A measurement of a node, in the units of the joint."""

    position: float  # [joint unit] displacement
    velocity: float  # speed [joint unit/s]; NaN if the node does not measure it
    torque: float  # torque or force [actuator unit]; NaN if the node does not measure it
    time: int  # [ns] time at which the frame was received


class DriveError(RigError):
    """A drive refuses, does not answer in time, or differs from the config."""


class Condition(Enum):
    """State of a drive, according to its last frames."""

    UNKNOWN = "has not reported its state"
    DISABLED = "disabled"
    ENABLED = "enabled"
    STOPPING = "stopping by itself"
    FAULT = "in fault"


class Feedback(Enum):
    """What makes a node send a sample."""

    SYNC = "after each SYNC"
    CYCLIC = "by its own timer"
    REPLY = "in reply to each command"


class HandshakeStep(NamedTuple):
    send: Sequence[Frame]  # frames to send at once, in this order
    done: Callable[[], bool]  # whether the step is over; called after every tick
    limit: float  # [s] longest time that the step may take
    expected: str  # what the step waits for, for the error: "axle1: <expected> within 0.5 s"
    attempts: int = 1  # how often the frames are sent, each time for the limit
    prompt: bool = False  # whether the next step begins as soon as it is over: its answer proves that its frame is gone


class FrameEnds(NamedTuple):
    """The largest numbers that the frames of a drive can say of the shaft that they describe, to either side of zero.

    A number at the end of its range counts as beyond it: whatever is larger looks like it.
    """

    position: float = inf  # [rad] angle
    speed: float = inf  # [rad/s] speed
    torque: float = inf  # [N m] torque


class StopSteps(NamedTuple):
    """What a protocol does on each step from torque to off, in words for the operator and the documentation."""

    ramp: str  # how the drive brakes by its own control
    brake: str  # when a brake on its axis closes
    off: str  # how it goes off, and what proves it
    silence: str  # what it does when nothing comes from the loop any more, and what the test of the watchdog proves


SAMPLE_TIME = 0.5  # [s] time limit for a sample of each drive before the loop starts
Steps = Generator[HandshakeStep, None, None]
"""A handshake in progress. It raises `DriveError` if the answers of the drive are wrong."""


class Node(ABC):
    """A node on a bus that measures one displacement; `period` is that of the loop [s]."""

    feedback: Feedback  # what makes it send a sample
    families: tuple[IdFamily, ...] = ()  # further ids that it accepts, of 29 bits, which hold data
    # what follows its position over the ends of its range; None: its frames hold the whole position
    unwrapping: Unwrapping | None = None
    next_torque = nan  # torque of its next sample, where another frame brings it than that of the sample; NaN: none
    rounds_down: ClassVar[bool] = False  # whether its speeds are: they are wrong by up to a step then, to one side
    fd_remedy: ClassVar[str] = ""  # what makes a node of this protocol speak CAN FD; empty if nothing does
    Options: ClassVar[type[Any]]  # class of its options, a pydantic model
    on_emulated_bus: ClassVar[Mapping[str, Any]] = {}  # options of an emulated node that a real one must state

    def __init__(self, settings: SensorSettings, period: float) -> None:
        self.settings = settings  # its settings in the config
        self.sample: Sample | None = None  # the last valid sample; None before the first
        self.rejected = 0  # number of invalid frames with one of these ids: wrong length, not finite, of another node

    @staticmethod
    @abstractmethod
    def problems(settings: SensorSettings, options: Any, period: float) -> list[Problem]:
        """Problems, by field, that settings and options, an object of `Options`, have together at this period [s]."""

    @staticmethod
    @abstractmethod
    def reserved_ids(settings: SensorSettings) -> Ids:
        """Ids that a node with these settings, which have no problems, uses on its bus in both directions."""

    @property
    @abstractmethod
    def identities(self) -> frozenset[int]:
        """Ids of frames to pass to `accept`: those that this node sends, and those that only another master sends."""

    def takes(self, identity: int) -> bool:
        """Whether frames with this id are to be passed to `accept`."""
        return identity in self.identities or any(identity in family for family in self.families)

    @abstractmethod
    def accept(self, frame: Frame) -> None:
        """Decodes a frame with one of its ids; an invalid frame only counts in `rejected`. It never raises."""

    @staticmethod
    def speaks_fd(settings: SensorSettings) -> bool:
        """Whether a node with these settings, which may be wrong, speaks CAN FD; all others destroy FD frames."""
        return False

    @staticmethod
    @abstractmethod
    def traffic(settings: SensorSettings, period: float) -> list[FrameTraffic]:
        """Worst-case frames of this node in the loop, in both directions; without SYNC, which goes out once per bus."""

    @abstractmethod
    def quantum(self) -> tuple[float, float, float]:
        """Smallest steps on the wire, at the joint: position, velocity, torque; NaN for what is not on the wire."""

    def visible(self) -> float:
        """Smallest motion of the joint that the encoder shows [joint unit]; the wire may be finer than the encoder."""
        return self.quantum()[0]

    @abstractmethod
    def identify(self) -> Steps:
        """Compares the node with the config, without moving anything: versions, units, modes, ranges."""

    @property
    def readable(self) -> bool:
        """Whether it sends samples without commands of torque; if not, it cannot be calibrated by hand."""
        return self.feedback is not Feedback.REPLY or bool(self.queries())

    def listen(self) -> Steps:
        """Makes the node send samples without torque: it is identified and started, never enabled."""
        return self.identify()

    def queries(self) -> Sequence[Frame]:
        """Frames that ask for a sample and command nothing, once per tick; none where SYNC or a timer asks."""
        return ()

    def answer(self) -> Steps:
        """Waits for an answer to a question, here for a new sample; `answered` is then its time."""
        before = self.sample
        yield HandshakeStep([], lambda: self.sample is not before, SAMPLE_TIME, "a new sample")

    @property
    def answered(self) -> int:
        """When the last of these answers came [ns]; 0 before the first."""
        return 0 if self.sample is None else self.sample.time

    def explanation(self) -> str:
        """What its last frames tell about a time-out: its state, an emergency; empty if nothing."""
        return ""


def listed(nodes: Iterable[Node]) -> str:
    """The names of nodes, for a sentence."""
    return ", ".join(node.settings.name for node in nodes)


class Drive(Node):
    """A node that makes torque."""

    settings: DriveSettings  # its settings in the config
    command_bits = 0x1FFF_FFFF  # bits of the id of a command that do not depend on its torque
    heartbeat: float | None = None  # longest time between frames that prove it alive [s]; None if it only answers
    # whether it stops by itself when commands stop; if not, `test_watchdog` does nothing. None: the config does not
    # say, and it must not make torque on a real bus
    watchdog: bool | None = True
    shares_heartbeat = False  # whether one frame feeds all drives of its protocol on a bus
    test_enables: ClassVar[bool] = False  # whether `test_watchdog` enables it, so that its brake opens
    # unverified: a setting that cannot be read back, and what to do; empty if `identify` and `configure` check all
    # assumption: what a setting does to its torque that the config leaves out, at the maker's default; empty if nothing
    unverified = assumption = ""
    assumed_speed = inf  # [joint unit/s] speed of the joint from which on it does so
    enabled_by_command: ClassVar[bool] = False  # whether a command of torque enables it when it is off
    ramps: ClassVar[bool] = False  # whether `quick_stop_frames` makes it brake by itself
    # longest own braking from speed_limit, over the time of the ramp: one that damps needs three times as long to 5 %
    ramp_time: ClassVar[float] = 3.0
    ramp_needs_encoder: ClassVar[bool] = True  # whether it brakes by its encoder, which must then be trusted
    # whether it brakes down its ramp, and then closes its brake, when its watchdog has run out
    ramps_alone: ClassVar[bool] = False
    # whether it closes its brake on `brake_frames` and holds torque until the brake is closed
    holds_while_braking: ClassVar[bool] = False
    # whether the torque that holds the joint is part of its own braking
    holds_while_ramping: ClassVar[bool] = False
    polls: tuple[Feeds, ...] = ()  # frames that ask for gauges while it is enabled
    gauge_needs: ClassVar[Mapping[Quantity, str]] = {}  # gauge that its protocol can bring -> what that needs
    # what its protocol does on each step from torque to off
    stop_steps: ClassVar[StopSteps] = StopSteps(
        "it cannot brake by itself: it coasts",
        "its brake closes only once the drive is off",
        "it is disabled until it reports that it is off",
        "not known",
    )

    def __init__(self, settings: DriveSettings, period: float) -> None:
        super().__init__(settings, period)
        self.has_worked = False  # whether it has been enabled since the run began to enable it
        self.condition = Condition.UNKNOWN
        self.fault = ""  # its fault in words, with the code; empty for no fault
        self.saturated = False  # whether it reports that it cannot make the commanded torque
        self.alive = 0  # [ns] time of the last frame that proved it alive
        self.foreign = ""  # evidence of another master on the bus, in words; empty if there is none
        self.enable_requested = False  # whether this run has begun to enable it
        # whether its watchdog is to run out: until this is False again, it gets no command and no frame of
        # `alive_frames`; neither do the others on its bus that share its heartbeat
        self.quiet = False
        self.fed = 0  # number of calls of `routine_frames`
        # what bring-up has found about how it stops that differs from `stop_steps`, as sentences
        self.doubts: list[str] = []
        self.gauges = [nan] * len(GAUGES)  # last values of its gauges, in the order of `GAUGES`; NaN: none yet

    @property
    def shows(self) -> frozenset[Quantity]:
        """Temperatures, supply and load that its frames bring in this config."""
        return frozenset()

    @property
    def ends(self) -> FrameEnds:
        """The largest numbers in its frames."""
        return FrameEnds()

    @property
    def condition(self) -> Condition:
        return self._condition

    @condition.setter
    def condition(self, condition: Condition) -> None:
        self._condition = condition
        self.has_worked = self.has_worked or condition is Condition.ENABLED

    @property
    def begins(self) -> bool:
        """Whether it gets its first torque and has not said yet that it is enabled; it may be already."""
        return False

    @property
    def confirmed_off(self) -> bool:
        """Whether it reports that it makes no torque."""
        return self.condition in (Condition.DISABLED, Condition.FAULT)

    @property
    def possibly_on(self) -> bool:
        """Whether it may make torque because of this run, or reports that it does."""
        return not self.confirmed_off and (self.enable_requested or self.condition is not Condition.UNKNOWN)

    def may_go_on(self) -> None:
        """Notes that the next frame may enable it: what it has reported before does not prove that it is off."""
        self.enable_requested, self.condition = True, Condition.UNKNOWN

    @abstractmethod
    def command(self, torque: float) -> Frame:
        """The frame that commands a torque or force at the joint [actuator unit].

        Raises ValueError if it is not finite, or above `torque_limit`. Nothing may be sent then.
        """

    def torque_bytes(self, frame: Frame) -> bytes | None:
        """The bytes that hold the torque in a frame that was sent with the id of a command, as `command` encodes it.

        None if the frame does not command a torque.
        """
        return frame.data

    def take_as_enabled(self) -> None:
        """Encodes commands as while it works, for a log that is replayed without a bus."""

    def carried(self, torque: float) -> float:
        """The torque in the frame that commands this one: the steps of the protocol round it [actuator unit]."""
        return torque

    def out_of_touch(self) -> None:
        """Its samples are stale, and the run stops: it may have restarted, and nothing may enable it from now on.

        Most drives stay off after a restart whatever they are commanded, and do nothing here.
        """

    @abstractmethod
    def alive_frames(self) -> Sequence[Frame]:
        """Frames that feed the watchdog of the drive and are no commands; equal ones go out once per bus and tick."""

    def routine_frames(self) -> list[Frame]:
        """Frames of this tick that are no commands: `alive_frames`, and of `polls` those that are due."""
        frames = [*self.alive_frames()]
        if self.condition is Condition.ENABLED:
            frames += [poll.frame for poll in self.polls if self.fed % poll.every == poll.at]
        self.fed += 1
        return frames

    @abstractmethod
    def configure(self) -> Steps:
        """Sets mode, limits and watchdog, and reads them back; the drive stays disabled."""

    @abstractmethod
    def test_watchdog(self, torque: float = 0.0) -> Steps:
        """Lets the armed watchdog run out, checks that the drive goes to fault, and resets the fault.

        `torque` holds the joint [actuator unit], for a drive that must be enabled for the test.
        """

    def rearm(self) -> Steps:
        """Makes the drive ready again after the watchdogs of all drives have been tested, when all of them are fed."""
        yield from ()

    @abstractmethod
    def enable(self, torque: float) -> Steps:
        """Brings the drive to `ENABLED`, with this torque from the first moment: a vertical axis must not drop."""

    @abstractmethod
    def reset(self) -> Steps:
        """Clears a latched fault; the drive stays disabled."""

    @abstractmethod
    def disable_frames(self) -> Sequence[Frame]:
        """Frames that disable the drive from any condition; they may be sent repeatedly."""

    def quick_stop_frames(self, torque: float) -> Sequence[Frame]:
        """Frames that make the drive brake by itself; those of `disable_frames` if it cannot, so that it coasts.

        They may be sent repeatedly, and nothing of them enables a drive that is off. `torque` holds the joint, for a
        drive whose braking does not find it by itself [actuator unit].
        """
        return self.disable_frames()

    def ramp_ended(self, stands: bool) -> bool:
        """Whether it has ended its own braking; `stands`: its joint stands still, by samples that are not stale."""
        return stands or self.confirmed_off

    def brake_frames(self, torque: float, trusted: bool) -> Sequence[Frame]:
        """Frames that close its brake; those of `disable_frames` if the brake closes only once the drive is off.

        They may be sent repeatedly, and nothing of them enables a drive that is off. `torque` holds the joint
        meanwhile [actuator unit]; `trusted`: its encoder is trusted, so that it may hold the joint by its own
        control.
        """
        return self.disable_frames()
