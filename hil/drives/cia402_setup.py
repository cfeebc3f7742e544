"""The options of a CiA 402 node, and which of its objects are asked, checked and set over SDO.

Design: all objects that the driver uses have at most 4 bytes, which one frame carries (expedited transfer). A request
that is not answered is sent once more.

CiA 301 prescribes the order in which a PDO is mapped: switch it off, set the number of entries to 0, set the entries,
their number, the transmission type, and switch it on.

Source: CiA 301 for communication objects and transfers (7.2.4.3, abort codes), CiA 402 for option codes; see
`hil.codecs.cia402`.
"""

import struct
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from math import floor
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

from pydantic import Field

from hil.codecs import cia402 as codec
from hil.codecs.cia402 import OBJECTS, U32, object_name
from hil.drives.base import DriveError, HandshakeStep
from hil.drives.options import Flag, MonitorPeriod, Word
from hil.drives.settings import GAUGES, DriveSettings, Quantity
from hil.drives.wire import HAIR, Expects, Message, Operation, Reads
from hil.frame import Frame
from servoctl.config.document import Problem
from servoctl.tree.fields import NumberField
from servoctl.tree.rules import Section

T = TypeVar("T")
Transfer: TypeAlias = Generator[HandshakeStep, None, T]  # steps of a transfer, which returns a value

LIMIT = 0.3  # [s] longest time for one answer
ATTEMPTS = 2  # a request may be lost
PAUSE = 0.01  # [s] time between two questions whether an object has a value
ABSENT = (0x0602_0000, 0x0609_0011)  # abort codes: no such object, no such subindex

ABORTS = {  # abort code -> what it says
    0x0504_0001: "Command is not known",
    0x0601_0000: "Unsupported access",
    0x0601_0001: "Object can only be written",
    0x0601_0002: "Object can only be read",
    0x0602_0000: "Object does not exist",
    0x0604_0041: "Object cannot be mapped to the PDO",
    0x0604_0042: "Mapped objects would exceed the PDO",
    0x0604_0043: "Incompatible parameters",
    0x0606_0000: "Hardware error",
    0x0607_0010: "Length of the value does not match",
    0x0609_0011: "Subindex does not exist",
    0x0609_0030: "Value is out of range",
    0x0609_0031: "Value is too high",
    0x0609_0032: "Value is too low",
    0x0800_0000: "General error",
    0x0800_0020: "Value cannot be stored",
    0x0800_0021: "Value cannot be stored because of local control",
    0x0800_0022: "Value cannot be stored in the present state",
}


class AbsentError(DriveError):
    """A node does not have an object."""


class Objects:
    """The objects of one node.

    Each transfer raises DriveError where the drive refuses, does not answer, or keeps another value than was set.
    """

    def __init__(self, node: int) -> None:
        self._request = codec.SDO_REQUEST + node
        self._object = self._answer = b""  # index and subindex that the answer must name, and the answer

    def take(self, data: bytes) -> None:
        """Takes a frame of the node's SDO server; late answers to other requests are left out."""
        if len(data) == 8 and data[1:4] == self._object:
            self._answer = data

    def read(self, index: int, sub: int = 0) -> Transfer[int]:
        what, form = f"{object_name(index, sub)} cannot be read", OBJECTS[index, sub][1]
        answer = yield from self._ask(what, codec.sdo_request(index, sub))
        if answer[0] & codec.UPLOADED_BITS != codec.UPLOADED:
            raise DriveError(f"{what}: its answer is no expedited upload (command 0x{answer[0]:02X})")
        size = 4 - (answer[0] >> 2 & 3) if answer[0] & 1 else 4
        if size < form.size:  # some drives send more than the object has
            raise DriveError(f"{what}: it has {size} bytes, expected {form.size}")
        return int(form.unpack_from(answer, 4)[0])

    def write(self, index: int, value: int, sub: int = 0) -> Transfer[None]:
        what = f"{object_name(index, sub)} cannot be set to {value}"
        try:
            request = codec.sdo_request(index, sub, value)
        except struct.error as error:
            raise DriveError(f"{what}: it has {OBJECTS[index, sub][1].size} bytes") from error
        answer = yield from self._ask(what, request)
        if answer[0] != codec.DOWNLOADED:
            raise DriveError(f"{what}: its answer is none to a download (command 0x{answer[0]:02X})")

    def set(self, index: int, value: int, sub: int = 0) -> Transfer[None]:
        yield from self.write(index, value, sub)
        yield from self.check(index, value, sub)

    def offer(self, index: int, value: int) -> Transfer[bool]:
        """Sets an object and reads it back, if the drive has it; returns whether it has."""
        try:
            yield from self.write(index, value)
        except AbsentError:
            return False
        yield from self.check(index, value)
        return True

    def check(self, index: int, value: int, sub: int = 0, ignored: int = 0) -> Transfer[None]:
        """Reads back what was set; bits in `ignored` may differ."""
        kept = yield from self.read(index, sub)
        if (kept ^ value) & ~ignored:
            raise DriveError(f"{object_name(index, sub)} was set to {value} and reads {kept}")

    def find(self, index: int, sub: int = 0) -> Transfer[int | None]:
        """Reads an object; None if the drive does not have it."""
        try:
            return (yield from self.read(index, sub))
        except AbsentError:
            return None

    def wait(self, index: int, value: int, limit: float) -> Transfer[None]:
        """Reads an object until it has a value; a step that takes longer than `limit` [s] fails."""
        form = OBJECTS[index, 0][1]

        def reads_it() -> bool:
            answer = self._answer
            return bool(answer) and (answer[0] == codec.ABORT or form.unpack_from(answer, 4)[0] == value)

        what = f"{object_name(index)} reads {value}"
        yield from self._ask(what, codec.sdo_request(index), reads_it, PAUSE, max(1, round(limit / PAUSE)))

    def _ask(
        self,
        what: str,
        request: bytes,
        done: Callable[[], bool] | None = None,
        limit: float = LIMIT,
        attempts: int = ATTEMPTS,
    ) -> Transfer[bytes]:
        """Sends a request until an answer has come or `done`; returns the answer, 8 bytes."""
        self._object, self._answer = request[1:4], b""
        expected = what if done else f"{what}: no SDO response"
        came = done or (lambda: bool(self._answer))
        yield HandshakeStep([Frame(self._request, request)], came, limit, expected, attempts, prompt=True)
        answer, self._object = self._answer, b""
        if answer[0] != codec.ABORT:
            return answer
        (code,) = U32.unpack_from(answer, 4)
        text = f"{what}: {ABORTS.get(code, 'it is refused')} (abort code 0x{code:08X})"
        raise AbsentError(text) if code in ABSENT else DriveError(text)


class MonitoredObject(NamedTuple):
    """An object that holds a temperature, a voltage or a load."""

    number: Annotated[int, NumberField("an index from 0 to 0xFFFF", least=0, below=1 << 16, whole=True)]  # its index
    sub: Annotated[int, NumberField("a subindex from 0 to 255", least=0, below=256, whole=True)]  # its subindex
    # [degree C, V, or 1 for the largest lasting load] what one count of it is
    unit: Annotated[float, NumberField("the unit of one count, above 0", above=0.0)]


DC_LINK = MonitoredObject(0x6079, 0, 0.001)  # DC link circuit voltage, by the standard in mV

# what an object may hold; the warning is in each statusword
KNOWN = {gauge.name: gauge.quantity for gauge in GAUGES if gauge.quantity is not Quantity.WARNING}
MONITORED = f"{{{', '.join(KNOWN)}: [index, subindex, unit]}}"


def questions(node: int, objects: Mapping[Quantity, MonitoredObject]) -> list[Frame]:
    """Frames that ask the drive with this node id for each of the objects."""
    places = [(each.number, each.sub) for each in objects.values()]
    return [Frame(codec.SDO_REQUEST + node, codec.sdo_request(*place)) for place in places]


def answers(node: int, objects: Mapping[Quantity, MonitoredObject]) -> Iterator[Message]:
    """Their answers; the size of an object shows only there."""
    for quantity, (index, sub, unit) in objects.items():
        for head, field in codec.answer_heads(index, sub).items():
            reads = Reads(field, quantity, ((Operation.TIMES, unit),))
            selects = (Expects(codec.HEAD, codec.HEAD.mask, head),)
            yield Message(codec.SDO_ANSWER + node, 8, (reads,), selects=selects)


HEARTBEAT = 0.1  # [s] period of the drive's heartbeat
RATED_TOLERANCE = 0.01  # largest relative difference between the rated torque of the drive and of the config
INVALID = 1 << 31  # bit in the COB-ID of a PDO that switches it off
NO_REQUESTS = 1 << 30  # bit in the COB-ID of a PDO: it cannot be asked for by a remote frame
ASYNCHRONOUS = 255  # transmission type of a PDO that acts when it arrives

QUICK_STOP_THEN_DISABLE = 2
"""Value of 0x605A, 0x605E: quick-stop ramp, then switch on disabled. Low-cost drives may cut the torque at once."""
QUICK_STOP_THEN_HOLD = 6
"""Value of 0x605A: quick-stop ramp, then it holds in quick stop active until it is disabled. Not at bring-up: a drive
that loses the loop would stay on."""
ABORT_BY_QUICK_STOP = 3
"""Value of 0x6007: quick stop when heartbeat or bus is lost. Some firmware swaps 2 and 3: test the real drive."""

QUICK_STOP_OPTION, QUICK_STOP_DECELERATION = 0x605A, 0x6085
NMT_STOPPED = 2  # value of 0x1029:1: after an error of communication the node stops, and answers nothing

STAYS = "whether a quick stop brakes the shaft and ends in the off state is its own setting"
REACTIONS = {  # option code -> the value that is set, and what is not known where the drive does not have the object
    0x6007: (ABORT_BY_QUICK_STOP, "what it does when the bus is cut or the loop dies is its own setting"),
    QUICK_STOP_OPTION: (QUICK_STOP_THEN_DISABLE, STAYS),
    0x605B: (0, "on shutdown it may ramp by an encoder that is in doubt"),
    0x605C: (1, "on disable operation its torque may go before its brake is closed"),
    0x605E: (QUICK_STOP_THEN_DISABLE, "whether it brakes the shaft after a fault is its own setting"),
}
POLARITY, ENCODER_POLARITY = 0xE0, 0xC0
"""Bits of 0x607E: 7 turns positions and 6 speeds; 5, of some makers, torques (Mitsubishi MR-J5, 607Eh)."""
TURNED = {POLARITY: "positions, speeds and torques", ENCODER_POLARITY: "positions and speeds"}
TORQUE_LIMITS = 0x60E0, 0x60E1, 0x6073
"""Objects that limit torque as 0x6072 does. Some drives have them for reading only; 0: the limit is not used."""

UNKNOWN_RAMP = "the deceleration of its quick stop is its own setting"

# entries of a PDO mapping: index, subindex, bits
CONTROLWORD, TARGET_TORQUE = 0x6040_0010, 0x6071_0010
POSITION, VELOCITY = 0x6064_0020, 0x606C_0020
STATUSWORD, TORQUE, ERROR_CODE = 0x6041_0010, 0x6077_0010, 0x603F_0010


def most_torque(settings: DriveSettings) -> int:
    """The torque limit in thousandths of the rated torque, rounded down; 0 without a rated torque."""
    rated = settings.rated_torque or 0.0
    return floor(min(1000 * settings.motor_limit / rated + HAIR, 1e9)) if rated else 0


def check_type(objects: Objects) -> Transfer[None]:
    profile = (yield from objects.read(0x1000)) & 0xFFFF
    if profile != 402:
        raise DriveError(f"0x1000 (Device type) says profile {profile}, not 402 (is this the right node?)")


def check_drive(objects: Objects, settings: DriveSettings) -> Transfer[None]:
    """Checks torque mode, rated torque, polarity and limits, and that the drive is not enabled already."""
    modes = yield from objects.read(0x6502)
    if not modes & codec.TORQUE_MODE_BIT:
        raise DriveError(f"0x6502 (Supported drive modes) is 0x{modes:X}: no cyclic synchronous torque (bit 9)")
    rated = (yield from objects.read(0x6076)) / 1000  # in mN m
    declared = settings.rated_torque or 0.0
    if abs(rated - declared) > RATED_TOLERANCE * declared:
        what = f"0x6076 (Motor rated torque) is {rated:g} N m, the config's rated_torque is {declared:g} N m"
        raise DriveError(f"{what} (every torque would be wrong by that ratio: correct one of them)")
    yield from check_polarity(objects, POLARITY)
    for index in TORQUE_LIMITS:
        limit, most = (yield from objects.find(index)), most_torque(settings)
        if limit and limit < most:
            what = f"{object_name(index)} is {limit} thousandths, torque_limit needs {most}"
            lower = f"{settings.torque_limit * limit / most:.4g}"
            raise DriveError(f"{what} (raise it with the maker's tool; or lower torque_limit to {lower})")
    state = codec.state_of((yield from objects.read(0x6041)))
    if state in (codec.Cia402State.ENABLED, codec.Cia402State.QUICK_STOP):
        raise DriveError(f"is in state {state.value} already (disable it; is there another master?)")


def check_polarity(objects: Objects, bits: int) -> Transfer[None]:
    """Checks that these bits of 0x607E turn the signs of all that they stand for, or of nothing."""
    polarity = (yield from objects.find(0x607E)) or 0
    if polarity & bits not in (0, bits):
        what = f"{object_name(0x607E)} is 0x{polarity:02X}: it does not turn the signs of {TURNED[bits]} together"
        raise DriveError(f"{what} (set it to 0 with the maker's tool, and correct `sign`)")


def map_feedback(objects: Objects, node: int) -> Transfer[None]:
    """Maps TPDO1: position and velocity after each SYNC."""
    yield from _map(objects, 0x1800, codec.TPDO1 + node, 1, (POSITION, VELOCITY))


def silence(objects: Objects) -> Transfer[None]:
    """Switches all PDOs off: a PDO that is on by default (EPOS4: RPDO3, 4) would obey frames meant for other nodes."""
    for pdo in range(len(codec.RPDOS)):
        for base in (0x1400, 0x1800):
            if (yield from objects.find(base + pdo, 1)) is not None:
                yield from _switch_off(objects, base + pdo)


def map_drive(objects: Objects, node: int, status_every: int) -> Transfer[None]:
    """Maps RPDO1, with controlword and torque, and TPDO2, with the status."""
    yield from _map(objects, 0x1400, codec.RPDO1 + node, ASYNCHRONOUS, (CONTROLWORD, TARGET_TORQUE))
    yield from _map(objects, 0x1801, codec.TPDO2 + node, status_every, (STATUSWORD, TORQUE, ERROR_CODE))


def _map(objects: Objects, communication: int, cob: int, kind: int, entries: Sequence[int]) -> Transfer[None]:
    mapping = communication + 0x200
    kept = yield from _switch_off(objects, communication)
    yield from objects.write(communication, INVALID | kept | cob, 1)
    yield from objects.write(mapping, 0, 0)
    for place, entry in enumerate(entries, 1):
        yield from objects.write(mapping, entry, place)
    yield from objects.set(mapping, len(entries), 0)
    for place, entry in enumerate(entries, 1):
        yield from objects.check(mapping, entry, place)
    yield from objects.set(communication, kind, 2)
    yield from objects.write(communication, kept | cob, 1)
    yield from objects.check(communication, cob, 1, ignored=NO_REQUESTS)


def _switch_off(objects: Objects, communication: int) -> Transfer[int]:
    """Switches a PDO off without another change; returns bit 30 of its id, which some drives do not let change."""
    cob = yield from objects.read(communication, 1)
    if not cob & INVALID:
        yield from objects.write(communication, INVALID | cob, 1)
    return cob & NO_REQUESTS


def set_reactions(objects: Objects, settings: DriveSettings, options: "Cia402Options") -> Transfer[list[str]]:
    """Sets how the drive stops: by a quick stop, by disable operation, after a fault, and when the connection is lost.

    Returns a sentence for each of these objects that the drive does not have: it may stop otherwise.
    """
    unit = options.velocity_unit if options.acceleration_unit is None else options.acceleration_unit
    deceleration = max(1, round(abs(settings.motor_rate(settings.ramp)) / unit))
    doubts = []
    for option, (value, doubt) in (REACTIONS | {QUICK_STOP_DECELERATION: (deceleration, UNKNOWN_RAMP)}).items():
        if not (yield from objects.offer(option, value)):
            doubts.append(f"{object_name(option)} is absent: {doubt}")
    if (yield from objects.find(0x1029, 1)) == NMT_STOPPED:
        doubts.append("0x1029:1 (Error behaviour) is 2: after a lost connection it cannot be asked whether it is off")
    return doubts


def set_mode(objects: Objects, settings: DriveSettings) -> Transfer[None]:
    """Sets torque mode, its limit and zero torque, and waits until the mode is active."""
    yield from objects.set(0x6072, most_torque(settings))
    yield from objects.write(0x6071, 0)
    yield from objects.offer(0x60B2, 0)  # is added to the target torque
    yield from objects.write(0x6060, codec.TORQUE_MODE)
    yield from objects.wait(0x6061, codec.TORQUE_MODE, 0.5)


def set_heartbeats(objects: Objects, options: "Cia402Options", watchdog: float) -> Transfer[None]:
    """Sets the period of the drive's heartbeat, and its watchdog on the master's [s]."""
    yield from objects.set(0x1017, round(1000 * HEARTBEAT))
    if not options.drive_watchdog:
        return
    if (yield from objects.find(0x1016, 1)) is None:
        what = "is absent: the drive keeps its last torque when the loop dies or the bus is cut"
        raise DriveError(f"{object_name(0x1016, 1)} {what} (drive_watchdog: false lets it in)")
    yield from objects.set(0x1016, options.master << 16 | round(1000 * watchdog), 1)


SLOWEST_STATUS = 0.1  # longest time between statuses [s]: a handshake step waits 0.5 s for a few of them
LONGEST_WATCHDOG = 65.0  # [s] 0x1016 has 16 bits of milliseconds


class Cia402EncoderOptions(Section):
    # counts of 0x6064 per turn of the motor
    counts_per_turn: Annotated[
        int, NumberField("the counts of 0x6064 per turn of the motor, above 0", above=0, whole=True)
    ]
    # speed of the motor per count of 0x606C [rad/s]; no default, since vendors differ (EPOS4: rpm)
    velocity_unit: Annotated[
        float, NumberField("the unit of 0x606C in rad/s, above 0, such as rpm or 2*pi/65536", above=0.0)
    ]


class Cia402Options(Cia402EncoderOptions):
    # node id of the heartbeat that the loop sends
    master: Annotated[int, NumberField("a node id from 1 to 127", least=1, below=128, whole=True)] = 127
    # number of SYNCs from one status (TPDO2) to the next
    status_every: Annotated[int, NumberField("a number of SYNCs from 1 to 240", least=1, below=241, whole=True)] = 10
    # whether the drive watches our heartbeat (0x1016); false lets in one that cannot: it keeps its last torque when the
    # loop dies
    drive_watchdog: Flag = True
    # acceleration of the motor per count of 0x6085 [rad/s^2]; None: velocity_unit per second
    acceleration_unit: Annotated[float | None, NumberField("the unit of 0x6085 in rad/s^2, above 0", above=0.0)] = None
    # time between two questions over SDO for the bus voltage, 0x6079, and `monitor_objects` [s]; None: they are not
    # asked for
    monitor_period: MonitorPeriod = None
    # `temperature`, `motor_temperature`, `supply` or `load` -> index, subindex and unit of the object that holds it;
    # makers differ, so only the bus voltage has a default, 0x6079 in mV
    monitor_objects: Annotated[
        Mapping[Annotated[str, Word(", ".join(KNOWN), tuple(KNOWN))], MonitoredObject], Field(description=MONITORED)
    ] = {}

    @property
    def monitored(self) -> dict[Quantity, MonitoredObject]:
        """The objects to ask for; none without `monitor_period`."""
        if self.monitor_period is None:
            return {}
        return {Quantity.SUPPLY: DC_LINK} | {KNOWN[name]: each for name, each in self.monitor_objects.items()}


def drive_problems(settings: DriveSettings, options: Cia402Options, period: float) -> list[Problem]:
    problems = []
    if not settings.rated_torque:
        problems.append(Problem(("rated_torque",), "is missing (give the motor's, as in 0x6076) [N m]"))
    elif not 1 <= (most := most_torque(settings)) <= 0x7FFF:
        what = f"{settings.torque_limit} at the joint is {most} thousandths of the motor's rated torque"
        problems.append(Problem(("torque_limit",), f"{what} (the wire takes 1 to 32767: check gear and rated_torque)"))
    if (slowest := options.status_every * period) > SLOWEST_STATUS:
        what = f"{options.status_every} SYNCs are {slowest:g} s from status to status"
        problems.append(Problem(("status_every",), f"{what} (at most {SLOWEST_STATUS} s)"))
    if settings.watchdog > LONGEST_WATCHDOG:
        what = f"{settings.watchdog} s is more than 16 bits of milliseconds"
        problems.append(Problem(("watchdog",), f"{what} (set hil.safety.drive_watchdog lower)"))
    return problems
