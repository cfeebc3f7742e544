"""How the encoder of a CiA 402 drive is read: position and velocity in TPDO1 after each SYNC."""

from collections.abc import Callable
from math import nan
from typing import ClassVar

from hil.bus.load import FrameTraffic
from hil.codecs import cia402 as codec
from hil.drives import cia402_setup as setup
from hil.drives.base import Feedback, HandshakeStep, Ids, Steps
from hil.drives.cia402_setup import TURN, Cia402EncoderOptions
from hil.drives.options import options_of
from hil.drives.quantities import Quantity
from hil.drives.sdo import Objects
from hil.drives.settings import SensorSettings
from hil.drives.table import TableNode
from hil.drives.wire import Expects, FrameReads, Message, Operation, Reads, Wire
from hil.frame import Frame
from servoctl.config.document import Problem


class Cia402Encoder(TableNode):
    """The encoder of a CiA 402 drive.

    Args:
        settings: Settings without problems.
        period: Period of the loop [s].
    """

    feedback = Feedback.SYNC
    Options: ClassVar[type[Cia402EncoderOptions]] = Cia402EncoderOptions

    def __init__(self, settings: SensorSettings, period: float) -> None:
        super().__init__(settings, period)
        self._options = options_of(self.Options, settings)
        count = settings.joint_rate(TURN / self._options.counts_per_turn)
        rate = settings.joint_rate(self._options.velocity_unit)
        self.motion = FrameReads(
            Reads(codec.POSITION, Quantity.POSITION, ((Operation.TIMES, count), (Operation.PLUS, settings.offset))),
            Reads(codec.VELOCITY, Quantity.VELOCITY, ((Operation.TIMES, rate),)),
        )
        self._feedback_id = codec.TPDO1 + settings.node
        self._torque = nan
        self._nmt: int | None = None
        self._sdo = Objects(settings.node)
        self._handlers = self._handlers_by_id()

    @staticmethod
    def problems(settings: SensorSettings, options: Cia402EncoderOptions, period: float) -> list[Problem]:
        if settings.node not in codec.NODES:
            return [Problem(("node",), f"expected a node id from 1 to 127, got {settings.node}")]
        return []

    def _handlers_by_id(self) -> dict[int, Callable[[Frame], bool]]:
        """Id -> handler of its frames, which returns whether a frame is valid; without TPDO1, the most frequent."""
        node = self.settings.node
        return {codec.HEARTBEAT + node: self._on_heartbeat, codec.SDO_ANSWER + node: self._on_answer}

    @staticmethod
    def reserved_ids(settings: SensorSettings) -> Ids:
        """Source: CiA 301, predefined connection set."""
        exclusive = {base + number * 0x100 for base in (codec.TPDO1, codec.RPDO1) for number in range(4)}
        exclusive |= {codec.EMERGENCY, codec.SDO_ANSWER, codec.SDO_REQUEST, codec.HEARTBEAT}
        return Ids(frozenset(base + settings.node for base in exclusive), frozenset({codec.NMT, codec.SYNC}))

    @property
    def identities(self) -> frozenset[int]:
        return frozenset({self._feedback_id, *self._handlers})

    def accept(self, frame: Frame) -> None:
        if frame.extended or frame.remote or frame.error:
            self.rejected += 1
        elif frame.id != self._feedback_id:
            handler = self._handlers.get(frame.id)
            if handler is None or not handler(frame):
                self.rejected += 1
        elif len(frame.data) != codec.FEEDBACK_SIZE or not self._take_sample(frame):
            self.rejected += 1

    def _on_heartbeat(self, frame: Frame) -> bool:
        state = codec.nmt_state(frame.data)
        if state is None:
            return False
        self._nmt = state
        return True

    @staticmethod
    def traffic(settings: SensorSettings, period: float) -> list[FrameTraffic]:
        return [FrameTraffic(8, 1 / period)]

    def _on_answer(self, frame: Frame) -> bool:
        self._sdo.take(frame.data)
        return True

    def identify(self) -> Steps:
        """Checks the profile, maps TPDO1 and starts the node: an encoder node is not configured otherwise."""
        yield from setup.check_type(self._sdo)
        yield from setup.silence(self._sdo)
        yield from setup.map_feedback(self._sdo, self.settings.node)
        before = self.sample
        yield HandshakeStep([self._nmt_frame(codec.START)], lambda: self.sample is not before, 0.5, "TPDO1 after SYNC")

    def wire(self) -> Wire | None:
        operational = Expects(codec.STATE, codec.NMT_BITS, codec.OPERATIONAL)
        feedback = Message(self._feedback_id, codec.FEEDBACK_SIZE, self.motion.reads, sample=True)
        return Wire((feedback, Message(codec.HEARTBEAT + self.settings.node, 1, expects=(operational,), alive=True)))

    @property
    def next_torque(self) -> float:
        return self._torque

    def _nmt_frame(self, command: int) -> Frame:
        return Frame(codec.NMT, codec.nmt(command, self.settings.node))
