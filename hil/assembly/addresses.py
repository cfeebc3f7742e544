"""Which CAN ids nodes use, and whether they fit together: distinct buses, nodes on existing buses, no id used twice."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from hil.codecs import cia402, damiao, moteus, robstride
from hil.drives.cia402_setup import Cia402Options
from hil.drives.mit_options import MitOptions
from hil.drives.moteus_options import MoteusOptions
from hil.drives.options import options_of
from hil.drives.protocols import classic_problem
from hil.drives.robstride import RobstrideOptions
from hil.drives.settings import DriveSettings, SensorSettings
from servoctl.config.document import Problem
from servoctl.expression.suggest import remedy

EMULATED = "emulated"
"""Interface of buses in virtual time."""

EMULATED_KEYS = ("interface", "bitrate", "channel", "fd", "data_bitrate", "data_sample_point")
"""Keys of an emulated bus. `channel` and `data_sample_point` have no effect; they are allowed, so a config can switch
to a real bus and back."""

ConfigNodes = Sequence[tuple[tuple[str, str, int], SensorSettings]]
"""Nodes with their paths in the config."""


def bus_problems(buses: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """There must be a bus, no two buses may be the same, all share one clock, and their bit rates fit together."""
    if not buses:
        yield Problem(("hil", "buses"), "no bus (name one: {main: {interface: emulated}})")
    virtual = [name for name, keys in buses.items() if keys["interface"] == EMULATED]
    if virtual and len(virtual) < len(buses):
        what = f"{', '.join(virtual)} is emulated in virtual time and the others are not"
        yield Problem(("hil", "buses"), f"{what} (one clock for all: make every bus emulated, or none)")
    names: dict[tuple[str, ...], str] = {}
    for name, keys in buses.items():
        yield from (Problem(("hil", "buses", name, key), what) for key, what in _wrong_rates(keys))
        if keys["interface"] == EMULATED:
            for key in (key for key in keys if key not in EMULATED_KEYS):
                what = f"an emulated bus has no such key ({remedy(key, EMULATED_KEYS)})"
                yield Problem(("hil", "buses", name, key), what)
            continue
        channel = tuple(str(keys.get(key)) for key in ("interface", "channel", "port"))
        if names.setdefault(channel, name) != name:
            what = f"{channel[0]} {channel[1]} is already bus '{names[channel]}' (put all nodes on that one)"
            yield Problem(("hil", "buses", name, "channel"), what)


def _wrong_rates(keys: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys of a bus that do not fit its other keys, and why."""
    rate, fd = keys.get("data_bitrate"), keys.get("fd", False)
    for key in ("data_bitrate", "data_sample_point"):
        if key in keys and not fd:
            yield key, "a classic bus has none (set fd: true, or leave it out)"
    if fd and rate is not None and rate <= keys["bitrate"]:
        yield "data_bitrate", f"{rate} bit/s is not above bitrate {keys['bitrate']} bit/s (raise it, or leave it out)"


def node_problems(nodes: ConfigNodes, buses: Mapping[str, Any]) -> Iterator[Problem]:
    """Every node must be on an existing bus, have a node id of its own there, and speak FD if the bus does."""
    names: dict[tuple[str, int], str] = {}
    for path, node in nodes:
        address = (node.bus, node.node)
        if node.bus not in buses:
            yield Problem((*path, "bus"), f"there is no bus '{node.bus}' ({remedy(node.bus, buses)})")
        elif address in names:
            what = f"node {node.node} of bus '{node.bus}' is already {names[address]} (give each node its own id)"
            yield Problem((*path, "node"), what)
        names.setdefault(address, node.name)
        if what := classic_problem(node):
            yield Problem((*path, "bus"), what)


def id_problems(nodes: ConfigNodes) -> Iterator[Problem]:
    """No two nodes may use the same CAN id; the nodes' options must be valid."""
    for (_, one), (path, other) in combinations(nodes, 2):
        if one.bus == other.bus and (shared := common(one, other)):
            what = f"{other.protocol} {other.name} and {one.protocol} {one.name} on bus '{one.bus}' both use id"
            remedies = "give one of them another node id, master or host, or a bus of its own"
            yield Problem((*path, "node"), f"{what} 0x{min(shared):03X} ({remedies})")


ODRIVE_IDS = 32
"""Ids of one ODrive: the lower five bits are the command."""


class Ids(NamedTuple):
    """Ids of one node; those above 0x7FF have 29 bits.

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
    options = options_of(MitOptions, settings)
    registers = {damiao.REQUEST} if options.status == "damiao" else set()
    return Ids(frozenset({settings.node}), frozenset({options.host} | registers))


def _moteus(settings: SensorSettings) -> Ids:
    node, source = settings.node, options_of(MoteusOptions, settings).source
    return Ids(
        frozenset({moteus.reply_identifier(node, source), *moteus.command_identifiers(node, source)}), frozenset()
    )


def _robstride(settings: SensorSettings) -> Ids:
    """Ids hold data; each stands for those that differ in it. Only motors of this protocol can have the same."""
    node, host = settings.node, options_of(RobstrideOptions, settings).host
    commands = {robstride.identifier(kind, 0, node) for kind in robstride.COMMANDS}
    answers = {robstride.identifier(kind, node, host) for kind in (robstride.FEEDBACK, robstride.READ)}
    return Ids(frozenset(commands | answers), frozenset())


_IDS = {"odrive": _odrive, "cia402": _cia402, "mit": _mit, "moteus": _moteus, "robstride": _robstride}
