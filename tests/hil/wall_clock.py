"""Runs on the wall clock for tests: a small machine, its drives emulated in another process, and the loop in a third.

Periods and time-outs are long: a busy machine must not fail these tests, which measure no punctuality.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

PATIENCE = 90.0
"""Time before a test gives up [s]."""

WATCHDOG = 0.3
"""Of the drives [s]."""

WITHIN = 0.2
"""How much later than its watchdog a drive may stop on a busy machine [s]."""

ACTS = {"cia402": "brakes", "odrive": "torque off", "mit": "torque off"}
"""Protocol -> what its drive does when its watchdog has run out."""

CIA402 = {"counts_per_turn": 65536, "velocity_unit": "0.1*rpm"}

ODRIVE = {"feedback_period": 0.01, "encoder_bits": 16}

OPTIONS: dict[str, dict[str, Any]] = {
    "cia402": {**CIA402, "status_every": 5},
    "odrive": ODRIVE,
    "mit": {"motor": "dm3507", "status": "damiao", "drive_watchdog": True},  # of small steps: no torque is half a step
    "robstride": {"motor": "rs-02"},
    "moteus": {},
}


def write_config(
    path: Path,
    protocol: str,
    keys: dict[str, Any],
    duration: float,
    watchdog: float = WATCHDOG,
    stale: float = 0.2,
    **hil: Any,
) -> Path:
    """A cart pulls a mass on a spring: one drive, one encoder."""
    shared = {"bus": "main", "gear": 20}
    drive = {
        "actuator": "F", "protocol": protocol, "node": 1, "rated_torque": 1.0, "torque_limit": 60,
        "torque_rate_limit": 5000, "speed_limit": 1.5, "position_limits": [-10, 10], **shared, **OPTIONS[protocol],
    }  # fmt: skip
    encoder = "cia402" if protocol == "cia402" else "odrive"
    sensor = {"coordinate": "x2", "protocol": encoder, "node": 7, **shared}
    config = {
        "plant": {
            "class": "plants.two_mass_spring:TwoMassSpring",
            "parameters": {"m1": 1.0, "m2": 2.0, "k": 10.0, "l": 0.5},
        },
        "initial": {"q": {"x1": 0, "x2": 0.5}, "v": 0, "max_violation": 1},
        "task": [{"name": "distance", "holonomic": "x2 - x1 - l - 0.1*(1-cos(t))"}],
        "law": {"kind": "constraint_following", "correction": {"baumgarte": {"alpha": 4, "beta": 4}}},
        "run": {"duration": duration, "period": 0.01, "integrator": {"method": "rk4", "step": 0.001}},
        "hil": {
            "period": 0.02 if keys["interface"] == "socketcan" else 0.01,  # its kernel may be an emulated one
            "buses": {"main": keys},
            "drives": [drive],
            "sensors": [sensor | (CIA402 if encoder == "cia402" else ODRIVE)],
            "safety": {
                "stale": stale, "lost": 1.25 * stale, "drive_watchdog": watchdog,
                "late_ticks": 1000, "late_share": 0.99, "stop_time": 1.0, "engage_tolerance": 0.2,
                "zero_time": 0.05, "ramp_time": 0.1,
            },
            **hil,
        },
    }  # fmt: skip
    path.write_text(yaml.safe_dump(config))
    return path


def wait_until(
    done: Callable[[], Any], why: Callable[[], str] = lambda: "it never came true", each: Callable[[], Any] = bool
) -> None:
    """Waits for a condition; `each` is done between two looks."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, why()
        each()
        time.sleep(0.01)


class Child:
    """A `servoctl` command in a process of its own; what it says goes to files."""

    def __init__(self, folder: Path, *words: str, through: tuple[str, ...] = ()) -> None:
        self.out, self.err = folder / f"{words[0]}.out", folder / f"{words[0]}.err"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [*through, sys.executable, "-m", "servoctl", *words], stdout=out, stderr=err, cwd=folder
            )

    @property
    def said(self) -> str:
        return self.out.read_text() + self.err.read_text()

    def wait_for(self, words: str) -> None:
        def done() -> bool:
            assert words in self.said or self.process.poll() is None, self.said
            return words in self.said

        wait_until(done, lambda: f"never said {words!r}: {self.said}")

    def end(self) -> int:
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@contextmanager
def emulated(folder: Path, config: Path, *words: str) -> Iterator[Child]:
    """`servoctl emulate`, serving."""
    child = Child(folder, "emulate", str(config), "--engine", "vm", *words)
    try:
        child.wait_for("until Ctrl-C")
        yield child
    finally:
        child.close()


@contextmanager
def looping(folder: Path, config: Path, *words: str, through: tuple[str, ...] = ()) -> Iterator[Child]:
    """`servoctl hil`, begun; the run folder is `run`."""
    child = Child(folder, "hil", str(config), "--engine", "vm", "--out", str(folder / "run"), *words, through=through)
    try:
        yield child
    finally:
        child.close()


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run/summary.json").read_text())
    return found


def silences(emulator: Child, word: str) -> list[float]:
    """For how long the bus was silent whenever the drive did this [s], by the emulator's own log."""
    lines = [line for line in emulator.said.splitlines() if f"F: {word}" in line]
    return [float(line.split(" ms after")[0].split()[-1]) / 1000 for line in lines]


def next_silence(emulator: Child, word: str, before: list[float]) -> float:
    """The first after those."""
    wait_until(lambda: len(silences(emulator, word)) > len(before), lambda: emulator.said)
    return silences(emulator, word)[len(before)]
