"""Random scenarios on the machines of `rigs`: up to two faults, and an end."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hil.drives.settings import DriveSettings

RIGS = {
    "V screw": 3, "V rack": 3, "V rack odrive": 2, "V rack mit": 2, "V rack moteus": 2, "V rack robstride": 2, "L": 3,
    "mixed": 3, "S": 2, "S cia402": 2, "AF": 1, "two arms": 1,
}  # fmt: skip
"""Machine -> how often it is drawn; large ones take the longest."""

DURATION = 0.8
"""Longest time of the task [s]."""


@dataclass(frozen=True)
class Scenario:
    """One run.

    Attributes:
        rig: A machine of `rigs`.
        faults: Entries of `hil.faults`.
        duration: Time of the task [s].
        stop_at: When the operator asks for the stop, since the task began [s]; None: never.
        seed: Seed of all random numbers.
    """

    rig: str
    faults: tuple[Mapping[str, Any], ...]
    duration: float
    stop_at: float | None
    seed: int

    @property
    def name(self) -> str:
        """The scenario in one line, for a reader."""
        faults = "; ".join(", ".join(f"{key}: {value}" for key, value in fault.items()) for fault in self.faults)
        end = f"task of {self.duration:.3f} s" if self.stop_at is None else f"Ctrl-C at {self.stop_at:.3f} s"
        return f"{self.rig}, {end}, seed {self.seed}: {faults or 'no fault'}"


Draw = Callable[[random.Random], Any]


def _from(low: float, high: float) -> Draw:
    return lambda numbers: round(numbers.uniform(low, high), 5)


def _of(*choices: Any) -> Draw:
    return lambda numbers: numbers.choice(choices)


def _for(low: float, high: float) -> dict[str, Draw]:
    """A fault that is over after this time, or lasts."""
    return {"for": lambda numbers: round(numbers.uniform(low, high), 5) if numbers.random() < 0.5 else None}


_DIRECTION = _of("any", "to_host", "from_host")
FAULTS: dict[str, tuple[str, dict[str, Draw]]] = {
    "lost": ("bus", {"p": _of(1.0, 0.01, 0.1), "direction": _DIRECTION, **_for(0.003, 0.2)}),
    "delay": ("bus", {"delay": _from(1e-4, 0.02), "jitter": _from(0.0, 5e-4), "direction": _DIRECTION}),
    "duplicate": ("bus", {"n": _of(1, 2), "age": _of(0.0, 0.01), "direction": _of("to_host")}),
    "corruption": ("bus", {"p": _of(1.0, 0.01, 0.1), **_for(0.002, 0.1)}),
    "cut": ("host_or_node", _for(0.003, 0.1)),
    "bus_off": ("host_or_node", {"restart": _from(0.0, 0.05)}),
    "babble": ("bus", {"id": _of(0x010, 0x7F0), "load": _from(0.1, 1.0), **_for(0.003, 0.1)}),
    "wrong_length": ("node", {"length": _of(0, 1, 2, 3, 5), "p": _of(1.0, 0.1)}),
    "foreign_frames": ("bus", {"id": _of(0x7E5, 0x7F1), "data": _of("", "00ff")}),
    "drive_fault": ("node", {"clear": _of(False, True), **_for(0.003, 0.05)}),
    "reboot": ("node", {"for": _from(0.005, 0.3)}),
    "silent": ("node", _for(0.003, 0.3)),
    "late": ("node", {"delay": _from(2e-4, 0.03)}),
    "clock_drift": ("node", {"ppm": _from(-200.0, 200.0)}),
    "clock_step": ("bus", {"step": _from(-1.0, 1.0)}),
    "encoder_jump": ("node", {"delta": _of(-0.3, -0.05, 0.02, 0.1, 0.5)}),
    "encoder_stuck": ("node", {}),
    "encoder_flip": ("node", {}),
    "encoder_drift": ("node", {"rate": _from(0.1, 1.0)}),
    "derating": ("node", {"factor": _from(0.01, 0.5)}),
    "torque_constant": ("node", {"factor": _of(-1.0, 0.0, 0.5, 0.9, 1.1, 2.0)}),
    "no_torque": ("node", {}),
    "brake_stuck": ("node", {}),
    "blocked": ("node", _for(0.05, 0.5)),
    "push": ("node", {"torque": _of(-20.0, -5.0, 5.0, 20.0), **_for(0.02, 0.5)}),
    "stall": ("host", {"for": _from(0.002, 0.3)}),
    "output": ("host", {"value": _of("nan", "inf", "step"), "step": _of(-1e3, 10.0, 1e3)}),
}
"""Kind -> what it acts on, and its parameters."""

FITS: dict[str, Callable[[DriveSettings], bool]] = {
    "clock_drift": lambda drive: drive.protocol in ("cia402", "odrive"),
    "brake_stuck": lambda drive: drive.brake,
}
"""Kind -> the drives that can have it; others: every drive."""


def scenarios(count: int, seed: int, drives: Mapping[str, Sequence[DriveSettings]]) -> Iterator[Scenario]:
    """Random scenarios.

    Args:
        count: How many.
        seed: Seed of their random numbers.
        drives: Machine -> its drives.
    """
    for number in range(count):
        numbers = random.Random(f"{seed}/{number}")
        rig = numbers.choices(list(drives), [RIGS[name] for name in drives])[0]
        duration = round(numbers.uniform(0.1, DURATION), 3)
        few = numbers.choices((0, 1, 2), (2, 6, 2))[0]
        faults = tuple(_fault(numbers, drives[rig], duration) for _ in range(few))
        stop_at = round(numbers.uniform(0.0, duration), 4) if numbers.random() < 0.4 else None
        yield Scenario(rig, faults, duration, stop_at, number)


def _fault(numbers: random.Random, drives: Sequence[DriveSettings], duration: float) -> dict[str, Any]:
    able = {kind: [drive.name for drive in drives if kind not in FITS or FITS[kind](drive)] for kind in FAULTS}
    kind = numbers.choice([kind for kind, names in able.items() if names])
    target, parameters = FAULTS[kind]
    # also in the stop, and where the brakes close
    fault: dict[str, Any] = {"kind": kind, "at": round(numbers.uniform(0.0, duration + 0.3), 4)}
    if target == "node" or (target == "host_or_node" and numbers.random() < 0.7):
        fault["drive"] = numbers.choice(able[kind])
    values = {key: draw(numbers) for key, draw in parameters.items()}
    counts = {"clear": bool(values.get("for")), "step": values.get("value", "step") == "step"}  # others always do
    return fault | {key: value for key, value in values.items() if value is not None and counts.get(key, True)}
