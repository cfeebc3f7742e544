"""Turns the `hil` section of a config into nodes and buses, and checks it against the plant.

Nodes have distinct buses, are on existing ones, and use no id twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import combinations
from math import inf, pi
from typing import Any, TypeVar, cast

from hil.bus.load import BusLoad, BusRates, FrameTraffic
from hil.bus.open import is_loopback, key_problems
from hil.drives.base import Drive, Feedback, Node
from hil.drives.settings import DriveSettings, SensorSettings
from hil.emulator.emulator import Fault
from hil.emulator.fault_script import read_faults
from hil.protocols.registry import (
    build,
    classic_problem,
    emulations,
    node_class,
    on_emulated_bus,
)
from hil.protocols.registry import problems as protocol_problems
from servoctl.assembly.build import build_plant, law_limits
from servoctl.assembly.values import Problems
from servoctl.config.document import Problem
from servoctl.config.hil import Hil, NodeConfig, Open
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import LawConfig
from servoctl.errors import ConfigError, ExpressionError, no_such, remedy
from servoctl.expression import constant
from servoctl.mechanics.actuator_parameters import FIELD as ROTORS
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.model import FREE_BASE
from servoctl.mechanics.spatial.plant import Robot
from servoctl.tree.rules import FieldPath

EMULATED = "emulated"  # interface of buses in virtual time

EMULATED_KEYS = ("interface", "bitrate", "channel", "fd", "data_bitrate", "data_sample_point")
"""Keys of an emulated bus. `channel` and `data_sample_point` have no effect; they are allowed, so a config can switch
to a real bus and back."""

ConfigNodes = Sequence[tuple[FieldPath, SensorSettings]]  # nodes with their paths in the config


def bus_problems(buses: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """There must be a bus, no two buses may be the same, all share one clock, and the keys of each fit together."""
    if not buses:
        yield Problem(("hil", "buses"), "no bus (name one: {main: {interface: emulated}})")
    virtual = [name for name, keys in buses.items() if keys["interface"] == EMULATED]
    if virtual and len(virtual) < len(buses):
        what = f"{', '.join(virtual)} is emulated in virtual time and the others are not"
        yield Problem(("hil", "buses"), f"{what} (one clock for all: make every bus emulated, or none)")
    names: dict[tuple[str, ...], str] = {}
    for name, keys in buses.items():
        wrong = list(_wrong_rates(keys))
        if keys["interface"] == EMULATED:
            unknown = [key for key in keys if key not in EMULATED_KEYS]
            wrong += [(key, f"an emulated bus has no such key ({remedy(key, EMULATED_KEYS)})") for key in unknown]
        else:
            wrong += key_problems(keys)
            channel = tuple(str(keys.get(key)) for key in ("interface", "channel", "port"))
            if names.setdefault(channel, name) != name:
                what = f"{channel[0]} {channel[1]} is already bus '{names[channel]}' (put all nodes on that one)"
                wrong.append(("channel", what))
        yield from (Problem(("hil", "buses", name, key), what) for key, what in wrong)


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
            yield Problem((*path, "bus"), no_such("bus", node.bus, buses))
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
            known = {*node_class(one).Options.model_fields, *node_class(other).Options.model_fields}
            others = " or ".join(["node id", *sorted(known & {"master", "host"})])
            remedies = f"give one of them another {others}, or a bus of its own"
            yield Problem((*path, "node"), f"{what} 0x{min(shared):03X} ({remedies})")


def common(one: SensorSettings, other: SensorSettings) -> frozenset[int]:
    """Ids in which two nodes conflict; their settings must have no problems."""
    a, b = (node_class(settings).reserved_ids(settings) for settings in (one, other))
    owned = a.exclusive & (b.exclusive | b.shared) | a.shared & b.exclusive
    return owned if one.protocol == other.protocol else owned | a.shared & b.shared


HALF = 1.0 + 1e-9  # rounding of a lead and its gear

TOLERANCE, SAFE = 0.02, 0.45
"""Usual difference from the start pose [joint unit], and the most that tells turns of the motor apart with room [turn].

After power-on most encoders know their position within one turn of the motor at best. So a position that is wrong by a
turn must never be within the tolerance. Only the owner knows what is on the shaft: no protocol here says it of all
drives (of a moteus `home` is checked).
"""

ABSURD = 1e9  # angle [rad] and torque [N m] beyond those of any motor

Settings = TypeVar("Settings", bound=SensorSettings)


@dataclass(frozen=True)
class HilSettings:
    """The rig of a config."""

    values: Hil  # section `hil`
    drives: tuple[DriveSettings, ...]  # one per actuator, in the plant's order
    sensors: tuple[SensorSettings, ...]  # encoder nodes
    buses: Mapping[str, Mapping[str, Any]]  # name -> interface, bit rate and further keys of python-can
    loads: Mapping[str, BusLoad]  # name -> load of the bus

    @property
    def faults(self) -> list[Fault]:
        """The fault script."""
        return _script(self.values, (*self.drives, *self.sensors), self.buses)[0]

    @property
    def lockstep(self) -> bool:
        """Whether every bus is emulated in virtual time."""
        return all(bus["interface"] == EMULATED for bus in self.buses.values())

    @property
    def real_buses(self) -> set[str]:
        """Buses on which no emulated drive can be."""
        return {name for name, keys in self.buses.items() if keys["interface"] != EMULATED and not is_loopback(keys)}

    def build(self) -> tuple[tuple[Drive, ...], tuple[Node, ...]]:
        """New drivers of the drives and of the encoder nodes."""
        period = self.values.period
        drives = tuple(cast(Drive, build(drive, period)) for drive in self.drives)
        return drives, tuple(build(sensor, period) for sensor in self.sensors)


def hil_settings(loaded: LoadedConfig, plant: Plant, problems: Problems | None = None) -> HilSettings:
    """The rig of a config.

    `problems`: problems in other sections, reported together with those of the rig; None: none.

    Raises ConfigError if the config has no rig, or the rig does not fit the plant; every problem at once.
    """
    values = loaded.config.hil
    problems = Problems(loaded) if problems is None else problems
    if values is None:
        what = "missing (it names buses and drives; see configs/coordinated_robots.yaml)"
        raise ConfigError([loaded.finding(what, "hil")])
    buses = {name: bus.keys for name, bus in values.buses.items()}
    drives = [
        _settings(
            DriveSettings, drive.actuator, drive, values, watchdog=values.safety.drive_watchdog,
            stops=(-inf if drive.stops.lower is None else drive.stops.lower,
                   inf if drive.stops.upper is None else drive.stops.upper),
        )
        for drive in values.drives
    ]  # fmt: skip
    sensors = [_settings(SensorSettings, sensor.coordinate, sensor, values) for sensor in values.sensors]
    nodes: ConfigNodes = [
        *((("hil", "drives", i), drive) for i, drive in enumerate(drives)),
        *((("hil", "sensors", i), sensor) for i, sensor in enumerate(sensors)),
    ]
    true_nodes: ConfigNodes = [
        (("hil", "emulation", "drives", node.name), true_settings(node, values))
        for _, node in nodes
        if node.name in values.emulation.drives
    ]
    law = loaded.config.law
    limits = law_limits(law, plant, problems) if isinstance(law, LawConfig) else {}
    wrong_buses, wrong_names = list(bus_problems(buses)), list(_wrong_names(values, plant))
    _, wrong_faults = _script(values, [*drives, *sensors], buses)
    problems.extend(
        [
            *wrong_buses,
            *wrong_names,
            *([] if wrong_names else _absurd_gears(drives)),
            *_missing_drives(values, plant),
            *_limits_beyond_stops(drives),
            *_wrong_turns(values, nodes),
            *([] if wrong_buses else node_problems(nodes, buses)),
            *_wrong_options(nodes, values.period),
            *_wrong_options(true_nodes, None),
            *_unknown_nodes(values, nodes),
            *_limits_above_drives(isinstance(law, LawConfig) and law.limits == "robot", limits, drives),
            *_unmeasured_bases(plant, values),
            *_wrong_times(values),
            *(Problem(("hil", "faults", *problem.path), problem.what) for problem in wrong_faults),
            *_unknown_parameters(values, plant),
        ]
    )
    problems.check()
    problems.extend(id_problems(nodes))
    loads = {name: _load(name, BusRates.of(bus), values, [*drives, *sensors]) for name, bus in buses.items()}
    path = ("hil", "period")
    problems.extend(Problem(path, f"bus '{name}': {load.sentence}") for name, load in loads.items() if not load.fits)
    problems.check()
    order = {name: i for i, name in enumerate(plant.actuators)}
    ordered = sorted(drives, key=lambda drive: order[drive.name])
    return HilSettings(values, tuple(ordered), tuple(sensors), buses, loads)


def true_settings(node: Settings, values: Hil) -> Settings:
    """Settings of an emulated drive or encoder node: those of the config, with `hil.emulation.drives`."""
    if (different := values.emulation.drives.get(node.name)) is None:
        return node
    changes: dict[str, Any] = {
        key: value
        for key in ("gear", "sign", "offset", "rated_torque")
        if hasattr(node, key) and (value := getattr(different, key)) is not None
    }
    return replace(node, options={**node.options, **_options(different)}, **changes)


def check_rig(loaded: LoadedConfig, problems: Problems) -> None:
    """Adds the problems of the rig to those of other sections, if the plant can be built.

    Raises ConfigError if there is a problem; every problem at once.
    """
    plant = build_plant(loaded, Problems(loaded))
    if plant is not None and loaded.config.hil is not None:
        hil_settings(loaded, plant, problems)
    problems.check()


def _settings(kind: type[Settings], name: str, node: NodeConfig, values: Hil, **more: Any) -> Settings:
    """Settings of a node: the fields of its section, and what follows from its bus and from other sections."""
    same = {field.name: getattr(node, field.name) for field in fields(kind) if field.name in type(node).model_fields}
    bus = values.buses.get(node.bus)
    rates = None if bus is None else BusRates.of(bus.keys)  # an unknown bus counts as classic
    fd = rates is not None and rates.fd
    made = {
        "name": name, "options": _options(node), "start_tolerance": _start_tolerance(node, values), "fd": fd,
        "brs": rates is not None and fd and rates.switches,
    }  # fmt: skip
    settings = kind(**{**same, **made, **more})
    return on_emulated_bus(settings) if bus is not None and bus.interface == EMULATED else settings


def _start_tolerance(node: NodeConfig, values: Hil) -> float:
    """Largest difference of a node from the start pose [joint unit]."""
    given = values.safety.start_tolerance
    return given or (TOLERANCE if node.absolute else min(TOLERANCE, SAFE * 2 * pi / node.gear))


def _wrong_turns(values: Hil, nodes: ConfigNodes) -> Iterator[Problem]:
    """The start tolerance must be less than half a turn of each motor: a position wrong by a turn must not pass."""
    given, pairs = values.safety.start_tolerance, zip((*values.drives, *values.sensors), nodes, strict=True)
    gear, name = max(((node.gear, node.name) for each, (_, node) in pairs if not each.absolute), default=(0.0, ""))
    if given and given * gear > HALF * pi:
        what = f"{given:g} is more than half a turn of the motor of {name}, {pi / gear:.3g}"
        remedy = f"at most {SAFE * 2 * pi / gear:.3g}, or absolute: true where the encoder knows the turn"
        yield Problem(("hil", "safety", "start_tolerance"), f"{what}: a wrong turn would pass ({remedy})")


def _options(node: Open) -> dict[str, Any]:
    """The options of a node's protocol; constant expressions are evaluated."""
    return {name: _number(value) for name, value in node.options.items()}


def _number(value: Any) -> Any:
    """The value of an option; a constant expression is evaluated."""
    if not isinstance(value, str):
        return value
    try:
        return constant(value)
    except ExpressionError:
        return value  # text, not an expression


def _wrong_names(values: Hil, plant: Plant) -> Iterator[Problem]:
    """Each drive and sensor must have a name of the plant, and no two the same."""
    actuators, coordinates = [d.actuator for d in values.drives], [s.coordinate for s in values.sensors]
    for section, key, names, known, taken in (
        ("drives", "actuator", actuators, plant.actuators, ("a drive", "one drive per actuator")),
        ("sensors", "coordinate", coordinates, plant.coordinates, ("an encoder", "remove one")),
    ):
        first: dict[str, int] = {}
        for i, name in enumerate(names):
            path = ("hil", section, i, key)
            if name not in known:
                yield Problem(path, no_such(key, name, known))
            elif first.setdefault(name, i) != i:
                what, advice = taken
                yield Problem(path, f"'{name}' already has {what}, entry {first[name] + 1} ({advice})")


def _missing_drives(values: Hil, plant: Plant) -> Iterator[Problem]:
    missing = [name for name in plant.actuators if name not in [drive.actuator for drive in values.drives]]
    if missing:
        yield Problem(("hil", "drives"), f"no drive for {', '.join(missing)} (every actuator needs one)")


def _limits_beyond_stops(drives: Sequence[DriveSettings]) -> Iterator[Problem]:
    for i, drive in enumerate(drives):
        for key, side, limit, stop in zip(("lower", "upper"), (-1, 1), drive.position_limits, drive.stops, strict=True):
            if side * (limit - stop) > 0:
                what = f"the {key} limit, {limit:g}, is beyond the stop at {stop:g}"
                yield Problem(("hil", "drives", i, "position_limits"), f"{what} (keep the limits clear of the stops)")


def _absurd_gears(drives: Sequence[DriveSettings]) -> Iterator[Problem]:
    for i, drive in enumerate(drives):
        angle = max(abs(drive.motor(limit)) for limit in drive.position_limits)
        if not (angle < ABSURD and drive.motor_limit < ABSURD):
            what = f"at the limits the motor turns to {angle:.3g} rad and makes {drive.motor_limit:.3g} N m"
            remedy = "check gear, offset, position_limits and torque_limit"
            yield Problem(("hil", "drives", i, "gear"), f"{what} ({remedy})")


def _wrong_options(nodes: ConfigNodes, period: float | None) -> Iterator[Problem]:
    """Problems of the nodes' protocols and of their options; without a period, only those that do not depend on it."""
    for path, node in nodes:
        try:
            found = protocol_problems(node, period)
            yield from (Problem((*path, *problem.path), problem.what) for problem in found)
        except ConfigError as error:
            yield Problem((*path, "protocol"), str(error).partition("protocol: ")[2] or str(error))


def _limits_above_drives(
    of_robot: bool, limits: Mapping[str, tuple[float, float]], drives: Sequence[DriveSettings]
) -> Iterator[Problem]:
    """The law's limits, of its config or of the robot's description, must not exceed those of the drives."""
    for drive in drives:
        largest = max(map(abs, limits.get(drive.name, (0.0, 0.0))))
        if largest <= drive.torque_limit:
            continue
        above = f"above torque_limit {drive.torque_limit:g} of its drive"
        if of_robot:
            what = f"robot: the effort of {drive.name}, {largest:g}, is {above} (write law.limits by actuator)"
            yield Problem(("law", "limits"), what)
        else:
            yield Problem(("law", "limits", drive.name), f"{largest:g} is {above} (lower it)")


def _unmeasured_bases(plant: Plant, values: Hil) -> Iterator[Problem]:
    """Sensors must measure every coordinate of a free base, because no drive does."""
    measured = {sensor.coordinate for sensor in values.sensors}
    bases = [plant.tree.joints[i].name for i in plant.tree.free_bases] if isinstance(plant, Robot) else []
    for base in bases:
        missing = [name for name in (f"{base}_{part}" for part in FREE_BASE) if name not in measured]
        if missing:
            what = f"no sensor measures {', '.join(missing)} of the free base"
            yield Problem(("hil", "sensors"), f"{what} (give hil.sensors for all, or base: fixed)")


def _wrong_times(values: Hil) -> Iterator[Problem]:
    period, safety = values.period, values.safety
    if safety.drive_watchdog < 3 * period:
        what = f"{safety.drive_watchdog:g} s is less than 3 periods of {period:g} s (set at least {3 * period:g})"
        yield Problem(("hil", "safety", "drive_watchdog"), what)
    if safety.lost < safety.stale:
        yield Problem(("hil", "safety", "lost"), f"{safety.lost:g} s is less than stale {safety.stale:g} s")


def _script(
    values: Hil, nodes: Sequence[SensorSettings], buses: Mapping[str, Any]
) -> tuple[list[Fault], list[Problem]]:
    """The faults of the config, and the problems of its entries."""
    classes = emulations(nodes, lenient=True) if values.faults else {}
    return read_faults(values.faults, nodes, classes, {name: bool(keys.get("fd")) for name, keys in buses.items()})


def _unknown_nodes(values: Hil, nodes: ConfigNodes) -> Iterator[Problem]:
    named = {node.name: node for _, node in nodes}
    for name, different in values.emulation.drives.items():
        path = ("hil", "emulation", "drives", name)
        if name not in named:
            yield Problem(path, f"no drive or sensor has this name ({remedy(name, named)})")
        elif different.rated_torque is not None and not getattr(named[name], "rated_torque", None):
            what = f"{named[name].protocol} {name} has none in the config: it would change nothing (remove it)"
            yield Problem((*path, "rated_torque"), what)


def _unknown_parameters(values: Hil, plant: Plant) -> Iterator[Problem]:
    known: list[str] = [field.name for field in fields(plant) if field.init] if is_dataclass(plant) else []
    parameters = [name for name in known if name != ROTORS]
    parameters += [f"{ROTORS}.{actuator}" for actuator in plant.actuators]
    for name in values.emulation.parameters:
        if name not in parameters:
            unknown = f"{type(plant).__name__} has no such parameter ({remedy(name, parameters)})"
            yield Problem(("hil", "emulation", "parameters", name), unknown)


def _load(name: str, rates: BusRates, values: Hil, nodes: list[SensorSettings]) -> BusLoad:
    """Load of a bus by its nodes, and by SYNC if a node needs it."""
    here = [(node_class(node), node) for node in nodes if node.bus == name]
    synced = any(kind.feedback is Feedback.SYNC for kind, _ in here)

    def traffic(period: float) -> list[FrameTraffic]:
        frames = [each for kind, node in here for each in kind.traffic(node, period)]
        return [*frames, FrameTraffic(0, 1 / period)] if synced else frames

    return BusLoad(traffic, values.period, rates, values.max_bus_load)
