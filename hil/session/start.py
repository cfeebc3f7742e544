"""What must be true before a run may begin: which drives count as real, and what real drives require."""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hil.assembly.emulation import Environment, environment_of, make_emulator
from hil.assembly.prepare import load, notes_on
from hil.assembly.setup import RigSetup
from hil.assembly.stops import describe_drops, refuse_fall, refuse_shaking, states_within_limits
from hil.bus import BusError, close_all
from hil.bus.open import (
    EmulatorMessage,
    answers_as_emulator,
    emulator_frame,
    emulator_lateness,
    is_loopback,
    open_buses,
)
from hil.drives.base import listed
from hil.loop import WallClock
from hil.safety.plan import WATCHING, Phase
from hil.session.by_hand import DURATION, check_recording, instructions, refuse_unreadable
from hil.session.golden import require_equal
from hil.session.notes import faults_elsewhere, in_shadow, preflight, zero_torques
from hil.session.run import HilRun
from servoctl.config.overrides import Override
from servoctl.errors import ConfigError

IDENTITY_TIME = 0.5  # [s] time limit for an emulator to answer
HAND_TIME = 30.0  # [s] time limit for an emulator to prepare a hand that moves the machine
LATENESS_TIME = 0.2  # [s] time limit for an emulator to say how late it was


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


def start(request: Request) -> HilRun:
    """Makes a run ready. Nothing is sent, except on loopback buses the question whether an emulator is there.

    Raises ConfigError if the config or the duration is wrong, or real drives would have to be armed. BusError if a bus
    cannot be opened.
    """
    if request.duration is not None and not 0.0 < request.duration < math.inf:
        raise ConfigError(f"--duration: expected a positive time [s], got {request.duration:g}")
    if request.record is not None:
        if request.stage != "float":
            raise ConfigError("--record: only stage float is guided by hand (add --stage float)")
        check_recording(request.record)
    if request.calibrate and request.stage is not None:
        raise ConfigError(f"--calibrate: is a stage of its own (leave --stage {request.stage} out)")
    in_task = request.stage in (None, "full") and not request.calibrate
    setup = load(request.config, request.overrides, request.engine, request.duration if in_task else None)
    if request.calibrate:
        refuse_unreadable(setup)
        request = replace(request, stage="calibrate", duration=request.duration or DURATION)
    notes = notes_on(setup)
    for name, load_of_bus in setup.settings.loads.items():
        most, frames = 100 * load_of_bus.load, load_of_bus.frames
        notes.append(f"bus {name}: load of the loop at most {most:.0f} %, {frames:.0f} frames/s")
    if setup.settings.lockstep and (request.require_rt or request.cpu is not None):
        notes.append("time is virtual: --require-rt and --cpu have no effect")
    real = setup.settings.real_buses
    if request.armed and real and not request.calibrate:
        notes.append(require_equal(request.engine))
    stage = _stage(request, setup, False, notes) if real else None  # refused before a bus is opened
    if setup.settings.lockstep:
        environment = environment_of(setup, make_emulator(setup, request.engine))
    else:
        environment = _on_buses(setup, request)
    try:
        if stage is None:
            stage = _stage(request, setup, environment.emulated, notes)
        return HilRun(setup, environment, stage, request.duration, notes, request.cpu, request.require_rt)
    except BaseException:
        close_all(environment.buses.values())
        raise


def _stage(request: Request, setup: RigSetup, emulated: bool, notes: list[str]) -> Phase:
    """The last stage of the run on emulated or real drives; adds notes on it.

    Raises ConfigError if real drives need `--armed` or `drive_watchdog`, or faults are scripted for real drives.
    """
    default = Phase.FULL if emulated else Phase.SHADOW
    stage = default if request.stage is None else Phase(request.stage)
    if stage not in WATCHING:
        notes += [zero_torques(setup), *describe_drops(setup)]
    if request.armed and stage not in WATCHING:
        notes += preflight(setup, stage, request.overrides)
    if stage is Phase.FLOAT:
        refuse_shaking(setup)
        refuse_fall(setup, states_within_limits(setup), "a hand may lead it in stage float")
    if stage is Phase.CALIBRATE:
        notes += instructions(setup, request.duration or DURATION, emulated)
    if emulated:
        if not setup.settings.lockstep:
            notes += faults_elsewhere(setup)
        return stage
    buses = ", ".join(setup.settings.buses)
    if setup.settings.values.faults:
        raise ConfigError(f"hil.faults: scripted faults are for emulated drives, and {buses} is real (remove them)")
    if stage is Phase.SHADOW:
        notes += in_shadow(setup)
        return stage
    if stage is Phase.CALIBRATE:
        if not request.armed:
            raise ConfigError(
                f"--calibrate: {buses} counts as real: frames that start nodes and ask for samples would be sent, none "
                "that enables a drive (add --armed to allow them)"
            )
        return stage
    if not request.armed:
        raise ConfigError(
            f"--stage {stage.value}: {buses} counts as real: drives would make torque "
            "(add --armed when nobody is in reach and the emergency stop is at hand)"
        )
    undeclared = listed(drive for drive in setup.drives if drive.watchdog is None)
    if undeclared:
        raise ConfigError(
            f"hil.drives: {undeclared}: drive_watchdog is missing: without a watchdog the drive keeps its "
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
    buses = open_buses(setup.settings.buses, clock)
    try:
        emulated = all(
            is_loopback(keys) and answers_as_emulator(buses[name], clock, IDENTITY_TIME)
            for name, keys in setup.settings.buses.items()
        )
        first = next(iter(buses.values()))
        if emulated and request.calibrate:
            first.send(emulator_frame(EmulatorMessage.HAND, request.duration or DURATION))
            answers_as_emulator(first, clock, HAND_TIME)  # it answers when the hand is ready
    except BusError:
        close_all(buses.values())
        raise
    if not emulated:
        return Environment(buses, clock, emulated, lockstep=False)
    begun = partial(first.send, emulator_frame(EmulatorMessage.BEGUN))
    return Environment(
        buses, clock, emulated, lockstep=False, engaged=begun,
        emulator_lateness=partial(emulator_lateness, first, clock, LATENESS_TIME),
        guided=lambda duration: begun(),
    )  # fmt: skip
