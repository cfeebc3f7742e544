"""What a CiA 402 drive is asked and told over SDO before the loop runs.

Source: CiA 301 for the communication objects, CiA 402 for the option codes; see `hil.codecs.cia402`. A PDO is mapped
in the order that CiA 301 prescribes: switched off, no entries, entries, their number, type, switched on.
"""

from collections.abc import Sequence
from math import floor
from typing import TYPE_CHECKING

from hil.codecs import cia402 as codec
from hil.drives.base import DriveError
from hil.drives.settings import DriveSettings

if TYPE_CHECKING:
    from hil.drives.sdo import Objects  # canopen is slow to import, and only bring-up needs it

HEARTBEAT = 0.1
"""Period of the drive's heartbeat [s]."""
RATED_TOLERANCE = 0.01
"""Relative difference between the drive's rated torque and the config's."""
INVALID = 1 << 31
"""In the id of a PDO: it is off."""
ASYNCHRONOUS = 255
"""PDO type: acts as it arrives."""

QUICK_STOP_THEN_DISABLE = 2
ABORT_BY_QUICK_STOP = 3

CONTROLWORD, TARGET_TORQUE = 0x6040_0010, 0x6071_0010
POSITION, VELOCITY = 0x6064_0020, 0x606C_0020
STATUSWORD, TORQUE, ERROR_CODE = 0x6041_0010, 0x6077_0010, 0x603F_0010


def most_torque(settings: DriveSettings) -> int:
    """The torque limit in thousandths of the rated torque, rounded down."""
    rated = settings.rated_torque or 0.0
    return floor(1000 * abs(settings.motor_torque(settings.torque_limit)) / rated) if rated else 0


def check_type(objects: "Objects") -> None:
    """Refuses what is no CiA 402 drive.

    Raises:
        DriveError: It is none, or does not answer.
    """
    profile = objects.read(0x1000) & 0xFFFF
    if profile != 402:
        raise DriveError(f"0x1000 (Device type) says profile {profile}, not 402 (is this the right node?)")


def check_drive(objects: "Objects", settings: DriveSettings) -> None:
    """Refuses a drive that is not what the config says, or that is enabled already.

    Raises:
        DriveError: It has no torque mode, another rated torque, or is enabled by somebody else.
    """
    modes = objects.read(0x6502)
    if not modes & codec.TORQUE_MODE_BIT:
        raise DriveError(f"0x6502 (Supported drive modes) is 0x{modes:X}: no cyclic synchronous torque (bit 9)")
    rated = objects.read(0x6076) / 1000
    declared = settings.rated_torque or 0.0
    if abs(rated - declared) > RATED_TOLERANCE * declared:
        what = f"0x6076 (Motor rated torque) is {rated:g} N m, the config's rated_torque is {declared:g} N m"
        raise DriveError(f"{what} (every torque would be wrong by that ratio: correct one of them)")
    state = codec.state_of(objects.read(0x6041))
    if state in (codec.Cia402State.ENABLED, codec.Cia402State.QUICK_STOP):
        raise DriveError(f"is in state {state.value} already (disable it; is there another master?)")


def map_feedback(objects: "Objects", node: int) -> None:
    """TPDO1 with position and velocity after each SYNC."""
    _map(objects, 0x1800, codec.TPDO1 + node, 1, (POSITION, VELOCITY))


def silence(objects: "Objects", node: int) -> None:
    """All PDOs off: one that is on by default would let another node's frame command the axis."""
    for number in range(len(codec.RPDOS)):
        for base, cob in ((0x1400, codec.RPDO1), (0x1800, codec.TPDO1)):
            if objects.has(base + number, 1):
                objects.write(base + number, INVALID | cob + 0x100 * number + node, 1)


def map_drive(objects: "Objects", node: int, status_every: int) -> None:
    """RPDO1 with controlword and torque, TPDO2 with status."""
    _map(objects, 0x1400, codec.RPDO1 + node, ASYNCHRONOUS, (CONTROLWORD, TARGET_TORQUE))
    _map(objects, 0x1801, codec.TPDO2 + node, status_every, (STATUSWORD, TORQUE, ERROR_CODE))


def _map(objects: "Objects", communication: int, cob: int, kind: int, entries: Sequence[int]) -> None:
    mapping = communication + 0x200
    objects.write(communication, INVALID | cob, 1)
    objects.write(mapping, 0, 0)
    for number, entry in enumerate(entries, 1):
        objects.write(mapping, entry, number)
    objects.set(mapping, len(entries), 0)
    for number, entry in enumerate(entries, 1):
        objects.check(mapping, entry, number)
    objects.set(communication, kind, 2)
    objects.set(communication, cob, 1)


def set_reactions(objects: "Objects") -> None:
    """Quick stop, then disabled: on quick stop, on a fault, and where the connection is lost."""
    objects.set(0x6007, ABORT_BY_QUICK_STOP)
    objects.set(0x605A, QUICK_STOP_THEN_DISABLE)
    objects.set(0x605E, QUICK_STOP_THEN_DISABLE)


def set_mode(objects: "Objects", settings: DriveSettings) -> None:
    """Torque mode, confirmed, with its limit, and no torque."""
    objects.set(0x6072, most_torque(settings))
    objects.write(0x6071, 0)
    if objects.has(0x60B2):
        objects.set(0x60B2, 0)
    objects.write(0x6060, codec.TORQUE_MODE)
    objects.wait(0x6061, codec.TORQUE_MODE, 0.5)


def set_heartbeats(objects: "Objects", master: int, watchdog: float) -> None:
    """The drive's heartbeat, and how long it does without the master's [s]."""
    objects.set(0x1017, round(1000 * HEARTBEAT))
    objects.set(0x1016, master << 16 | round(1000 * watchdog), 1)
