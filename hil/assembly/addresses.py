"""Who is where: each bus is one of its own, each node is on one that there is, and no id has two owners."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from hil.drives.ids import common
from hil.drives.settings import SensorSettings
from servoctl.assembly.problems import Problems
from servoctl.expression.suggest import remedy

EMULATED = "emulated"
"""Interface of buses in lock-step."""

OF_EMULATED = ("interface", "bitrate", "channel")
"""Keys of an emulated bus; its channel says nothing, and stays where somebody goes to and fro between buses."""

Placed = Sequence[tuple[tuple[str, str, int], SensorSettings]]
"""Nodes with their places in the config."""


def check_buses(buses: Mapping[str, Mapping[str, Any]], problems: Problems) -> None:
    """Every bus is another one, and one clock serves them all."""
    if not buses:
        problems.add("no bus (name one: {main: {interface: emulated}})", "hil", "buses")
    virtual = [name for name, keys in buses.items() if keys["interface"] == EMULATED]
    if virtual and len(virtual) < len(buses):
        what = f"{', '.join(virtual)} is emulated in virtual time and the others are not (one clock for all: make "
        problems.add(f"{what}every bus emulated, or none)", "hil", "buses")
    first: dict[tuple[Any, ...], str] = {}
    for name, keys in buses.items():
        for key in keys if keys["interface"] == EMULATED else ():
            if key not in OF_EMULATED:
                what = f"an emulated bus has no such key ({remedy(key, OF_EMULATED)})"
                problems.add(what, "hil", "buses", name, key)
        place = tuple(str(keys.get(key)) for key in ("interface", "channel", "port"))
        if keys["interface"] != EMULATED and first.setdefault(place, name) != name:
            what = f"{place[0]} {place[1]} is bus '{first[place]}' already (put all its nodes on that one)"
            problems.add(what, "hil", "buses", name, "channel")


def check_nodes(nodes: Placed, buses: Mapping[str, Any], problems: Problems) -> None:
    """Every node is on a bus that there is, under an address of its own."""
    seen: dict[tuple[str, int], str] = {}
    for path, node in nodes:
        if node.bus not in buses:
            problems.add(f"there is no bus '{node.bus}' ({remedy(node.bus, buses)})", *path, "bus")
        elif (node.bus, node.node) in seen:
            what = f"node {node.node} of bus '{node.bus}' is {seen[node.bus, node.node]} already (give each its own id)"
            problems.add(what, *path, "node")
        seen.setdefault((node.bus, node.node), node.name)


def check_ids(nodes: Placed, problems: Problems) -> None:
    """No node takes a frame of another for one of its own; of nodes whose options are right."""
    for (_, one), (path, other) in combinations(nodes, 2):
        if one.bus == other.bus and (shared := common(one, other)):
            what = f"{other.protocol} {other.name} and {one.protocol} {one.name} on bus '{one.bus}' both use id "
            problems.add(
                f"{what}0x{min(shared):03X} (give one another node id, master or host, or a bus of its own)",
                *path,
                "node",
            )
