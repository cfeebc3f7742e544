"""What must be true before a run may begin: which drives count as real, and what real drives require."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hil.assembly.emulation import Environment, in_lockstep
from hil.assembly.falling import refuse_fall, states_within_limits
from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.bus import Bus, BusError, close_all
from hil.bus.identity import START, answers_as_emulator, emulator_lateness, hand
from hil.bus.load import BusRates
from hil.bus.open import is_loopback, open_bus
from hil.loop import WallClock
from hil.loop.realtime import StopSignals, bare_lateness, prepare
from hil.recorder import Recorder
from hil.recorder.columns import STAGES
from hil.safety import Event
from hil.safety.plan import UNPOWERED, Stage
from hil.session.accuracy import explained_errors
from hil.session.calibration import DURATION, check_recording, instructions, refuse_unreadable
from hil.session.notes import faults_elsewhere, in_shadow, preflight, zero_torques
from hil.session.run import HilRun, RunResult
from hil.view.view import LivePage
from servoctl.config.overrides import Override
from servoctl.errors import ConfigError, RigError
from servoctl.report.bound_shapes import placed_shapes
from servoctl.report.surfaces import task_frames
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Status
from servoctl.version import VERSION

IDENTITY_TIME = 0.5  # [s] time limit for an emulator to answer
HAND_TIME = 30.0  # [s] time limit for an emulator to prepare a hand that moves the machine
LATENESS_TIME = 0.2  # [s] time limit for an emulator to say how late it was

BARE_TIME = 1.0
"""Before a run in real time, the lateness of an empty loop on this machine is measured for this time [s]."""


@dataclass(frozen=True)
class Request:
    """Options of `servoctl hil`."""

    config: str | Path  # a path, or the bare name of a shipped config
    overrides: tuple[Override, ...] = ()  # `PATH=VALUE`
    stage: str | None = None  # last stage; None: full on emulated drives, shadow on real ones
    duration: float | None = None  # time in the last stage [s]; None: that of the config
    armed: bool = False  # whether real drives may make torque
    require_rt: bool = False  # whether to refuse a run without real-time rights
    engine: str = "auto"  # `auto`, `c`, `vm` or `numpy`
    cpu: int | None = None  # CPU on which the loop runs in real time; None: any
    record: Path | None = None  # file for the guided motion of stage float; None: none
    calibrate: bool = False  # whether a hand moves the machine and no drive is enabled; `stage` is None then


class ReadyRun:
    """A run that may begin."""

    def __init__(
        self, request: Request, setup: RigSetup, environment: Environment, stage: Stage, notes: list[str]
    ) -> None:
        self.name = setup.run.name  # name of the config
        self.setup = setup  # the config, ready for drives
        self.stage = stage  # last stage
        self.notes = notes  # what the operator should know before it begins
        self._request, self._environment = request, environment

    @property
    def lockstep(self) -> bool:
        """Whether time is virtual."""
        return self._environment.lockstep

    def run(
        self,
        out: Path | None,
        say: Callable[[Event], None],
        progress: Callable[[float], None] | None = None,
        show: Callable[[str], None] | None = None,
    ) -> RunResult:
        """Runs to the end.

        Args:
            out: Run folder; None: in memory, in virtual time only.
            say: Called with every recorded event as it happens; in real time it must not block.
            progress: Called now and then with the share that is done, 0 to 1; it must not block either.
            show: Called with the address of the live page; None: no page. With a page a run in virtual time keeps
                pace with the wall clock.

        Raises:
            RigError: The page cannot be served; nothing was sent.
            RealtimeError: Real-time rights were required and not granted; nothing was sent.
            RunFolderError: The folder cannot be made; nothing was sent.
        """
        request, lockstep = self._request, self._environment.lockstep
        facts: dict[str, Any] = {
            "config": self.name, "servoctl": VERSION, "engine": self.setup.loop.engine,
            "torque_limits": {drive.name: drive.torque_limit for drive in self.setup.settings.drives},
            "tasks": self.setup.tasks, "stages": STAGES, "warnings": self.notes,
            "emulated": self._environment.emulated, "lockstep": lockstep,
        }  # fmt: skip
        if self.setup.loop.system.law is not None:
            facts["funnels"] = self.setup.loop.system.law.funnels
        with ExitStack() as stack:
            stack.callback(self.close)
            signals = stack.enter_context(StopSignals(suspend=not lockstep))
            run = HilRun(self.setup, self._environment, self.stage, request.duration, out, facts, signals)
            stack.push(lambda kind, error, trace: run.abandon(error))
            if show is not None:
                # started before real-time rights are taken: the page's process must not inherit them
                view = stack.enter_context(self._view(run))
                run.operator.view = view
                show(view.address)
            if not lockstep:
                granted = stack.enter_context(prepare(cpu=request.cpu))
                if request.require_rt:
                    granted.insist()
                run.not_granted(granted.missing)
                run.facts["realtime"] = [grant.sentence for grant in granted.grants]
                period = self.setup.settings.values.period
                run.facts["timing"] = {"bare": bare_lateness(period, BARE_TIME).as_dict()}
            return run.run(say, progress)

    def _view(self, run: HilRun) -> LivePage:
        """Starts the live page of a run.

        Raises:
            RigError: It cannot be served.
        """
        settings, facts = self.setup.settings, run.facts
        about: dict[str, Any] = {
            name: facts[name] for name in ("config", "torque_limits", "tasks", "stages", "lockstep", "emulated")
        }
        names, units = self.setup.loop.system.model.plant.actuators, self.setup.sensing.displacements.units
        guiding = self.setup.plan(self.stage, None).guiding
        if guiding is not None:
            about["torque_limits"] = dict(zip(names, guiding.limits, strict=True))
        about |= {
            "position_limits": {drive.name: drive.position_limits for drive in settings.drives},
            "position_units": dict(zip(names, units, strict=False)),
            "units": dict(run.table.units), "period": settings.values.period,
            "ramp": settings.values.live_ramp, "stage": self.stage.name.lower(), "stale": settings.values.safety.stale,
            "max_bus_load": settings.values.max_bus_load, "engage_tolerance": settings.values.safety.engage_tolerance,
            "statuses": {status.code: status.value for status in Status},
        }  # fmt: skip
        rates = {name: BusRates.of(bus) for name, bus in settings.buses.items()}
        gains = {gain.path: (gain.lower, gain.upper) for gain in self.setup.live_gains.gains}
        if not isinstance(run.recorder, Recorder):
            raise RigError("--view: a run in memory cannot be shown (give it a folder)")
        model = self.setup.loop.system.model
        about["frames"], about["shapes"] = task_frames(model.task), placed_shapes(model.bounds)
        return LivePage(run.recorder, list(run.table.units), rates, gains, about, model.plant)

    def close(self) -> None:
        """Closes the buses of a run that does not begin."""
        close_all(self._environment.buses.values())

    def accuracy(self, trajectory: Trajectory) -> dict[str, float]:
        """Task row -> largest error that quantisation, sampling and delay can cause, by the model."""
        return explained_errors(self.setup, trajectory)

    def loads(self, trajectory: Trajectory) -> dict[str, tuple[float, float, float]]:
        """Bus -> its mean load in the loop, that of the loop's busiest window, and of the busiest one before the loop.

        With the most stuff bits there can be. A run that ended before its first tick has none.
        """
        times = trajectory.t[trajectory["stage"] != STAGES.index("over")]
        if not len(times):
            return {}
        counts, buses, loads = trajectory.metadata.get("bus_bits", {}), self.setup.settings.buses, {}
        nominal = counts.get("bits", [])
        data = counts.get("data_bits") or [[0] * len(bits) for bits in nominal]
        for (name, keys), bits, fast in zip(buses.items(), nominal, data, strict=False):
            rates = BusRates.of(keys)
            used = np.asarray(bits, dtype=float) / rates.nominal + np.asarray(fast, dtype=float) / rates.data
            load = used / counts["window"]
            begin, end = np.ceil(times[0] / counts["window"]), np.floor(times[-1] / counts["window"])
            before, loop = load[: int(begin)], load[int(begin) : int(end)]
            if len(loop):
                loads[name] = float(loop.mean()), float(loop.max()), float(before.max(initial=0.0))
        return loads


def start(request: Request) -> ReadyRun:
    """Makes a run ready. Nothing is sent, except on loopback buses the question whether an emulator is there.

    Raises:
        ConfigError: The config or the duration is wrong, or real drives would have to be armed.
        BusError: A bus cannot be opened.
    """
    if request.duration is not None and not 0.0 < request.duration < math.inf:
        raise ConfigError(f"--duration: expected a positive time [s], got {request.duration:g}")
    if request.record is not None:
        if request.stage != "float":
            raise ConfigError("--record: only stage float is guided by hand (add --stage float)")
        check_recording(request.record)
    if request.calibrate and request.stage is not None:
        raise ConfigError(f"--calibrate: is a stage of its own (leave --stage {request.stage} out)")
    setup = load(request.config, request.overrides, request.engine)
    if request.calibrate:
        refuse_unreadable(setup)
        request = replace(request, stage="calibrate", duration=request.duration or DURATION)
    notes = list(setup.notes)
    for name, load_of_bus in setup.settings.loads.items():
        most, frames = 100 * load_of_bus.load, load_of_bus.frames
        notes.append(f"bus {name}: load of the loop at most {most:.0f} %, {frames:.0f} frames/s")
    if setup.settings.lockstep and (request.require_rt or request.cpu is not None):
        notes.append("time is virtual: --require-rt and --cpu have no effect")
    environment = in_lockstep(setup, request.engine) if setup.settings.lockstep else _on_buses(setup, request)
    try:
        stage = _stage(request, setup, environment, notes)
    except ConfigError:
        close_all(environment.buses.values())
        raise
    return ReadyRun(request, setup, environment, stage, notes)


def _stage(request: Request, setup: RigSetup, environment: Environment, notes: list[str]) -> Stage:
    """The last stage of the run; adds notes on it.

    Raises:
        ConfigError: Real drives need `--armed` or `drive_watchdog`, or faults are scripted for real drives.
    """
    default = Stage.FULL if environment.emulated else Stage.SHADOW
    stage = default if request.stage is None else Stage[request.stage.upper()]
    if stage not in UNPOWERED:
        notes.append(zero_torques(setup))
    if request.armed and stage not in UNPOWERED:
        notes += preflight(setup, stage, request.overrides)
    if stage is Stage.FLOAT:
        refuse_fall(setup, states_within_limits(setup), "a hand may lead it in stage float")
    if stage is Stage.CALIBRATE:
        notes += instructions(setup, request.duration or DURATION, environment.emulated)
    if environment.emulated:
        if not environment.lockstep:
            notes += faults_elsewhere(setup)
        return stage
    buses = ", ".join(environment.buses)
    if setup.settings.values.faults:
        raise ConfigError(f"hil.faults: scripted faults are for emulated drives, and {buses} is real (remove them)")
    if stage is Stage.SHADOW:
        notes += in_shadow(setup)
        return stage
    if stage is Stage.CALIBRATE:
        if not request.armed:
            raise ConfigError(
                f"--calibrate: {buses} counts as real: frames that start nodes and ask for samples would be sent, none "
                "that enables a drive (add --armed to allow them)"
            )
        return stage
    if not request.armed:
        raise ConfigError(
            f"--stage {stage.name.lower()}: {buses} counts as real: drives would make torque "
            "(add --armed when nobody is in reach and the emergency stop is at hand)"
        )
    undeclared = [drive.settings.name for drive in setup.drives if not drive.watchdog_known]
    if undeclared:
        raise ConfigError(
            f"hil.drives: {', '.join(undeclared)}: drive_watchdog is missing: without a watchdog the drive keeps its "
            "last torque when the loop dies (set drive_watchdog: true if the drive's status proves one, or false if "
            "something else cuts the power then)"
        )
    notes.append(f"ARMED: drives on {buses} will make torque")
    return stage


def _on_buses(setup: RigSetup, request: Request) -> Environment:
    """Open buses of python-can; they count as real unless an emulator answers on every one of them.

    No receive filter is set: the record holds every frame on the bus, also those of a node that should not send.
    """
    clock = WallClock()
    buses: dict[str, Bus] = {}
    try:
        for name, keys in setup.settings.buses.items():
            buses[name] = open_bus(name, keys, clock)
        emulated = all(
            is_loopback(keys) and answers_as_emulator(buses[name], clock, IDENTITY_TIME)
            for name, keys in setup.settings.buses.items()
        )
        first = next(iter(buses.values()))
        if emulated and request.calibrate:
            first.send(hand(request.duration or DURATION))
            answers_as_emulator(first, clock, HAND_TIME)  # it answers when the hand is ready
    except BusError:
        close_all(buses.values())
        raise
    if not emulated:
        return Environment(buses, clock, emulated, lockstep=False)
    return Environment(
        buses, clock, emulated, lockstep=False, engaged=partial(first.send, START),
        emulator_lateness=partial(emulator_lateness, first, clock, LATENESS_TIME),
        guided=lambda duration: first.send(START),
    )  # fmt: skip
