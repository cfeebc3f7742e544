"""Turns a config into everything that a run on drives needs, before anything is sent."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from hil.assembly.live_gains import LiveGains
from hil.assembly.settings import HilSettings, check_rig, hil_settings
from hil.assembly.setup import RigSetup, sample_errors
from hil.assembly.stops import refuse_fall, refuse_start, what_holds
from hil.drives.base import Drive, Node, listed
from hil.drives.settings import RUNAWAY, DriveSettings, Quantity
from hil.drives.table import TableNode
from hil.safety import SafetyBounds
from hil.safety.plan import START_AT_REST
from hil.safety.rules import assumption_rules, rules_of
from hil.sensing.channels import Channel
from hil.sensing.motion import GravityCompensation, Hold, Prediction, accelerations
from hil.sensing.sensing import Sensing
from hil.sensing.tracking import ESTIMATED, DisturbanceObserver, TrackingMonitor
from servoctl.assembly.context import Context
from servoctl.assembly.gains import drives_gains, has_unknown_gains
from servoctl.assembly.make import make_run
from servoctl.assembly.realism import open_loops
from servoctl.assembly.run import Run
from servoctl.assembly.values import Problems
from servoctl.config import load_config
from servoctl.config.hil import Hil
from servoctl.config.load import LoadedConfig
from servoctl.config.overrides import Override
from servoctl.config.schema import LawConfig
from servoctl.errors import ConfigError, Finding, TaskError
from servoctl.estimation.estimator import NOISE, PositionNoise
from servoctl.mechanics.coordinate_bounds import CoordinateLimits
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits
from servoctl.reference.curve import abrupt
from servoctl.simulation.engine_choice import take_engine_at_once
from servoctl.types import State

LONGEST_WATCHDOG = 0.1  # [s] warn above this watchdog time of a drive
WIDEST = 4.1 * np.pi  # [rad] range of a hinge above which its limits may be in degrees: a wrist has up to two turns


def load(
    config: str | Path, overrides: Sequence[Override] = (), engine: str = "auto", duration: float | None = None
) -> RigSetup:
    """Reads a config and makes it ready for drives.

    `config`: a path, or the bare name of a shipped config; `overrides`: `PATH=VALUE`, as after `--set`; `duration`:
    time in the task if it is longer than `run.duration` [s]: all of it is looked through.

    Raises ConfigError if the config is wrong, or the rig does not fit the plant; every problem at once.
    """
    loaded = load_config(config, overrides)
    if duration is not None and duration > loaded.config.run.duration:
        loaded = loaded.overridden([f"run.duration={duration}"])
    return prepare(loaded, engine)


def prepare(loaded: LoadedConfig, engine: str = "auto") -> RigSetup:
    """Makes a loaded config ready for drives; see `load`."""
    notes, loaded = _without_effect(loaded), _for_drives(loaded)
    problems = Problems(loaded)
    if not isinstance(loaded.config.law, LawConfig):
        problems.add("none: a run on drives needs a law (an open loop is for simulation)", "law")
    try:
        run = make_run(loaded, "numpy" if engine == "numpy" else "auto", waiting=True, problems=problems)
    except ConfigError:
        check_rig(loaded, problems)
        raise
    model = run.system.model
    settings = hil_settings(loaded, model.plant)
    values = settings.values
    live_gains = LiveGains(loaded, model, run.system.law)
    warnings = [*notes, *run.warnings, *_check_gains(loaded, run)]
    on_vm = take_engine_at_once(run.loop, engine)
    warnings += [f"the law runs on the virtual machine: {on_vm}"] if on_vm else []
    start = State(run.start.t, run.start.q, np.zeros(model.n))
    tolerance = run.system.passive.rank_tolerance
    compensation = GravityCompensation(model, tolerance, engine)
    settings = _with_decelerations(settings, compensation(start.t, start.q))
    drives, sensors = settings.build()
    prediction = Prediction(model, tolerance, engine)
    try:
        sensing = _make_sensing(run, start, values, drives, sensors, prediction, engine)
    except ConfigError as error:
        raise ConfigError([_with_line(loaded, problem) for problem in error.problems]) from None
    run = _with_noise(run, values, (*drives, *sensors), sensing)
    rules = rules_of(drives, sensors, SafetyBounds(values.period, values.safety), sensing.displacements.units)
    rules += assumption_rules(drives, settings.real_buses)
    setup = RigSetup(
        run, settings, start, drives, sensors, sensing, prediction, compensation, rules, live_gains, tuple(warnings)
    )
    _check_limits(setup)
    refuse_start(setup)
    refuse_fall(setup, setup.task_states, "the task leads")
    return setup


def _make_sensing(
    run: Run,
    start: State,
    values: Hil,
    drives: Sequence[Drive],
    sensors: Sequence[Node],
    prediction: Prediction,
    engine: str,
) -> Sensing:
    """Builds what computes q and v from the samples of a run.

    Raises ConfigError if a node fits no actuator or coordinate, or a degree of freedom is not measured. PlantError if
    the displacements of the motors are not known, or not conjugate to the actuators.
    """
    model, rank_tolerance = run.system.model, run.system.passive.rank_tolerance
    # whether the law works with an estimate of the disturbance
    estimated = run.system.estimator is not None and run.system.estimator.has_model
    nodes, limits = (*drives, *sensors), np.array([drive.settings.torque_limit for drive in drives])
    # what friction, or an error of the model that the law meets by its estimate, may take from the model's torques
    missing = values.safety.tracking + (ESTIMATED if estimated else 0.0)
    motors, coordinates = accelerations(model, start, missing * limits, rank_tolerance)
    names = (*model.plant.actuators, *model.plant.coordinates)
    held = dict(zip(names, [*motors.tolist(), *coordinates.tolist()], strict=True))
    positions, speeds = sample_errors(values, nodes)
    fastest = {sensor.coordinate: sensor.speed_limit or np.inf for sensor in values.sensors}
    channels = []
    for node, position, speed in zip(nodes, positions.tolist(), speeds.tolist(), strict=True):
        settings, quantum, encoder = node.settings, node.quantum(), not isinstance(node, Drive)
        channels.append(
            Channel(
                settings.name, quantum[0], encoder,
                fastest[settings.name] if encoder else cast(DriveSettings, settings).speed_limit,
                leap=settings.start_tolerance if encoder else np.inf,
                feedback=node.feedback,
                visible=node.visible(),
                held=held[settings.name],
                torque_step=float(np.nan_to_num(quantum[2])),
                torque_every=_torque_every(node),
                position_error=max(position, node.visible()),
                speed_error=float(np.nan_to_num(speed)) * (2.0 if node.rounds_down else 1.0),
            )
        )  # fmt: skip
    observer = DisturbanceObserver(model, rank_tolerance, engine)
    tracking = TrackingMonitor(
        observer, channels[: len(drives)], limits, values.safety.tracking, values.period, estimated
    )
    sensing = Sensing(
        model,
        channels,
        start,
        values.period,
        rank_tolerance=rank_tolerance,
        filtered=values.velocity == "filter",
        filter_time=values.velocity_filter,
        carried=values.safety.lost,
        residual_tolerance=values.safety.residual_tolerance,
        motion=prediction,
        tracking=tracking,
        engine=engine,
    )
    tracking.errors = lambda t, q: (sensing.coordinates.inverse(t, q) * speeds).T
    return sensing


def _torque_every(node: Node) -> float:
    """Time from one torque in the frames of a node to the next [s]; 0: one in each tick, or none at all."""
    messages = node.messages if isinstance(node, TableNode) else ()
    brings = (each.every for each in messages if Quantity.TORQUE in {reads.quantity for reads in each.reads})
    return max(brings, default=0.0)


def _with_noise(run: Run, values: Hil, nodes: Sequence[Node], sensing: Sensing) -> Run:
    """The run with an estimator that knows the resolution of the nodes, where the config gives no noise."""
    loaded, estimator = run.loaded, run.system.estimator
    if loaded is None or estimator is None or loaded.config.estimation is None:
        return run
    names, given = list(run.system.model.plant.coordinates), loaded.config.estimation.noise
    known = given.q if isinstance(given, PositionNoise) else {} if given is None else given
    if isinstance(known, Mapping) and any(name not in known for name in names):
        spread = sample_errors(values, nodes)[0] / np.sqrt(3.0)  # of a rounding error, which is uniform
        noise = np.sqrt((sensing.coordinates.inverse(run.start.t, run.start.q) ** 2) @ spread**2)
        usable = np.where((noise > 0.0) & np.isfinite(noise), noise, NOISE)
        each = [known.get(name, value) for name, value in zip(names, usable.tolist(), strict=True)]
        loaded = loaded.overridden([f"estimation.noise.q={each}"])
        context = Context(run.system.model.plant, loaded.config, Problems(loaded), on_drives=True)
        made = context.estimating(run.system, run.start)
        assert made.estimator is not None
        run.loop.take_estimator(made.estimator)
    return replace(run, loaded=loaded)


SHARE = 0.5  # part of what gravity leaves of each torque limit that a ramp uses: the inertia differs from pose to pose
FASTEST_STOP = 0.02  # shortest time from all speed limits to standstill [s]: a ramp of fewer samples is a blow
SLOWEST_STOP = 1.0  # longest such time [s]: a drive that needs longer brakes with all its torque


@np.errstate(over="ignore")  # a torque limit may be tiny
def _with_decelerations(settings: HilSettings, start: Hold) -> HilSettings:
    """The rig with the deceleration of each drive; all drives take the same time from their speed limits to rest.

    With that time T each motor i needs the torque sum_j |W_ij| v_j / T at the start pose while all brake at once.

    `start`: what holds the start pose, and the inertia W that the motors see there.
    """
    speeds = np.array([drive.speed_limit for drive in settings.drives])
    limits = np.array([drive.torque_limit for drive in settings.drives])
    left = SHARE * (limits - np.abs(start.u))
    if not (left > 0.0).all():
        return settings
    time = float(np.max(np.abs(start.inertia) @ speeds / left))
    if not np.isfinite(time):
        return settings
    time = min(SLOWEST_STOP, max(FASTEST_STOP, time))
    drives = tuple(replace(drive, deceleration=drive.speed_limit / time) for drive in settings.drives)
    return replace(settings, drives=drives)


def _for_drives(loaded: LoadedConfig) -> LoadedConfig:
    """The config with the defaults for drives. `hil.emulation` takes the place of `realism`, but for the machine."""
    law = loaded.document.values["law"]
    if isinstance(law, Mapping) and not {"on_infeasible", "class"} & law.keys():
        loaded = loaded.overridden(["law.on_infeasible=fault"])
    if "realism" not in loaded.document.values:
        return loaded
    realism = loaded.config.realism
    machine = None if realism is None else realism.machine
    kept = [] if machine is None else [f"realism.machine.{machine.kind}={machine.file}"]
    return loaded.overridden(["realism=", *kept])


def _without_effect(loaded: LoadedConfig) -> list[str]:
    """A note on the effects of `realism` that are for simulated runs alone."""
    effects = ", ".join(key for key in loaded.document.values.get("realism") or () if key != "machine")
    remedy = "hil.emulation says what emulated drives and their machine have in truth"
    return [f"{loaded.where('realism')}: {effects}: no effect on drives ({remedy})"] if effects else []


def _check_gains(loaded: LoadedConfig, run: Run) -> list[str]:
    """Warnings about the law at the period of the loop; ConfigError if its gains are unstable at this period."""
    own, gains = has_unknown_gains(run.system), drives_gains(run.system, loaded.config.hil)
    problems = [str(gain.problem) for gain in gains if gain.problem is not None]
    warnings = [str(gain.warning) for gain in gains if gain.warning is not None]
    try:
        from servoctl.linear.reserve import held_loops  # a fifth of a second

        said = problems if own else warnings
        said += [f"law: {loop}" for loop in held_loops(run) if loop.timing.on_drives and not loop.stable]
    except TaskError as error:
        if own:
            warnings.append(f"law: whether its own gains are stable at this period is not known ({error})")
        elif run.motions is not None and run.motions.total > run.motions.held:
            warnings.append("law: not known whether the period makes what the task leaves free grow: no derivatives")
    if problems:
        raise ConfigError([loaded.finding(problem, "hil", "period") for problem in problems])
    return [str(loaded.finding(warning, "hil", "period")) for warning in warnings]


def _check_limits(setup: RigSetup) -> None:
    """Refuses limits that a drive would pass at once: its start pose, or what one step of its encoder looks like.

    Raises ConfigError for such drives.
    """
    loaded, settings, values = setup.loaded, setup.settings, setup.settings.values
    order, problems = [drive.actuator for drive in values.drives], []
    positions, steps = setup.positions(setup.start.q), setup.speed_steps.tolist()
    finer = "raise hil.velocity_filter" if setup.sensing.filtered else "take a finer encoder, or another gear"
    for drive, position, step, unit in zip(settings.drives, positions, steps, setup.units, strict=False):
        path, (lower, upper) = ("hil", "drives", order.index(drive.name)), drive.position_limits
        if not lower <= position <= upper:
            what = (
                f"{drive.name} is at {position:.4g} {unit} in the start pose, outside {lower:.4g} to {upper:.4g} "
                f"{unit} (correct the pose or the limits; 'offset' is the motor's zero)"
            )
            problems.append(loaded.finding(what, *path, "position_limits"))
        if step > RUNAWAY * drive.speed_limit:
            what = (
                f"one step of {drive.name} looks like {step:.3g} {unit}/s, and from {RUNAWAY:g} times "
                f"{drive.speed_limit:g} {unit}/s on the drives go off (raise it, or {finer})"
            )
            problems.append(loaded.finding(what, *path, "speed_limit"))
    if problems:
        raise ConfigError(problems)


def _starts_in_motion(setup: RigSetup) -> Iterator[str]:
    """Notes on holonomic rows that move at the start of the task, so that a machine at rest cannot begin it."""
    loaded, model, tolerance = setup.loaded, setup.model, setup.settings.values.safety.engage_tolerance
    names, (_, units, _) = [entry.name for entry in loaded.config.task], model.row_units
    groups = {row.name: row.group for row in model.task_rows}
    for row, (_, rate) in setup.task_errors(0.0, setup.start.q, setup.start.v).items():
        if abs(rate) >= tolerance:  # NaN: the row has none
            place = loaded.where("task", names.index(groups[row])) + (f": {row}" if row != groups[row] else "")
            speed = f"{abs(rate):.3g} {units[row]}/s" if row in units else f"{abs(rate):.3g} 1/s"
            yield f"{place}: starts with {speed}, and the machine at rest: stage full does not begin ({START_AT_REST})"


def _abrupt_references(setup: RigSetup) -> Iterator[str]:
    """Notes on references of the task whose velocity begins or ends at once, or that jump by a turn."""
    used = {name for constraint in setup.model.task.values() for name in constraint.signals}
    for reference, sentence in abrupt(setup.run.signals, used, setup.start.t):
        yield f"{setup.loaded.where('references', reference)}: {sentence}"


def _on_position_limits(setup: RigSetup) -> Iterator[str]:
    """Notes on limits that stage zero may pass from the start pose, and on those that may be in degrees."""
    order, drives = [drive.actuator for drive in setup.settings.values.drives], setup.settings.drives
    positions, travels = setup.positions(setup.start.q), setup.proof.travel
    for drive, y, travel, unit in zip(drives, positions, travels, setup.units, strict=False):
        place = setup.loaded.where("hil", "drives", order.index(drive.name), "position_limits")
        lower, upper = drive.position_limits
        if unit == "rad" and upper - lower > WIDEST:
            yield (
                f"{place}: {drive.name} may turn from {lower:g} to {upper:g} rad, {(upper - lower) / (2 * np.pi):.2g} "
                "turns (if these are degrees, write 170*deg)"
            )
        room = min(y - lower, upper - y)
        if room < travel:
            yield (
                f"{place}: {drive.name} starts {room:.2g} {unit} from a limit, and stage zero moves it by up to "
                f"{travel:g} {unit}: the run may end there (start farther inside, or widen the limit)"
            )


def _changes_with_time(setup: RigSetup) -> Iterator[str]:
    """A note on a plant whose equations depend on the time: those who evaluate them have clocks of their own."""
    start, model = setup.start, setup.model.plain
    instants = (model.matrices(State(start.t + later, start.q, start.v)) for later in (0.0, 0.7))
    (one, other) = ((m.M, m.Q, m.B, m.passive.b, m.passive.violation) for m in instants)
    if not all(map(partial(np.array_equal, equal_nan=True), one, other)):
        yield (
            f"{setup.loaded.where('plant')}: its equations depend on the time: the law takes that of the task, which "
            "stands still before stage full, an emulated machine that since its power-on (let the task depend on the "
            "time, not the plant)"
        )


def _open_loops(setup: RigSetup) -> Iterator[str]:
    """Notes on loops that the parameters of the emulated machine open at the start pose."""
    if setup.settings.values.emulation.parameters and not setup.settings.real_buses:
        where = setup.loaded.where("hil", "emulation", "parameters")
        gaps = open_loops(setup.model.plain, setup.simulated.model.plain, setup.start)
        yield from (f"{where}: {gap}" for gap in gaps)


def _coarse_torques(setup: RigSetup) -> Iterator[str]:
    """Notes on task rows that a step of a drive's torque, of which a part is not sent, may hold away from zero.

    Ours: torques are rounded towards zero, so the row's correction K may ask for a step in vain, K e = |A Phi B| du.
    """
    system, tolerance = setup.loop.system, setup.settings.values.safety.engage_tolerance
    if (law := system.following) is None:
        return
    at, steps = system.model.terms(setup.start, system.passive.rank_tolerance), [d.quantum()[2] for d in setup.drives]
    for i, row in enumerate(law.rows):
        stiffness = law.correction.feedback(i).stiffness
        held = np.abs(at.task_map[i]) * np.array(steps) / stiffness if stiffness else np.zeros(1)
        worst = int(np.argmax(held))
        if held[worst] > tolerance:
            drive, unit = setup.drives[worst].settings.name, setup.model.row_units[1].get(row.name, "")
            torque = f"{steps[worst]:.3g} {dict(setup.model.plant.actuators)[drive]}".rstrip()
            yield (
                f"task {row.name}: a step of the torque of {drive}, {torque}, holds it off by up to "
                f"{held[worst]:.3g} {unit}".rstrip()
                + f", beyond engage_tolerance {tolerance:g} (a drive with finer "
                "torques, higher gains, or the inertia of its rotor in plant.armature)"
            )


def _beyond_file(setup: RigSetup) -> Iterator[str]:
    """A note on the drives that may leave the limits of the robot's file, which stop nothing on drives."""
    loaded, plant = setup.loaded, setup.plant
    if not isinstance(plant, Robot):
        return
    law, places, wider = loaded.config.law, joint_limits(plant.tree), []
    limited = isinstance(law, LawConfig) and law.limits is not None
    for drive in setup.settings.drives:
        name, (lower, upper) = drive.name, drive.position_limits
        least, most = places[name]
        speed, effort = plant.tree.velocity(name), None if limited else plant.tree.joint(name).effort
        parts = []
        if lower < least or upper > most:
            parts.append(f"position_limits {lower:.4g} to {upper:.4g} ({least:.4g} to {most:.4g})")
        if speed is not None and drive.speed_limit > speed:
            parts.append(f"speed_limit {drive.speed_limit:g} ({speed:g})")
        if effort is not None and drive.torque_limit > (strongest := max(map(abs, effort))):
            parts.append(f"torque_limit {drive.torque_limit:g} ({strongest:g})")
        wider += [f"{name} {', '.join(parts)}"] if parts else []
    if wider:
        where, beyond = loaded.where("hil", "drives"), "; ".join(wider)
        yield f"{where}: beyond the limits of the robot's file, which stop no drive: {beyond} (narrow them)"


def _bounds_beyond_limits(setup: RigSetup) -> Iterator[str]:
    """Notes on bounds of coordinates at a limit of a drive or beyond: the run ends before the law keeps them."""
    rows, coordinates = setup.sensing.displacements.rows or (), list(setup.plant.coordinates)
    pairs = ((drive, row) for drive, row in zip(setup.settings.drives, rows, strict=False) if len(row) == 1)
    drives = {coordinates[j]: (drive, factor) for drive, ((j, factor),) in pairs}
    for name, bound in setup.model.bounds.items():
        if not isinstance(bound, CoordinateLimits):
            continue
        beyond = list[str]()
        for coordinate, limit, _ in bound.limits:
            if coordinate in drives:
                drive, factor = drives[coordinate]
                ends = (-drive.speed_limit, drive.speed_limit) if bound.rate else drive.position_limits
                beyond += [] if ends[0] < factor * limit < ends[1] else [drive.name]
        if beyond:
            what, where = "speed_limit" if bound.rate else "position_limits", setup.loaded.where("bounds")
            yield (
                f"{where}: {name}: at or beyond the {what} of {', '.join(dict.fromkeys(beyond))}, where the run ends "
                "before the law keeps the bound (narrow the bound, or widen the limits)"
            )


def _unreadable(setup: RigSetup) -> Iterator[str]:
    """Notes on settings that cannot be read from drives on real buses, one per protocol."""
    real, names = setup.settings.real_buses, dict[str, list[Drive]]()
    for drive in setup.drives:
        if drive.unverified and drive.settings.bus in real:
            names.setdefault(drive.unverified, []).append(drive)
    return (f"{listed(drives)}: {note}" for note, drives in names.items())


def _watchdogs(setup: RigSetup) -> Iterator[str]:
    """Notes on drives that go on when the loop dies, and for how long the others do."""
    unwatched = listed(drive for drive in setup.drives if not drive.watchdog)
    if unwatched:
        yield f"{unwatched}: no watchdog in the drive: it keeps its last torque when the loop dies"
    if (time := setup.settings.values.safety.drive_watchdog) > LONGEST_WATCHDOG:
        yield (
            f"{setup.loaded.where('hil', 'safety', 'drive_watchdog')}: {time:g} s: drives keep their last torque for "
            f"this time when the loop dies (usual: at most {LONGEST_WATCHDOG:g} s)"
        )


NOTES: Sequence[Callable[[RigSetup], Iterable[str]]] = (
    lambda setup: ["hil.tick has no effect: C computes every tick (remove it)"] if setup.settings.values.tick else [],
    _beyond_file,
    _bounds_beyond_limits,
    _unreadable,
    lambda setup: [f"{drive.settings.name}: {drive.assumption}" for drive in setup.drives if drive.assumption],
    what_holds,
    _watchdogs,
    _starts_in_motion,
    _abrupt_references,
    _on_position_limits,
    lambda setup: (
        [f"{setup.loaded.where('task')}: by the model {setup.task_end}: a run ends there"] if setup.task_end else []
    ),
    _changes_with_time,
    _open_loops,
    _coarse_torques,
)
"""What the operator should know of a rig before a run, in order."""


def notes_on(setup: RigSetup) -> list[str]:
    """What the operator should know before the run."""
    return [*setup.warnings, *(note for notes in NOTES for note in notes(setup))]


def _with_line(loaded: LoadedConfig, problem: str) -> Finding:
    """A problem of a config field, with file and line."""
    field, _, text = problem.partition(": ")
    return loaded.finding(text, *field.split("."))
