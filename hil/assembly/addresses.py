"""Whether the addresses of a rig are consistent: distinct buses, nodes on existing buses, no CAN id used twice."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from hil.drives.ids import common
from hil.drives.settings import SensorSettings
from servoctl.assembly.problems import Problems
from servoctl.expression.suggest import remedy

EMULATED = "emulated"
"""Interface of buses in virtual time."""

EMULATED_KEYS = ("interface", "bitrate", "channel")
"""Keys of an emulated bus. `channel` has no effect; it is allowed, so a config can switch to a real bus and back."""

ConfigNodes = Sequence[tuple[tuple[str, str, int], SensorSettings]]
"""Nodes with their paths in the config."""


def check_buses(buses: Mapping[str, Mapping[str, Any]], problems: Problems) -> None:
    """Checks that there is a bus, that no two buses are the same, and that all share one clock."""
    if not buses:
        problems.add("no bus (name one: {main: {interface: emulated}})", "hil", "buses")
    virtual = [name for name, keys in buses.items() if keys["interface"] == EMULATED]
    if virtual and len(virtual) < len(buses):
        problems.add(
            f"{', '.join(virtual)} is emulated in virtual time and the others are not (one clock for all: make every "
            "bus emulated, or none)",
            "hil",
            "buses",
        )
    names: dict[tuple[str, ...], str] = {}
    for name, keys in buses.items():
        if keys["interface"] == EMULATED:
            for key in keys:
                if key not in EMULATED_KEYS:
                    problem = f"an emulated bus has no such key ({remedy(key, EMULATED_KEYS)})"
                    problems.add(problem, "hil", "buses", name, key)
            continue
        channel = tuple(str(keys.get(key)) for key in ("interface", "channel", "port"))
        if names.setdefault(channel, name) != name:
            problem = f"{channel[0]} {channel[1]} is already bus '{names[channel]}' (put all nodes on that one)"
            problems.add(problem, "hil", "buses", name, "channel")


def check_nodes(nodes: ConfigNodes, buses: Mapping[str, Any], problems: Problems) -> None:
    """Checks that every node is on an existing bus and has a node id of its own there."""
    names: dict[tuple[str, int], str] = {}
    for path, node in nodes:
        address = (node.bus, node.node)
        if node.bus not in buses:
            problems.add(f"there is no bus '{node.bus}' ({remedy(node.bus, buses)})", *path, "bus")
        elif address in names:
            problem = f"node {node.node} of bus '{node.bus}' is already {names[address]} (give each node its own id)"
            problems.add(problem, *path, "node")
        names.setdefault(address, node.name)


def check_ids(nodes: ConfigNodes, problems: Problems) -> None:
    """Checks that no two nodes use the same CAN id; the nodes' options must be valid."""
    for (_, one), (path, other) in combinations(nodes, 2):
        if one.bus == other.bus and (shared := common(one, other)):
            problems.add(
                f"{other.protocol} {other.name} and {one.protocol} {one.name} on bus '{one.bus}' both use id "
                f"0x{min(shared):03X} (give one of them another node id, master or host, or a bus of its own)",
                *path,
                "node",
            )
