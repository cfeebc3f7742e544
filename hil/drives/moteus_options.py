"""Options of a moteus, problems that they have together, and whether it has the registers that are used."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from hil.codecs import moteus as codec
from hil.codecs import moteus_registers as registers
from hil.drives.base import DriveError, HandshakeStep, Steps
from hil.drives.options import EncoderBits, MonitorPeriod, Word
from hil.drives.settings import DriveSettings
from hil.frame import Frame
from servoctl.config.document import Problem, in_words
from servoctl.config.fields import NumberField, Section, fault

STANDS, COASTS = (10, 15), (0, 12)
"""Values of `servo.timeout_mode` with which the drive stops the shaft by itself, and with which it coasts.

With 12 it regulates to zero velocity by the gains of the last command, and those of a torque command are 0.
"""
SET_TIMEOUT_MODE = "in tview or moteus_tool: conf set servo.timeout_mode 15, conf write"


def _timeout_mode(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value in (*STANDS, *COASTS):
        return value
    raise fault(f"expected 0, 10, 12 or 15, as servo.timeout_mode in the drive, got {in_words(value)}")


class MoteusOptions(Section):
    """Options of a drive."""

    # `servo.timeout_mode` as it is set in the drive: what it does when commands stop. 15 brakes, 10 holds; 0 and 12 let
    # a shaft coast that was commanded by torque, and need a brake
    timeout_mode: Annotated[int, PlainValidator(_timeout_mode), Field(description="0, 10, 12 or 15")] = 15
    # least home state: `output`, `rotor` (known within one turn of the rotor) or `relative`
    home: Annotated[str, Word("output, rotor or relative", tuple(codec.HOME_STATES))] = "output"
    # id of the loop on the bus
    source: Annotated[int, NumberField("an id from 0 to 126", least=0, below=127, whole=True)] = 0
    encoder_bits: EncoderBits = None  # bits per turn of the output shaft; None: the resolution of single precision
    # time between two questions for bus voltage and temperatures [s]; None: they are not asked for
    monitor_period: MonitorPeriod = None


def settings_problems(settings: DriveSettings, options: MoteusOptions) -> Iterator[Problem]:
    """Problems that settings and options have together."""
    if settings.node not in codec.NODES:
        yield Problem(("node",), f"expected an id from 1 to 126, got {settings.node}")
    if options.source == settings.node:
        yield Problem(("source",), f"{options.source} is the drive's own id (the loop needs another)")
    if not settings.fd:
        what = f"{settings.name}: a moteus speaks CAN FD only, and bus '{settings.bus}' is classic"
        yield Problem(("bus",), f"{what} (give the bus fd: true and data_bitrate: 5000000)")
    if options.timeout_mode in COASTS and not settings.brake:
        what = f"{options.timeout_mode}: the shaft coasts when commands stop, and no brake is declared"
        yield Problem(("timeout_mode",), f"{what} ({SET_TIMEOUT_MODE}; or declare brake: true)")
    yield from _watchdog_problems(settings)


def _watchdog_problems(settings: DriveSettings) -> Iterator[Problem]:
    """A torque command holds the watchdog time in 8 bits: steps of 10 ms."""
    step, longest = registers.WATCHDOG_STEP, registers.LONGEST_WATCHDOG
    steps = settings.watchdog / step
    if not step <= settings.watchdog <= longest or abs(steps - round(steps)) > 1e-6:
        what = f"hil.safety.drive_watchdog is {settings.watchdog:g} s"
        remedy = f"a command of a moteus holds multiples of {step:g} s up to {longest:g} s"
        yield Problem(("protocol",), f"{what} ({remedy})")


OLDEST_MAP = 5  # first version of the register map that has `ILIMIT_SCALE` and the home state

ASKED = (registers.MODEL, registers.FIRMWARE, registers.MAP_VERSION, registers.HOME_STATE)


class Identity:
    """The registers of one drive that tell what it is.

    Args:
        make_frame: Makes a frame to the drive of a payload.
        home: Least home state, one of `codec.HOME_STATES`.
    """

    def __init__(self, make_frame: Callable[[bytes], Frame], home: str) -> None:
        self._make_frame = make_frame
        self._least = codec.HOME_STATES.index(home)
        self._values: dict[int, float] = {}

    def take(self, values: Mapping[int, float]) -> None:
        """Takes registers that the drive has answered; NaN where it does not know one."""
        self._values |= values

    def check(self) -> Steps:
        """Asks the drive, and compares.

        Raises:
            DriveError: Its register map is too old, or it knows its position too little.
        """
        for register in ASKED:
            self._values.pop(register, None)
        answered = lambda: all(register in self._values for register in ASKED)  # noqa: E731
        frames = [self._make_frame(registers.padded(data)) for data in (codec.IDENTITY, codec.HOME)]
        yield HandshakeStep(frames, answered, 0.5, "its model, firmware and home state")
        self._refuse_map(self._values[registers.MAP_VERSION])
        self._refuse_home_state(self._values[registers.HOME_STATE])

    def _refuse_map(self, version: float) -> None:
        if not version >= OLDEST_MAP:
            what = f"has version {version:g} of the register map, version {OLDEST_MAP} or later is needed"
            raise DriveError(f"{what} (update its firmware: moteus_tool --flash)")

    def _refuse_home_state(self, home: float) -> None:
        if not home >= self._least:
            known = codec.HOME_STATES[int(home)] if home in (0, 1, 2) else f"{home:g}"
            what = f"its home state is {known}: its position may be wrong by turns of the rotor"
            exact = "bring the joint to a known pose and send `d exact`, or give it an encoder at the output"
            raise DriveError(f"{what} ({exact}; or check the start pose each time, and set home: {known})")
