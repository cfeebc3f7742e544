"""The ids that a node takes on its bus.

Design: nodes of two protocols may share a bus, but an id means something else in each: what one motor says of its
position would be a torque for another. So no id may have two owners.
"""

from typing import NamedTuple

from hil.codecs import cia402
from hil.drives.cia402 import Cia402Options
from hil.drives.mit_options import MitOptions
from hil.drives.options import options_of
from hil.drives.settings import DriveSettings, SensorSettings

OF_ODRIVE = 32
"""Ids of an ODrive: its address, and five bits for what is said."""


class Ids(NamedTuple):
    """Ids of one node, 11 bits.

    Attributes:
        own: Of no other node.
        shared: Of all nodes of its protocol that have them.
    """

    own: frozenset[int]
    shared: frozenset[int]


def ids_of(settings: SensorSettings) -> Ids:
    """The ids of a node whose options are right."""
    return _OF[settings.protocol](settings)


def common(one: SensorSettings, other: SensorSettings) -> frozenset[int]:
    """Ids of two nodes that would be taken for each other's."""
    a, b = ids_of(one), ids_of(other)
    owned = a.own & (b.own | b.shared) | a.shared & b.own
    return owned if one.protocol == other.protocol else owned | a.shared & b.shared


def _odrive(settings: SensorSettings) -> Ids:
    first = settings.node * OF_ODRIVE
    return Ids(frozenset(range(first, first + OF_ODRIVE)), frozenset())


def _cia402(settings: SensorSettings) -> Ids:
    """Source: CiA 301, predefined connection set."""
    own = {base + number * 0x100 for base in (cia402.TPDO1, cia402.RPDO1) for number in range(4)}
    own |= {cia402.EMERGENCY, cia402.SDO_ANSWER, cia402.SDO_REQUEST, cia402.HEARTBEAT}
    shared = {cia402.NMT, cia402.SYNC}
    if isinstance(settings, DriveSettings):
        shared.add(cia402.HEARTBEAT + options_of(Cia402Options, settings).master)
    return Ids(frozenset(base + settings.node for base in own), frozenset(shared))


def _mit(settings: SensorSettings) -> Ids:
    return Ids(frozenset({settings.node}), frozenset({options_of(MitOptions, settings).host}))


_OF = {"odrive": _odrive, "cia402": _cia402, "mit": _mit}
