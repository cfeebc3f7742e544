"""A config -> everything that a run on drives needs, computed before anything is sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from hil.assembly.addresses import EMULATED
from hil.assembly.live_gains import LiveGains
from hil.assembly.measuring import make_sensing
from hil.assembly.pose import check_fall, check_limits
from hil.assembly.resolution import resolved_steps
from hil.assembly.settings import HilSettings, hil_settings, look_at_rig
from hil.bus.open import is_loopback
from hil.drives import Drive, Feedback, Node
from hil.drives.protocols import build
from hil.safety import Bounds
from hil.safety.plan import RunPlan, Stage
from hil.sensing import GravityCompensation, Prediction, Sensing, falls_without_torque, task_errors
from servoctl.assembly.gains import Spacing, task_gains
from servoctl.assembly.make import make_run
from servoctl.assembly.problems import Problems
from servoctl.assembly.run import Run
from servoctl.config import load_config
from servoctl.config.hil import Hil
from servoctl.config.load import LoadedConfig
from servoctl.config.overrides import Override
from servoctl.config.schema import LawConfig
from servoctl.errors import ConfigError
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import assemble
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import take_engine_at_once
from servoctl.simulation.system import System
from servoctl.types import Array, State

STOP_DECAYS = 5.0
"""Time constants that a controlled stop takes."""

BEGINNING = 1e-9
"""When the path moves already: what it is engaged by, for before it stands [s]."""

STABLE = 0.25
"""Of the damping at which a controlled stop would become unstable at the period."""


LONGEST_WATCHDOG = 0.1
"""Of a drive, beyond which that is said [s]."""


@dataclass(frozen=True)
class RigSetup:
    """A run on drives, ready to begin.

    Attributes:
        run: Law, plant and task, as for a simulation.
        settings: What the config says of the rig.
        start: The start pose, at rest.
        drives: In the order of the plant's actuators.
        sensors: Encoder nodes.
        sensing: Samples -> q and v.
        holding: What holds a pose.
        falls: Whether the machine moves from rest without torque.
        bounds: When an event is one.
        live: Gains that an operator may change.
        notes: What a person should know before it begins.
        reseeded: Seed in place of the config's; None: that.
    """

    run: Run
    settings: HilSettings
    start: State
    drives: tuple[Drive, ...]
    sensors: tuple[Node, ...]
    sensing: Sensing
    prediction: Prediction
    holding: GravityCompensation
    falls: bool
    bounds: Bounds
    live: LiveGains
    notes: tuple[str, ...]
    reseeded: int | None = None

    @property
    def loop(self) -> Loop:
        """The law's closed loop."""
        return self.run.loop

    @property
    def tasks(self) -> dict[str, list[str]]:
        """Task -> names of its rows."""
        found: dict[str, list[str]] = {}
        for row in self.loop.system.model.task_rows:
            found.setdefault(row.group, []).append(row.name)
        return found

    @property
    def seed(self) -> int:
        """Of everything random."""
        if self.reseeded is not None:
            return self.reseeded
        return 0 if self.run.loaded is None else self.run.loaded.config.run.seed

    def renewed(self, faults: Sequence[Mapping[str, Any]], seed: int | None = None) -> "RigSetup":
        """The same rig for another run, with nothing known yet of its drives; what is compiled is shared.

        Only one of the two may run at a time.

        Args:
            faults: Of its emulated drives, in place of the config's.
            seed: Of everything random; None: as before.
        """
        settings, period = self.settings, self.settings.values.period
        values = settings.values.model_copy(update={"faults": tuple(faults)})
        self.sensing.begin(self.start, 0)
        return replace(
            self,
            settings=replace(settings, values=values),
            drives=tuple(cast(Drive, build(each, period)) for each in settings.drives),
            sensors=tuple(build(each, period) for each in settings.sensors),
            reseeded=self.reseeded if seed is None else seed,
        )

    def plan(self, stage: Stage, duration: float | None) -> RunPlan:
        """What the stages need.

        Args:
            stage: The last one.
            duration: Time in it [s]; None: that of the config.
        """
        safety, model, rest = self.settings.values.safety, self.loop.system.model, np.zeros(len(self.drives))
        law = self.loop.system.law

        def hold(q: Array) -> Array:
            return self.holding(0.0, q).u if self.falls else rest

        def errors(t: float, q: Array, v: Array) -> dict[str, tuple[float, float]]:
            return task_errors(model, State(max(t, BEGINNING), q, v), () if law is None else law.wishes)

        return RunPlan(
            stage,
            self.run.settings.duration if duration is None else duration,
            safety.zero_time,
            safety.ramp_time,
            safety.stop_time,
            safety.engage_tolerance,
            stop_damping(self.settings, model, self.start),
            hold,
            errors,
            frozenset() if law is None else law.stops_on,
            resolved_steps(model, self.sensing, (*self.drives, *self.sensors), self.settings.values, self.start),
        )


def load(config: str | Path, overrides: Sequence[Override] = (), engine: str = "auto") -> RigSetup:
    """Reads a config and makes it ready for drives.

    Args:
        config: A path, or the bare name of a shipped config.
        overrides: `PATH=VALUE`, as after `--set`.
        engine: `auto`, `c`, `vm` or `numpy`.

    Raises:
        ConfigError: The config is wrong, or the rig does not fit the plant; every problem at once.
    """
    return prepare(load_config(config, overrides, partly=True), engine)


def prepare(loaded: LoadedConfig, engine: str = "auto") -> RigSetup:
    """Makes a loaded config ready for drives; see `load`."""
    if not (loaded.wrong or loaded.refused):
        loaded = _for_drives(loaded)
    problems = Problems(loaded)
    if not isinstance(loaded.config.law, LawConfig):
        problems.add("none: a run on drives needs a law (an open loop is for simulation)", "law")
    try:
        run = make_run(loaded, "numpy" if engine == "numpy" else "auto", waiting=True, problems=problems)
    except ConfigError:
        look_at_rig(loaded, problems)
        raise
    model = run.system.model
    settings = hil_settings(loaded, model.plant)
    values = settings.values
    live = LiveGains(loaded, model, run.system.law)
    notes = [*run.warnings, *_check_gains(loaded, run.system, values)]
    on_vm = take_engine_at_once(run.loop, engine)
    notes += [f"the law runs on the virtual machine: {on_vm}"] if on_vm else []
    start = State(run.start.t, run.start.q, np.zeros(model.n))
    drives = tuple(cast(Drive, build(each, values.period)) for each in settings.drives)
    sensors = tuple(build(each, values.period) for each in settings.sensors)
    notes += [*_shared_replies(drives), *_unread(settings, drives)]
    tolerance = run.system.passive.rank_tolerance
    prediction = Prediction(model, tolerance, engine)
    try:
        sensing = make_sensing(model, drives, sensors, start, values, prediction, engine, tolerance)
    except ConfigError as error:
        raise ConfigError([_placed(loaded, problem) for problem in error.problems]) from None
    check_limits(loaded, settings, sensing.displacements(model.plant, start.q))
    falls, holding = (
        falls_without_torque(model, start.t, start.q, tolerance),
        GravityCompensation(model, tolerance, engine),
    )
    if falls.falls:
        notes.append(check_fall(loaded, settings, model, holding, start, tolerance, falls))
    unwatched = ", ".join(drive.settings.name for drive in drives if not drive.watchdog)
    if unwatched:
        notes.append(f"{unwatched}: no watchdog in the drive: when the loop dies, its last torque stays")
    safety = values.safety
    if safety.drive_watchdog > LONGEST_WATCHDOG:
        what = f"so long the last torque stays when the loop dies (at most {LONGEST_WATCHDOG:g} s is usual)"
        notes.append(f"{loaded.where('hil', 'safety', 'drive_watchdog')}: {safety.drive_watchdog:g} s: {what}")
    bounds = Bounds(
        values.period, safety.stale, safety.lost, safety.late_ticks, safety.late_share, safety.clamped == "stop"
    )
    return RigSetup(
        run, settings, start, drives, sensors, sensing, prediction, holding, falls.falls, bounds, live, tuple(notes)
    )


def _for_drives(loaded: LoadedConfig) -> LoadedConfig:
    """The config with the defaults that hold on drives; `realism` is of simulated runs, as `hil.emulation` is here."""
    law = loaded.document.values["law"]
    if isinstance(law, Mapping) and "on_infeasible" not in law:
        loaded = loaded.overridden(["law.on_infeasible=fault"])
    return loaded.overridden(["realism="]) if "realism" in loaded.document.values else loaded


def _check_gains(loaded: LoadedConfig, system: System, values: Hil) -> list[str]:
    """What the law's gains leave to be said at the loop's period.

    Raises:
        ConfigError: The violation of a row would grow.
    """
    gains, where = list(task_gains(system, Spacing.on_drives(values))), loaded.where("hil", "period")
    problems = [f"{where}: {gain.problem}" for gain in gains if gain.problem is not None]
    if problems:
        raise ConfigError(problems)
    return [f"{where}: {gain.warning}" for gain in gains if gain.warning is not None]


def _shared_replies(drives: Sequence[Drive]) -> list[str]:
    """Drives whose replies have one id."""
    found: dict[tuple[str, int], list[str]] = {}
    for drive in drives:
        for identity in drive.identities if drive.feedback is Feedback.REPLY else ():
            found.setdefault((drive.settings.bus, identity), []).append(drive.settings.name)
    return [
        f"{', '.join(names)}: reply by one id, 0x{identity:03X}: replies that begin at the same instant destroy each "
        "other (give each drive its own where it can have one)"
        for (_, identity), names in found.items()
        if len(names) > 1
    ]


def _unread(settings: HilSettings, drives: Sequence[Drive]) -> list[str]:
    """What drives on real buses cannot be asked, one sentence for all whose protocol it is."""
    real = {name for name, keys in settings.buses.items() if keys["interface"] != EMULATED and not is_loopback(keys)}
    found: dict[str, list[str]] = {}
    for drive in drives:
        if drive.unverified and drive.settings.bus in real:
            found.setdefault(drive.unverified, []).append(drive.settings.name)
    return [f"{', '.join(names)}: {sentence}" for sentence, names in found.items()]


def _placed(loaded: LoadedConfig, problem: str) -> str:
    """A problem of a field of the config, with its line."""
    field, _, what = problem.partition(": ")
    return f"{loaded.where(*field.split('.'))}: {what}"


def stop_damping(settings: HilSettings, model: Model, start: State) -> list[float]:
    """D of the controlled stop for each drive [actuator unit per its speed].

    What is given or, where nothing is, what brings the slowest motion at the start pose to a stand within `stop_time`;
    in any case little enough to be stable under a zero-order hold: `D T |B^T Phi B| < 2`.
    """
    terms = assemble(start, model.plain.matrices(start), 1e-6)
    stiffness = np.linalg.svd(terms.project(terms.inputs), compute_uv=False) ** 2
    moved = stiffness[stiffness > 1e-9 * stiffness.max(initial=0.0)]
    if not len(moved):
        return [0.0] * len(settings.drives)
    values = settings.values
    wanted = STOP_DECAYS / (values.safety.stop_time * float(moved.min()))
    given = wanted if values.safety.stop_damping is None else values.safety.stop_damping
    return [min(given, STABLE * 2.0 / (values.period * float(moved.max())))] * len(settings.drives)
