"""Machines on emulated drives, as real ones are: they fall, brake and differ. `play` runs one in lock-step."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import pi
from pathlib import Path
from typing import Any

import numpy as np

from hil.assembly import emulation
from hil.assembly.emulation import emulated_rig, environment_of
from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.emulator.emulator import Emulator
from hil.emulator.plant import SimulatedPlant
from hil.loop import nanoseconds
from hil.rig.logbook import STAGES
from hil.safety import Event
from hil.safety.plan import Phase
from hil.session.run import HilRun
from servoctl.types import Array

FOLDER = Path(__file__).parent / "rigs"
SCREW = 2 * pi / 0.01
"""Gear of a ball screw with a lead of 10 mm [rad/m]."""
RACK = 50.0
"""Gear of a pinion of 20 mm radius on a rack [rad/m]."""

_UNITS = {"counts_per_turn": 65536, "velocity_unit": "0.1*rpm"}
OPTIONS: dict[str, dict[str, Any]] = {
    "cia402": _UNITS,
    "odrive": {"encoder_bits": 14},
    "mit": {"motor": "cybergear", "status": "damiao", "drive_watchdog": True, "speed_limit": 0.49},
    "moteus": {},
    "robstride": {"motor": "rs-02"},
}
FD_BUS = 'hil.buses.main={"interface": "emulated", "fd": true, "data_bitrate": 5000000}'


@dataclass(frozen=True)
class Rig:
    """A machine with its drives: a config and what overrides it, as after `--set` and `--set-file`."""

    config: str | Path
    overrides: tuple[str | Path, ...] = ()


def lift(gear: float = SCREW, protocol: str = "cia402", **more: Any) -> Rig:
    """V: 40 kg on a vertical axis with a brake; `more`: further keys of its drive. On a screw `mit` is too slow."""
    drive = {
        "actuator": "F", "bus": "main", "protocol": protocol, "node": 1, "gear": gear, "rated_torque": 560 / gear,
        "torque_limit": 560, "torque_rate_limit": 40000, "speed_limit": 0.4, "position_limits": [-0.1, 0.6],
        "brake": True, **OPTIONS[protocol], **more,
    }  # fmt: skip
    return Rig(FOLDER / "lift.yaml", (f"hil.drives={json.dumps([drive])}", *([FD_BUS] if protocol == "moteus" else [])))


def gantry(*protocols: str, brakes: Sequence[bool] = (True, True)) -> Rig:
    """A mass of 4 kg, of 30 N, that two motors carry together; each protocol has a bus."""
    base = {
        "gear": RACK, "rated_torque": 1, "torque_limit": 50, "torque_rate_limit": 20000, "speed_limit": 1,
        "position_limits": [-0.5, 0.6],
    }  # fmt: skip
    drives = [
        {
            "actuator": name,
            "bus": protocol,
            "protocol": protocol,
            "node": node,
            "brake": brake,
            **base,
            **OPTIONS[protocol],
        }
        for node, (name, protocol, brake) in enumerate(zip("AB", protocols, brakes, strict=True), 1)
    ]
    fd = {"fd": True, "data_bitrate": 5000000}
    buses = {each: {"interface": "emulated", **(fd if each == "moteus" else {})} for each in protocols}
    return Rig(
        FOLDER / "lift.yaml",
        ('plant={"class": "axes.py:Gantry"}', f"hil.buses={json.dumps(buses)}", f"hil.drives={json.dumps(drives)}"),
    )


def _scara_cia402() -> str:
    limits = {"tau1": (20, 3, 2.094), "tau2": (15, 4, 2.618), "tau3": (2, 4, 2.967), "F4": (60, 0.5, 0.15)}
    drives = [
        {"actuator": name, "bus": "main", "protocol": "cia402", "node": node, "gear": SCREW if name == "F4" else 100,
         "rated_torque": torque / 100, "torque_limit": torque, "torque_rate_limit": 100 * torque, "speed_limit": speed,
         "position_limits": [-end, end], "brake": name == "F4", **_UNITS}
        for node, (name, (torque, speed, end)) in enumerate(limits.items(), 1)
    ]  # fmt: skip
    return f"hil.drives={json.dumps(drives)}"


RIGS = {
    "A": Rig("arm_on_drives"),
    "AF": Rig("arm_on_drives", (FOLDER / "arm_fast.yaml",)),
    "S": Rig("scara_drive", (FOLDER / "scara_fast.yaml",)),
    "S cia402": Rig("scara_drive", (FOLDER / "scara_fast.yaml", _scara_cia402(), "hil.period=0.0025")),
    "V screw": lift(SCREW),
    "V rack": lift(RACK),
    "V rack odrive": lift(RACK, "odrive"),
    "V rack mit": lift(RACK, "mit"),
    "V rack moteus": lift(RACK, "moteus"),
    "V rack robstride": lift(RACK, "robstride"),
    "L": Rig(FOLDER / "link.yaml"),
    "two arms": Rig("two_arms_damiao", ("hil.safety.zero_time=0.1", "hil.safety.ramp_time=0.1")),
    "mixed": Rig(FOLDER / "mixed.yaml"),
}
"""Name -> machine, as in the table of machines: A an arm, AF the same moving fast, S a SCARA whose hinges have no
brakes, V a vertical axis with a brake, L a link that hangs at the start and is led up to where it falls."""


@dataclass(frozen=True)
class Played:
    """A run in memory.

    Attributes:
        columns: Name -> column, shape (rows,).
        events: In order.
        exit_code: As of `servoctl hil`.
        unconfirmed: Drives that did not confirm that they are off.
        emulator: Drives and machine, at the end.
        run: The run.
    """

    columns: Mapping[str, Array]
    events: tuple[Event, ...]
    exit_code: int
    unconfirmed: tuple[str, ...]
    emulator: Emulator
    run: HilRun

    def __getitem__(self, name: str) -> Array:
        """A column."""
        return self.columns[name]

    def group(self, name: str) -> Array:
        """All columns `name.*`, shape (rows, columns)."""
        return np.stack([column for each, column in self.columns.items() if each.startswith(f"{name}.")], axis=1)

    def rows_in(self, stage: str) -> Array:
        """Which rows are in a stage, by its name in the events: `full`, `stopping`, `disabling`, `over`..."""
        rows: Array = self.columns["stage"] == STAGES.index(stage)
        return rows

    @property
    def kinds(self) -> list[str]:
        """Kinds of the events, without changes of stage and without what stage zero has proved."""
        return [event.kind.name.lower() for event in self.events if event.kind.name not in ("STAGE", "PROVED")]


def renewed(setup: RigSetup, faults: Sequence[Mapping[str, Any]], seed: int | None = None) -> RigSetup:
    """The same rig with fresh drives, for another run; compiled functions are shared, so one may run at a time.

    Args:
        setup: The rig.
        faults: Scripted faults; they replace the config's.
        seed: Seed of all random numbers; None: as before.
    """
    values = setup.settings.values.model_copy(update={"faults": tuple(faults)})
    drives, sensors = setup.settings.build()
    setup.sensing.begin(setup.start, 0)
    run, loaded = setup.run, setup.run.loaded
    if seed is not None:
        assert loaded is not None
        seeded = loaded.config.model_copy(update={"run": replace(loaded.config.run, seed=seed)})
        run = replace(run, loaded=replace(loaded, config=seeded))
    return replace(setup, run=run, settings=replace(setup.settings, values=values), drives=drives, sensors=sensors)


@cache
def _setup(rig: Rig, sets: tuple[str | Path, ...]) -> RigSetup:
    return load(rig.config, [*rig.overrides, *sets], "vm")


@cache
def _plant(rig: Rig, sets: tuple[str | Path, ...]) -> SimulatedPlant:
    return emulated_rig(_setup(rig, sets), "vm").plant()


def play(
    rig: str | Rig,
    *sets: str | Path,
    faults: Sequence[Mapping[str, Any]] = (),
    stop_at: float | None = None,
    since: str = "engaged",
    stage: Phase = Phase.FULL,
    duration: float | None = None,
    out: Path | None = None,
    begin: Callable[[Emulator], None] = lambda emulator: None,
) -> Played:
    """Runs a machine to the end.

    Args:
        rig: A name in `RIGS`, or a machine.
        sets: Overrides `PATH=VALUE`, or files.
        faults: Entries of `hil.faults`.
        stop_at: When the operator asks for the stop, as by Ctrl-C [s]; None: never.
        since: Event from which `stop_at` counts: `engaged` or `power_on`.
        stage: Last stage.
        duration: Time in the last stage [s]; None: that of the config.
        out: Run folder; None: in memory.
        begin: Called with the emulated drives at power-on.
    """
    rig = RIGS[rig] if isinstance(rig, str) else rig
    prepared = _setup(rig, sets)
    setup = renewed(prepared, faults or prepared.settings.values.faults)
    assert len(setup.settings.faults) == len(setup.settings.values.faults), "a fault is not well-formed"
    emulator = emulation.make_emulator(setup, "vm", _plant(rig, sets))
    begin(emulator)
    environment = environment_of(setup, emulator)

    def ask() -> None:
        if stop_at is not None:
            emulator.world.after(nanoseconds(stop_at), lambda: run.operator.request_stop("asked to stop"))

    def engaged() -> None:
        emulator.engaged()
        if since == "engaged":
            ask()

    run = HilRun(setup, replace(environment, engaged=engaged), stage, duration)
    if since != "engaged":
        ask()
    result = run.run(out, lambda event: None)
    return Played(result.trajectory.columns, result.events, result.exit_code, result.unconfirmed, emulator, run)
