"""How the encoder of an ODrive is read over CANSimple: it sends by its own timer."""

from math import nan, pi, ulp
from typing import Annotated, ClassVar

from hil.bus.load import FrameTraffic
from hil.codecs import odrive as codec
from hil.drives.base import DriveError, Feedback, HandshakeStep, Ids, Steps
from hil.drives.options import EncoderBits, Flag, options_of
from hil.drives.quantities import Quantity
from hil.drives.settings import SensorSettings
from hil.drives.table import TableNode
from hil.drives.wire import FrameReads, Message, Operation, Reads, Wire
from hil.frame import Frame
from hil.loop import SECOND
from servoctl.config.document import Problem
from servoctl.config.fields import NumberField, Section

TURN = 2 * pi
INTERVALS = 40  # number of encoder periods over which the rate of the drive is measured
RATE_TOLERANCE = 0.25  # largest relative difference between the measured period and `feedback_period`
COARSE = 12  # bits per turn to assume if the config does not give the encoder's


class OdriveEncoderOptions(Section):
    """Options of an encoder node."""

    # [s] period of the encoder estimates
    feedback_period: Annotated[float, NumberField("a period above 0 [s]", above=0.0)] = 0.001
    encoder_bits: EncoderBits = None  # bits per turn of the encoder; None: the resolution of single precision
    fd: Flag = False  # whether it speaks CAN FD: `can.config.data_baud_rate` is set in it


class OdriveEncoder(TableNode):
    """The encoder of an ODrive, which sends by its own timer.

    Args:
        settings: Settings without problems.
        period: Period of the loop [s].
    """

    feedback = Feedback.CYCLIC
    fd_remedy = "`fd: true` says that its can.config.data_baud_rate is set"
    Options: ClassVar[type[OdriveEncoderOptions]] = OdriveEncoderOptions

    def __init__(self, settings: SensorSettings, period: float) -> None:
        super().__init__(settings, period)
        self._options = options_of(self.Options, settings)
        self._turn = settings.sign * TURN / settings.gear
        turn = (Operation.TIMES, self._turn)
        self.motion = FrameReads(
            Reads(codec.POSITION, Quantity.POSITION, (turn, (Operation.PLUS, settings.offset))),
            Reads(codec.VELOCITY, Quantity.VELOCITY, (turn,)),
        )
        self._version = b""  # its answer to Get_Version
        self._times: list[int] = []
        self._estimates_id = self._id(codec.GET_ENCODER_ESTIMATES)

    @staticmethod
    def problems(settings: SensorSettings, options: OdriveEncoderOptions, period: float) -> list[Problem]:
        problems = []
        if settings.node not in codec.NODES:
            problems.append(Problem(("node",), f"expected an address from 0 to 62, got {settings.node}"))
        if options.feedback_period > period:
            longer = f"{options.feedback_period} s is longer than the loop's period of {period} s"
            remedy = "set it and axis0.config.can.encoder_msg_rate_ms lower"
            problems.append(Problem(("feedback_period",), f"{longer} ({remedy})"))
        if options.fd and not settings.fd:
            problems.append(Problem(("fd",), f"true on bus '{settings.bus}', which is classic (give the bus fd: true)"))
        return problems

    @staticmethod
    def reserved_ids(settings: SensorSettings) -> Ids:
        first = settings.node * codec.COMMANDS
        return Ids(frozenset(range(first, first + codec.COMMANDS)))

    @property
    def identities(self) -> frozenset[int]:
        return frozenset({self._id(codec.GET_VERSION), self._estimates_id})

    def accept(self, frame: Frame) -> None:
        if frame.extended or frame.error:
            self.rejected += 1
        elif frame.remote:
            self._on_request(frame)
        elif frame.id != self._estimates_id:
            self._other(frame)
        elif len(frame.data) != codec.SIZE or not self._take_sample(frame):
            self.rejected += 1
        elif len(self._times) <= INTERVALS:
            self._times.append(frame.time)

    def wire(self) -> Wire | None:
        return Wire((Message(self._estimates_id, codec.SIZE, self.motion.reads, sample=True),))

    def _on_request(self, frame: Frame) -> None:
        """Handles a remote frame: another master reads this node, which does no harm to an encoder."""

    def _other(self, frame: Frame) -> None:
        """Handles a frame that is not an encoder estimate."""
        if frame.id == self._id(codec.GET_VERSION) and len(frame.data) == codec.SIZE:
            self._version = frame.data
        else:
            self.rejected += 1

    def _id(self, command: int) -> int:
        return codec.identifier(self.settings.node, command)

    @staticmethod
    def speaks_fd(settings: SensorSettings) -> bool:
        return settings.options.get("fd") is True

    @staticmethod
    def traffic(settings: SensorSettings, period: float) -> list[FrameTraffic]:
        rate = 1 / options_of(OdriveEncoderOptions, settings).feedback_period
        return [FrameTraffic(8, rate, fd=settings.fd, brs=settings.brs)]

    def identify(self) -> Steps:
        """Asks for the version, and measures the period of the encoder estimates.

        Raises:
            DriveError: The protocol, the firmware or the period is not as expected.
        """
        self._version = b""
        ask = Frame(self._id(codec.GET_VERSION), remote=True, length=8)  # FD has no remote frames: a classic one
        remedy = "is the node id right, and the bit rate?"
        yield HandshakeStep([ask], lambda: bool(self._version), 0.5, f"an answer to Get_Version ({remedy})")
        protocol, firmware = codec.PROTOCOL_NUMBER.read(self._version), codec.firmware(self._version)
        if protocol != codec.PROTOCOL or firmware < (0, 6):
            what = f"speaks CANSimple {protocol} with firmware {'.'.join(map(str, firmware))}"
            raise DriveError(f"{what} (protocol {codec.PROTOCOL} with firmware 0.6 or later is needed)")
        yield from self._measure_period()

    def _measure_period(self) -> Steps:
        self._times.clear()
        declared = self._options.feedback_period
        many = f"{INTERVALS + 1} encoder estimates (set axis0.config.can.encoder_msg_rate_ms)"
        yield HandshakeStep([], lambda: len(self._times) > INTERVALS, 0.5 + 4 * INTERVALS * declared, many)
        measured = (self._times[-1] - self._times[0]) / INTERVALS / SECOND
        if abs(measured - declared) > RATE_TOLERANCE * declared:
            what = f"sends an encoder estimate every {measured:.4g} s, feedback_period says {declared:.4g} s"
            raise DriveError(f"{what} (set axis0.config.can.encoder_msg_rate_ms)")

    def quantum(self) -> tuple[float, float, float]:
        """Smallest steps at the joint: of the encoder, or of single precision near one turn and one turn per second."""
        bits, turn = self._options.encoder_bits, abs(self._turn)
        return turn * (2.0**-bits if bits else single_step(1.0)), turn * single_step(1.0), nan

    def visible(self) -> float:
        return abs(self._turn) * 2.0 ** -(self._options.encoder_bits or COARSE)


def single_step(value: float) -> float:
    """Distance between neighbouring single-precision numbers near a value: 29 bits of a double less."""
    return ulp(value) * 2.0**29
