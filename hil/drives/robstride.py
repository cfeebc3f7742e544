"""RobStride motors in their own protocol of 29-bit ids: bring-up, commands of torque alone, and stops.

Each command gets one feedback frame; its id holds faults and mode. The motor goes to mode reset by itself after the
time in its parameter canTimeout, which is 0 (off) as delivered: it is set and read back at each start, and counts only
after it has run out in a test. In mode reset the motor makes no torque: its shaft is free.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from hil.codecs import robstride as codec
from hil.drives.base import Condition, DriveError, HandshakeStep, Steps, StopSteps
from hil.drives.guard import tested_time
from hil.drives.linear_ranges import LinearDrive, RangeOptions, range_problems
from hil.drives.options import Flag, MonitorPeriod, address_problems
from hil.drives.settings import DriveSettings, Quantity, SensorSettings
from hil.drives.table import Handler
from hil.drives.wire import Expects, Message, Operation, Reads
from hil.frame import Frame, IdFamily
from servoctl.config.document import Problem
from servoctl.tree.fields import NumberField

TEMPERATURE = Reads(codec.TEMPERATURE, Quantity.TEMPERATURE, ((Operation.OVER, codec.TEMPERATURE_STEP),))  # in feedback

_CONDITIONS = {codec.RESET: Condition.DISABLED, codec.RUN: Condition.ENABLED}


class RobstrideOptions(RangeOptions):
    host: Annotated[int, NumberField("an id from 0 to 255", least=0, below=256, whole=True)] = 0xFD  # id of the loop
    # whether to set the motor's canTimeout; false: it is off, and the motor goes on when commands stop
    drive_watchdog: Flag = True
    # time between two questions for the bus voltage [s]; None: it is not asked for
    monitor_period: MonitorPeriod = None


class RobstrideDrive(LinearDrive):
    """A RobStride motor; its position is followed over the ends of its range."""

    fields = codec.FIELDS
    enable_answer, watchdog_remedy = "mode run", "canTimeout"
    gauge_needs: ClassVar[Mapping[Quantity, str]] = {Quantity.TEMPERATURE: "always", Quantity.SUPPLY: "monitor_period"}
    Options: ClassVar[type[RobstrideOptions]] = RobstrideOptions
    _options: RobstrideOptions
    command_bits = codec.KIND_AND_TARGET
    stop_steps = StopSteps(
        "damping in the motor: kd with velocity zero, at most what torque_limit leaves at speed_limit, and the torque "
        "that holds the pose; held by each next command",
        "the brake closes only once the motor is in mode reset: the axis falls until then",
        "the command to stop; feedback in mode reset proves it",
        "canTimeout brings it to mode reset, in which it coasts; the test is done while it is enabled",
    )

    def __init__(self, settings: DriveSettings, period: float) -> None:
        motion = codec.identifier(codec.MOTION, 0, settings.node)
        super().__init__(settings, period, motion, codec.NO_MOTION)
        options = self._options
        self.watchdog = options.drive_watchdog
        self.enable_frame, self.tested_time = self._frame(codec.ENABLE), tested_time(settings)
        self._known: dict[int, float | None] = {}
        node, host = settings.node, options.host
        ask = self._frame(codec.READ, codec.read_parameter(codec.BUS_VOLTAGE))
        answer = codec.identifier(codec.READ, node, host)
        working = codec.feedback_identifier(node, host, codec.RUN)  # its id holds mode and faults
        asked = Expects(codec.PARAMETER, codec.PARAMETER.mask, codec.BUS_VOLTAGE)
        self.motion = Message(working, codec.SIZE, (*self.reads, TEMPERATURE), sample=True, alive=True)
        voltage = Message(answer, codec.SIZE, (Reads(codec.VALUE, Quantity.SUPPLY, ()),), selects=(asked,))
        self.messages = (self.motion, *self._monitor(options.monitor_period, [ask], [voltage]))
        self._by_family: dict[IdFamily, Handler] = {
            IdFamily(codec.FEEDBACK_BITS, codec.feedback_identifier(node, host)): self._on_feedback,
            IdFamily(codec.FEEDBACK_BITS, answer): self._on_parameter,
        }
        for kind in codec.COMMANDS:
            self._by_family[IdFamily(codec.KIND_AND_TARGET, codec.identifier(kind, 0, node))] = self._on_foreign
        self.families, self.handlers = tuple(self._by_family), {}

    @staticmethod
    def problems(settings: SensorSettings, options: RobstrideOptions, period: float) -> list[Problem]:
        assert isinstance(settings, DriveSettings)
        problems = address_problems(settings, range(1, 128), host=options.host)
        return [*problems, *range_problems(settings, options, codec.FIELDS.command_torque)]

    def _handler(self, identity: int) -> Handler | None:
        return next((handler for family, handler in self._by_family.items() if identity in family), None)

    def _on_feedback(self, frame: Frame) -> bool:
        if len(frame.data) != codec.SIZE:
            return False
        self._take_sample(frame)
        self.alive = frame.time
        self._answers += 1
        mode, faults = codec.mode_and_faults(frame.id)
        self.fault = codec.fault_text(faults)
        ordered_on = self.condition is Condition.UNKNOWN and (self.quiet or self._feed.seed is not None)
        if faults and mode != codec.RUN:  # in mode run it may still make torque
            self.condition = Condition.FAULT
        elif not (ordered_on and mode == codec.RESET):  # that is the answer to a frame before the one that enables it
            self.condition = _CONDITIONS.get(mode, Condition.UNKNOWN)
        return True

    def _on_parameter(self, frame: Frame) -> bool:
        parameter = codec.parameter(frame.id, frame.data)
        if parameter is None:
            return False
        self._known |= [parameter]
        self._take_answer(frame)
        return True

    def _frame(self, kind: int, data: bytes = bytes(8)) -> Frame:
        return self.settings.frame(codec.identifier(kind, self._options.host, self.settings.node), data)

    def identify(self) -> Steps:
        """Checks that the motor is there, and off."""
        remedy = "is the node id right, and the bit rate? does it speak its own protocol, not CANopen or MIT?"
        expected = f"feedback to a command of zero torque ({remedy})"
        yield HandshakeStep([self.encoding.frame], self._answered(1), 0.5, expected)
        if self.condition is Condition.ENABLED:
            raise DriveError("is in mode run already (stop it; is there another master?)")

    def configure(self) -> Steps:
        """Stops the motor, sets motion commands, its torque limit and the time of its watchdog, and reads them back."""
        yield from self.reset()
        yield from self._set(codec.RUN_MODE, 0)
        yield from self._set(codec.TORQUE_LIMIT, self.settings.motor_limit)
        yield from self.set_watchdog(self.settings.watchdog if self.watchdog else 0.0)
        yield from self._first_answers(Quantity.SUPPLY)

    def set_watchdog(self, seconds: float) -> Steps:
        yield from self._set(codec.CAN_TIMEOUT, round(seconds * codec.TIMEOUT_STEPS))

    def _set(self, index: int, value: float) -> Steps:
        self._known.pop(index, None)
        name, field = codec.SETTINGS[index]
        write = codec.write_parameter(index, value)
        frames = [self._frame(codec.WRITE, write), self._frame(codec.READ, codec.read_parameter(index))]
        yield HandshakeStep(frames, lambda: index in self._known, 0.5, f"an answer to a read of {name} (0x{index:04X})")
        known = self._known[index]
        if known is None:
            if index == codec.CAN_TIMEOUT and not value:
                return
            remedy = "update its firmware" + (", or drive_watchdog: false" if index == codec.CAN_TIMEOUT else "")
            raise DriveError(f"has no parameter {name} (0x{index:04X}) ({remedy})")
        if known != field.number(write):
            raise DriveError(f"its {name} (0x{index:04X}) is {known:.9g} after {value:.9g} was written (refused)")

    def enable(self, torque: float) -> Steps:
        with self._seeded(torque):
            # `alive_frames` sends the first torque at each tick. The motor may start with the last command that it
            # received, which must be this one, or with none until the next command.
            self._feed.fed = False
            yield HandshakeStep([], self._answered(2), 0.5, "feedback to the first torque")
            self.may_go_on()
            yield HandshakeStep([self.enable_frame], self._decided, 0.5, self.enable_answer)

    def reset(self) -> Steps:
        """Stops the motor and clears its faults."""
        frames = [self._frame(codec.STOP, codec.stop(clear=True)), self.encoding.frame]
        expected = "mode reset without a fault (else switch its power off and on)"
        yield HandshakeStep(frames, self._disabled(), 0.5, expected)

    def disable_frames(self) -> Sequence[Frame]:
        self._feed.fed = True
        return (self._frame(codec.STOP, codec.stop(clear=False)),)
