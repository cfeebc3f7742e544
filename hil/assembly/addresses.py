"""Which CAN ids nodes use, and whether they fit together: distinct buses, nodes on existing buses, no id used twice."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from hil.drives.settings import SensorSettings
from hil.protocols.nodes import classic_problem, node_class
from servoctl.config.document import FieldPath, Problem
from servoctl.expression.suggest import remedy

EMULATED = "emulated"  # interface of buses in virtual time

EMULATED_KEYS = ("interface", "bitrate", "channel", "fd", "data_bitrate", "data_sample_point")
"""Keys of an emulated bus. `channel` and `data_sample_point` have no effect; they are allowed, so a config can switch
to a real bus and back."""

ConfigNodes = Sequence[tuple[FieldPath, SensorSettings]]  # nodes with their paths in the config


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


def common(one: SensorSettings, other: SensorSettings) -> frozenset[int]:
    """Ids in which two nodes conflict; their settings must have no problems."""
    a, b = (node_class(settings).reserved_ids(settings) for settings in (one, other))
    owned = a.exclusive & (b.exclusive | b.shared) | a.shared & b.exclusive
    return owned if one.protocol == other.protocol else owned | a.shared & b.shared
