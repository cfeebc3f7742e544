"""Which ids a node uses on its bus.

Design: nodes of two protocols may share a bus, but an id has another meaning in each: the position of one motor could
be the torque command of another. So no id may have two owners.
"""

from typing import NamedTuple

from hil.codecs import cia402
from hil.drives.cia402_options import Cia402Options
from hil.drives.mit_options import MitOptions
from hil.drives.options import options_of
from hil.drives.settings import DriveSettings, SensorSettings

ODRIVE_IDS = 32
"""Ids of one ODrive: the lower five bits are the command."""


class Ids(NamedTuple):
    """Ids of one node, 11 bits.

    Attributes:
        exclusive: Ids that no other node may use.
        shared: Ids that nodes of the same protocol may share.
    """

    exclusive: frozenset[int]
    shared: frozenset[int]


def ids_of(settings: SensorSettings) -> Ids:
    """The ids of a node; its options must be valid."""
    return _IDS[settings.protocol](settings)


def common(one: SensorSettings, other: SensorSettings) -> frozenset[int]:
    """Ids in which two nodes conflict."""
    a, b = ids_of(one), ids_of(other)
    owned = a.exclusive & (b.exclusive | b.shared) | a.shared & b.exclusive
    return owned if one.protocol == other.protocol else owned | a.shared & b.shared


def _odrive(settings: SensorSettings) -> Ids:
    first = settings.node * ODRIVE_IDS
    return Ids(frozenset(range(first, first + ODRIVE_IDS)), frozenset())


def _cia402(settings: SensorSettings) -> Ids:
    """Source: CiA 301, predefined connection set."""
    exclusive = {base + number * 0x100 for base in (cia402.TPDO1, cia402.RPDO1) for number in range(4)}
    exclusive |= {cia402.EMERGENCY, cia402.SDO_ANSWER, cia402.SDO_REQUEST, cia402.HEARTBEAT}
    shared = {cia402.NMT, cia402.SYNC}
    if isinstance(settings, DriveSettings):
        shared.add(cia402.HEARTBEAT + options_of(Cia402Options, settings).master)
    return Ids(frozenset(base + settings.node for base in exclusive), frozenset(shared))


def _mit(settings: SensorSettings) -> Ids:
    return Ids(frozenset({settings.node}), frozenset({options_of(MitOptions, settings).host}))


_IDS = {"odrive": _odrive, "cia402": _cia402, "mit": _mit}
