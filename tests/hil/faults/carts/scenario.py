"""The faults of the table: each scenario has a machine, a time and a fault with seeded random numbers."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hil.assembly.emulation import emulated_rig
from hil.assembly.prepare import load
from hil.assembly.setup import RigSetup
from hil.emulator.plant import SimulatedPlant

CONFIG = Path(__file__).with_name("carts.yaml")
PROTOCOLS = ("odrive", "cia402", "mit", "moteus", "robstride")
PERIOD = 0.0025
WATCHDOG = 0.03

FASTEST = (0.33, 0.45)
"""Time span of the task in which the carts move at 90 % of their largest speed or more [s]."""

EARLIER = 0.28
"""By this, faults of a machine that has no fastest instant come earlier, and its runs are shorter [s]."""

STILL = ("task.first.holonomic=x1 - 0.3", "task.second.holonomic=x2 - 0.8", f"run.duration={0.8 - EARLIER}")
SPEED = {"standstill": STILL, "at speed": (), "floating": STILL}
"""Motion -> overrides of the config; `floating` is stage float, the others are stage full."""

_UNITS = {"counts_per_turn": 65536, "velocity_unit": "0.1*rpm"}
_DRIVE: dict[str, dict[str, Any]] = {
    "odrive": {"heartbeat_period": 0.02},
    "cia402": _UNITS,
    "mit": {"motor": "cybergear", "status": "damiao", "drive_watchdog": True},
    "moteus": {},
    "robstride": {"motor": "rs-02"},
}
_FD_BUS = {"interface": "emulated", "fd": True, "data_bitrate": 5_000_000}
"""Bus of drives that speak FD only; every other node on it speaks FD too."""
_LIMITS = {"torque_limit": 40, "torque_rate_limit": 4000, "speed_limit": 2, "position_limits": [-1, 2.5]}
_MADE_OF = {"bus": "main", "gear": 10}

COMMANDS = {
    "odrive": (0x2E, "0000000000000000"),
    "cia402": (0x201, "0f000000"),
    "mit": (0x001, "7fff7ff0000007ff"),
    "moteus": (0x8001, "1100"),  # asks for the mode: a command would end ours, and ours would enable it again
    "robstride": (0x017F_FF01, "7fff7fff00000000"),
}
"""Protocol -> id and data of a command of zero torque to drive `a`, as another master would send it."""


SAMPLES = {
    "odrive": {"a": 0x029, "b": 0x049, "x1": 0x0E9},
    "cia402": {"a": 0x181, "b": 0x182, "x1": 0x187},
    "mit": {"a": 0x011, "b": 0x012, "x1": 0x0E9},
    "moteus": {"a": 0x100, "b": 0x200, "x1": 0x0E9},
    "robstride": {"a": 0x0280_01FD, "b": 0x0280_02FD, "x1": 0x0E9},
}
"""Protocol -> node -> id of the frames that carry its position."""


@dataclass(frozen=True)
class Scenario:
    """One run with a fault.

    Attributes:
        row: Name of the fault in the table.
        protocol: Protocol of the drives.
        motion: `standstill`, `at speed` or `floating`.
        at: Time of the fault from the start of the task [s]; None: before the run.
        faults: Entries of `hil.faults`.
        host: Fault of the loop's own process, one of `HOST_ROWS`; empty: none.
        seed: Seed of all random numbers.
        estimation: Whether the law works with an estimator.
    """

    row: str
    protocol: str
    motion: str
    at: float | None
    faults: tuple[Mapping[str, Any], ...]
    host: str
    seed: int
    estimation: bool = False

    @property
    def name(self) -> str:
        """The scenario in one line, for a reader."""
        return f"{self.row}, {self.protocol}, {self.motion}, seed {self.seed}{', estimation' * self.estimation}"


def machine(protocol: str, motion: str, engine: str = "vm", estimation: bool = False) -> RigSetup:
    """The machine with its drives; compiled once for all runs on it.

    Args:
        protocol: Protocol of the drives.
        motion: As of `Scenario`.
        engine: As of `servoctl hil`.
        estimation: Whether the law works with an estimator.
    """
    return _loaded(protocol, SPEED[motion], engine, estimation)


@cache
def _loaded(protocol: str, task: tuple[str, ...], engine: str, estimation: bool) -> RigSetup:
    drives = [
        {"actuator": name, "protocol": protocol, "node": node, "rated_torque": 1.0, **_MADE_OF, **_LIMITS,
         **_DRIVE[protocol], **({"host": 0x10 + node} if protocol == "mit" else {})}
        for node, name in enumerate("ab", 1)
    ]  # fmt: skip
    fd = protocol == "moteus"
    # only these two protocols have encoder nodes
    encoder = {"protocol": "cia402", **_UNITS} if protocol == "cia402" else {"protocol": "odrive", "fd": fd}
    sensors = [{"coordinate": "x1", "node": 7, **_MADE_OF, **encoder}]
    written = [f"hil.drives={json.dumps(drives)}", f"hil.sensors={json.dumps(sensors)}"]
    written += [f"hil.buses.main={json.dumps(_FD_BUS)}"] if fd else []
    written += ["estimation.kind=model"] if estimation else []
    return load(CONFIG, [*written, *task], engine)


@cache
def simulated_plant(protocol: str) -> SimulatedPlant:
    """The machine behind the emulated drives of a protocol, which begins again with each run on it."""
    return emulated_rig(machine(protocol, "standstill"), "vm").plant()


Entries = list[dict[str, Any]]
Make = Callable[[random.Random, str], Entries]
"""Random numbers and protocol -> entries of `hil.faults`, without their time."""


def _fault(kind: str, **parameters: Any) -> Make:
    """One fault; a pair of numbers is a range, a list holds the choices."""

    def make(numbers: random.Random, protocol: str) -> Entries:
        chosen: dict[str, Any] = {"kind": kind}
        for name, value in parameters.items():
            if isinstance(value, tuple):
                chosen[name] = numbers.uniform(*value)
            else:
                chosen[name] = numbers.choice(value) if isinstance(value, list) else value
        return [chosen]

    return make


def _foreign_command(numbers: random.Random, protocol: str) -> Entries:
    identity, data = COMMANDS[protocol]
    return [{"kind": "foreign_frames", "id": identity, "data": data, "period": numbers.uniform(0.003, 0.02)}]


def _clock_then_silence(numbers: random.Random, protocol: str) -> Entries:
    step, silence = _fault("clock_step", step=(0.5, 2.0)), _fault("silent", drive=ANY)
    return [step(numbers, protocol)[0] | {"early": 0.1}, *silence(numbers, protocol)]


ANY = ["a", "b"]
NODES = ["a", "b", "x1"]
TO_HOST = "to_host"

ROWS: dict[str, tuple[Make, tuple[str, ...]]] = {
    # on the wire
    "one or two samples lost": (_fault("lost", direction=TO_HOST, **{"for": (0.5 * PERIOD, 1.9 * PERIOD)}), PROTOCOLS),
    "samples lost": (_fault("lost", direction=TO_HOST), PROTOCOLS),
    "commands lost": (_fault("lost", direction="from_host"), PROTOCOLS),
    "everything lost": (_fault("lost"), PROTOCOLS),
    "frames lost now and then": (_fault("lost", p=(0.001, 0.01)), PROTOCOLS),
    "frames late by less than a period": (_fault("delay", delay=(1e-4, 5e-4), jitter=(0.0, 5e-4)), PROTOCOLS),
    "frames late by many periods": (_fault("delay", direction=TO_HOST, delay=(0.012, 0.02)), PROTOCOLS),
    "frames twice": (_fault("duplicate", n=[1, 2], direction=TO_HOST), PROTOCOLS),
    "old frames again": (_fault("duplicate", age=(0.005, 0.02), direction=TO_HOST), PROTOCOLS),
    "frames corrupted now and then": (_fault("corruption", p=(0.001, 0.01)), PROTOCOLS),
    "every frame corrupted": (_fault("corruption"), PROTOCOLS),
    "host's cable off": (_fault("cut"), PROTOCOLS),
    "host's cable off for a moment": (_fault("cut", **{"for": (0.015, 0.1)}), PROTOCOLS),
    "a drive's cable off": (_fault("cut", drive=ANY), PROTOCOLS),
    "host's bus-off": (_fault("bus_off"), PROTOCOLS),
    "host's bus-off with restart": (_fault("bus_off", restart=(0.0, 0.05)), PROTOCOLS),
    "a drive's bus-off": (_fault("bus_off", drive=ANY), PROTOCOLS),
    "babble of low priority": (_fault("babble", id=0x7F0, load=(0.3, 1.0)), PROTOCOLS),
    "babble of high priority": (_fault("babble", id=0x010, load=(0.1, 0.25)), PROTOCOLS),
    "babble that fills the bus": (_fault("babble", id=0x010, load=1.0), PROTOCOLS),
    "frames of a wrong length": (_fault("wrong_length", drive=NODES, length=[0, 1, 2, 3, 5]), PROTOCOLS),
    "frames with unknown ids": (_fault("foreign_frames", id=[0x7E5, 0x123456, 0x7F1], data=["", "00ff"]), PROTOCOLS),
    "another master": (_foreign_command, PROTOCOLS),
    "two nodes of one id": (_fault("id_clash", drive=ANY), PROTOCOLS),
    # in a drive
    "drive fault": (_fault("drive_fault", drive=ANY), PROTOCOLS),
    "drive fault that clears": (_fault("drive_fault", drive=ANY, clear=True, **{"for": (0.003, 0.05)}), PROTOCOLS),
    "drive reboots": (_fault("reboot", drive=ANY, **{"for": (0.02, 0.2)}), PROTOCOLS),
    "drive does not let itself be enabled": (_fault("refuse_enable", drive=ANY), PROTOCOLS),
    "drive in a wrong mode": (_fault("wrong_mode", drive=ANY), ("cia402",)),
    "drive refuses an object": (_fault("sdo_abort", drive=ANY, index=[0x6060, 0x1016, 0x1600, 0x1A00]), ("cia402",)),
    "drive's heartbeat missing": (_fault("heartbeat_loss", drive=ANY), ("odrive", "cia402")),
    "master's heartbeat missing": (_fault("heartbeat_loss", drive=ANY, of="master"), ("odrive", "cia402")),
    "drive silent": (_fault("silent", drive=ANY), PROTOCOLS),
    "encoder node silent": (_fault("silent", drive="x1"), PROTOCOLS),
    "encoder node's cable off": (_fault("cut", drive="x1"), PROTOCOLS),
    "encoder node reboots": (_fault("reboot", drive="x1", **{"for": (0.02, 0.2)}), PROTOCOLS),
    "replies late by less than a period": (_fault("late", drive=NODES, delay=(2e-4, 1e-3)), PROTOCOLS),
    "replies late by many periods": (_fault("late", drive=NODES, delay=(0.012, 0.03)), PROTOCOLS),
    "drive's clock drifts": (_fault("clock_drift", drive=NODES, ppm=(-200.0, 200.0)), ("odrive", "cia402")),
    "time stamps step": (_fault("clock_step", step=(-1.0, 1.0)), PROTOCOLS),
    "time stamps ahead, then a drive silent": (_clock_then_silence, PROTOCOLS),
    # in an encoder
    "encoder jumps": (_fault("encoder_jump", drive=NODES, delta=(0.1, 0.6)), PROTOCOLS),
    "encoder jumps back": (_fault("encoder_jump", drive=NODES, delta=(-0.6, -0.1)), PROTOCOLS),
    "encoder stuck": (_fault("encoder_stuck", drive=NODES), PROTOCOLS),
    "encoder not a number": (_fault("encoder_nan", drive=NODES), ("odrive", "moteus")),
    "encoder wraps": (_fault("encoder_wrap", drive=NODES, range=(3.0, 5.0)), PROTOCOLS),
    "encoder's sign flips": (_fault("encoder_flip", drive=NODES), PROTOCOLS),
    "encoder drifts": (_fault("encoder_drift", drive=["a", "x1"], rate=(0.3, 1.0)), PROTOCOLS),
    # in an actuator
    "torque derated": (_fault("derating", drive=ANY, factor=(0.01, 0.05)), PROTOCOLS),  # the carts need 0.16 of it
    "torque constant wrong": (_fault("torque_constant", drive=ANY, factor=[0.5, 2.0]), PROTOCOLS),
    "torque constant wrong by little": (_fault("torque_constant", drive=ANY, factor=(0.95, 1.05)), PROTOCOLS),
    "torque table wrong": (_fault("torque_table", drive=ANY, factor=[0.5, 2.0]), PROTOCOLS),
    "coupling slips": (_fault("torque_constant", drive=ANY, factor=(0.0, 0.2)), PROTOCOLS),
    "motor without torque": (_fault("no_torque", drive=ANY), PROTOCOLS),
    "joint blocked": (_fault("blocked", drive=ANY), PROTOCOLS),
    "hand pushes": (_fault("push", drive=ANY, torque=[-6.0, -3.0, 3.0, 6.0]), PROTOCOLS),
    # in the host
    "loop stalls for a moment": (_fault("stall", **{"for": (0.003, 0.005)}), PROTOCOLS),
    "loop stalls for half the watchdog": (_fault("stall", **{"for": (0.0075, 0.015)}), PROTOCOLS),
    "loop stalls for almost the watchdog": (_fault("stall", **{"for": (0.015, 0.026)}), PROTOCOLS),
    "loop stalls": (_fault("stall", **{"for": (0.04, 0.3)}), PROTOCOLS),
    "law says NaN": (_fault("output", value="nan"), PROTOCOLS),
    "law says infinity": (_fault("output", value="inf"), PROTOCOLS),
    "law jumps": (_fault("output", value="step", step=(100.0, 1e6)), PROTOCOLS),
}  # fmt: skip
"""Row -> function that makes its fault, and the protocols that can have it."""

HOST_ROWS = ("law raises", "SIGINT", "SIGTERM", "bus closed")
"""Faults that `run` causes itself, because a config cannot script them."""

BEFORE = ("drive does not let itself be enabled", "drive in a wrong mode", "drive refuses an object")
"""Faults that exist before the run."""


FLOATING = (
    "samples lost", "commands lost", "everything lost", "host's cable off", "host's bus-off", "another master",
    "drive fault", "drive reboots", "drive silent", "encoder jumps", "encoder not a number", "encoder's sign flips",
    "encoder drifts", "hand pushes", "loop stalls", "law says NaN", "law jumps", *HOST_ROWS,
)  # fmt: skip
"""Rows that are played while the machine floats, too."""


def rows() -> list[tuple[str, str, str]]:
    """All combinations of row, protocol and motion."""
    every = [(row, protocols) for row, (_, protocols) in ROWS.items()] + [(row, PROTOCOLS) for row in HOST_ROWS]
    return [
        (row, protocol, motion)
        for row, protocols in every
        for protocol in protocols
        for motion in SPEED
        if motion != "floating" or row in FLOATING
    ]


def scenarios(count: int, seed: int = 0, estimation: bool = False) -> Iterator[Scenario]:
    """The given number of scenarios: all rows in turn, then again with other random numbers."""
    table = rows()
    for number in range(count):
        row, protocol, motion = table[number % len(table)]
        yield replace(make(row, protocol, motion, seed * 1_000_003 + number), estimation=estimation)


def make(row: str, protocol: str, motion: str, seed: int) -> Scenario:
    """A scenario of a row; equal seeds give equal runs."""
    numbers = random.Random(f"{row}/{protocol}/{motion}/{seed}")
    early = 0.0 if motion == "at speed" else EARLIER
    if row in HOST_ROWS:
        return Scenario(row, protocol, motion, numbers.uniform(*FASTEST) - early, (), row, seed)
    made, before = ROWS[row][0](numbers, protocol), row in BEFORE
    at = None if before else numbers.uniform(*FASTEST) - early
    when = {"since": "power_on", "at": 0.0} if at is None else {"since": "engaged", "at": at}
    faults = tuple({**entry, **when, "at": when["at"] - entry.pop("early", 0.0)} for entry in made)
    return Scenario(row, protocol, motion, at, faults, "", seed)
