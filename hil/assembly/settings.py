"""Turns the `hil` section of a config into nodes and buses, and checks it against the plant."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from hil.assembly.addresses import EMULATED, check_buses, check_ids, check_nodes
from hil.bus.load import BusLoad, FrameTraffic, describe_load
from hil.drives.base import Feedback
from hil.drives.protocols import node_class, options_problems
from hil.drives.protocols import problems as protocol_problems
from hil.drives.settings import DriveSettings, SensorSettings
from servoctl.assembly.build import build_plant, law_limits
from servoctl.assembly.problems import Problems
from servoctl.config.hil import Hil
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import LawConfig
from servoctl.errors import ConfigError, ExpressionError
from servoctl.expression import constant
from servoctl.expression.suggest import remedy
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.model import FREE_BASE
from servoctl.mechanics.spatial.plant import Robot

ABSURD = 1e9
"""Angle [rad] and torque [N m] beyond those of any motor."""


@dataclass(frozen=True)
class HilSettings:
    """The rig of a config.

    Attributes:
        values: Section `hil`.
        drives: One per actuator, in the plant's order.
        sensors: Encoder nodes.
        buses: Name -> interface, bit rate and further keys of python-can.
        loads: Name -> load of the bus.
    """

    values: Hil
    drives: tuple[DriveSettings, ...]
    sensors: tuple[SensorSettings, ...]
    buses: Mapping[str, Mapping[str, Any]]
    loads: Mapping[str, BusLoad]

    @property
    def lockstep(self) -> bool:
        """Whether every bus is emulated in virtual time."""
        return all(bus["interface"] == EMULATED for bus in self.buses.values())


def hil_settings(loaded: LoadedConfig, plant: Plant, problems: Problems | None = None) -> HilSettings:
    """The rig of a config.

    Args:
        loaded: The config.
        plant: Its plant.
        problems: Problems in other sections, reported together with those of the rig; None: none.

    Raises:
        ConfigError: The config has no rig, or the rig does not fit the plant; every problem at once.
    """
    values = loaded.config.hil
    problems = Problems(loaded) if problems is None else problems
    if values is None:
        raise ConfigError(
            f"{loaded.where('hil')}: missing (it names buses and drives; see configs/coordinated_robots.yaml)"
        )
    buses = {name: {"interface": b.interface, "bitrate": b.bitrate, **b.options} for name, b in values.buses.items()}
    check_buses(buses, problems)
    drives = _drives(values, plant, problems)
    sensors = _sensors(values, plant, problems)
    nodes = [
        *((("hil", "drives", i), each) for i, each in drives),
        *((("hil", "sensors", i), each) for i, each in sensors),
    ]
    if not problems.touch("hil.buses"):
        check_nodes(nodes, buses, problems)
    timed = not problems.touch("hil.period")
    for path, node in nodes:
        try:
            for problem in protocol_problems(node, values.period) if timed else options_problems(node):
                problems.add(problem.what, *path, *problem.path)
        except ConfigError as error:
            problems.add(str(error).partition("protocol: ")[2] or error, *path, "protocol")
    _check_law_limits(loaded, plant, [each for _, each in drives], problems)
    _check_free_bases(plant, values, problems)
    if timed:
        _check_times(values, problems)
    _check_faults(values, nodes, buses, problems)
    parameters: list[str] = [field.name for field in fields(plant) if field.init] if is_dataclass(plant) else []
    for name in values.emulation.parameters:
        if name not in parameters:
            unknown = f"{type(plant).__name__} has no such parameter ({remedy(name, parameters)})"
            problems.add(unknown, "hil", "emulation", "parameters", name)
    problems.check()
    check_ids(nodes, problems)
    loads = {name: _load(name, bus["bitrate"], values, [each for _, each in nodes]) for name, bus in buses.items()}
    for name, load in loads.items():
        if not load.fits:
            problems.add(f"bus '{name}': {load.sentence}", "hil", "period")
    problems.check()
    order = {name: i for i, name in enumerate(plant.actuators)}
    ordered = sorted((each for _, each in drives), key=lambda drive: order[drive.name])
    return HilSettings(values, tuple(ordered), tuple(each for _, each in sensors), buses, loads)


def check_rig(loaded: LoadedConfig, problems: Problems) -> None:
    """Adds the problems of the rig to those of other sections, if the plant can be built.

    Raises:
        ConfigError: There is a problem; every problem at once.
    """
    plant = build_plant(loaded, Problems(loaded))
    if plant is not None and loaded.config.hil is not None:
        hil_settings(loaded, plant, problems)
    problems.check()


def _drives(values: Hil, plant: Plant, problems: Problems) -> list[tuple[int, DriveSettings]]:
    names = [drive.actuator for drive in values.drives]
    _check_names("drives", "actuator", names, plant.actuators, ("a drive", "one drive per actuator"), problems)
    drives = []
    for i, drive in enumerate(values.drives):
        lower, upper = drive.position_limits
        settings = DriveSettings(
            drive.actuator, drive.bus, drive.protocol, drive.node, drive.gear, drive.sign, drive.offset,
            {name: _number(value) for name, value in drive.options.items()},
            torque_limit=drive.torque_limit, torque_rate_limit=drive.torque_rate_limit,
            speed_limit=drive.speed_limit, position_limits=(lower, upper), rated_torque=drive.rated_torque,
            watchdog=values.safety.drive_watchdog, brake=drive.brake,
        )  # fmt: skip
        angle = max(abs(settings.motor(limit)) for limit in (lower, upper))
        torque = abs(settings.motor_torque(drive.torque_limit))
        if not (angle < ABSURD and torque < ABSURD) and not problems.touch("hil.drives"):
            problem = f"at the limits the motor turns to {angle:.3g} rad and makes {torque:.3g} N m"
            problems.add(
                f"{problem} (check gear, offset, position_limits and torque_limit)", "hil", "drives", i, "gear"
            )
        drives.append((i, settings))
    missing = [name for name in plant.actuators if name not in names]
    if missing:
        problems.add(f"no drive for {', '.join(missing)} (every actuator needs one)", "hil", "drives")
    return drives


def _number(value: Any) -> Any:
    """The value of an option; a constant expression is evaluated."""
    if not isinstance(value, str):
        return value
    try:
        return constant(value)
    except ExpressionError:
        return value  # text, not an expression


def _sensors(values: Hil, plant: Plant, problems: Problems) -> list[tuple[int, SensorSettings]]:
    names = [sensor.coordinate for sensor in values.sensors]
    _check_names("sensors", "coordinate", names, plant.coordinates, ("an encoder", "remove one"), problems)
    return [
        (i, SensorSettings(s.coordinate, s.bus, s.protocol, s.node, s.gear, s.sign, s.offset, s.options))
        for i, s in enumerate(values.sensors)
    ]


def _check_names(
    section: str, key: str, names: list[str], known: Collection[str], taken: tuple[str, str], problems: Problems
) -> None:
    """Each name must exist, and occur once; `taken` says what it has already, and what to do."""
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if name not in known:
            problems.add(f"there is no {key} '{name}' ({remedy(name, known)})", "hil", section, i, key)
        elif first.setdefault(name, i) != i:
            what, advice = taken
            problems.add(f"'{name}' already has {what}, entry {first[name] + 1} ({advice})", "hil", section, i, key)


def _check_law_limits(loaded: LoadedConfig, plant: Plant, drives: list[DriveSettings], problems: Problems) -> None:
    """The law's limits must not exceed those of the drives."""
    law = loaded.config.law
    limits = law_limits(law, plant, problems) if isinstance(law, LawConfig) else {}
    for drive in drives:
        limit = limits.get(drive.name)
        if limit is None:
            continue
        largest = max(map(abs, limit))
        if largest > drive.torque_limit:
            above = f"above torque_limit {drive.torque_limit:g} of its drive"
            if isinstance(law, LawConfig) and law.limits == "robot":
                what = f"robot: the effort of {drive.name}, {largest:g}, is {above} (write law.limits by actuator)"
                problems.add(what, "law", "limits")
            else:
                problems.add(f"{largest:g} is {above} (lower it)", "law", "limits", drive.name)


def _check_free_bases(plant: Plant, values: Hil, problems: Problems) -> None:
    """Sensors must measure every coordinate of a free base, because no drive does."""
    measured = {sensor.coordinate for sensor in values.sensors}
    bases = [plant.tree.joints[i].name for i in plant.tree.free_bases] if isinstance(plant, Robot) else []
    for base in bases:
        missing = [name for name in (f"{base}_{part}" for part in FREE_BASE) if name not in measured]
        if missing:
            what = f"no sensor measures {', '.join(missing)} of the free base"
            problems.add(f"{what} (give hil.sensors for all, or base: fixed)", "hil", "sensors")


def _check_times(values: Hil, problems: Problems) -> None:
    period, safety = values.period, values.safety
    if safety.drive_watchdog < 3 * period:
        problem = f"{safety.drive_watchdog:g} s is less than 3 periods of {period:g} s (set at least {3 * period:g})"
        problems.add(problem, "hil", "safety", "drive_watchdog")
    if safety.lost < safety.stale:
        problems.add(f"{safety.lost:g} s is less than stale {safety.stale:g} s", "hil", "safety", "lost")


def _check_faults(
    values: Hil, nodes: list[tuple[tuple[str, str, int], SensorSettings]], buses: Mapping[str, Any], problems: Problems
) -> None:
    if values.faults:
        from hil.emulator.faults import read_faults
        from hil.emulator.targets import targets

        for problem in read_faults(values.faults, targets(node for _, node in nodes), buses)[1]:
            problems.add(problem.what, "hil", "faults", *(int(p) if str(p).isdigit() else p for p in problem.path))


def _load(name: str, bitrate: int, values: Hil, nodes: list[SensorSettings]) -> BusLoad:
    """Load of a bus by its nodes, and by SYNC if a node needs it."""
    here = [(node_class(node), node) for node in nodes if node.bus == name]
    synced = any(kind.feedback is Feedback.SYNC for kind, _ in here)

    def traffic(period: float) -> list[FrameTraffic]:
        frames = [each for kind, node in here for each in kind.traffic(node, period)]
        return [*frames, FrameTraffic(0, 1 / period)] if synced else frames

    return describe_load(traffic, values.period, bitrate, values.max_bus_load)
