"""Kills the loop at random instants of every stage: `python -m tests.hil.kills --count 100 --seed 1`.

Each time a new `servoctl emulate` has the drives in a process of its own, and `servoctl hil` gets SIGKILL. A drive must
stop making torque by its watchdog, and make none again; the run folder must open.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hil.recorder import read_events
from servoctl.run_folder import load_run
from tests.hil.interfaces import keys_of
from tests.hil.wall_clock import ACTS, WATCHDOG, WITHIN, Child, emulated, looping, summary_of, wait_until, write_config

LASTS = 2.0  # [s] from the first stage to the end of the run
AFTERWARDS = 0.5  # [s] time for which a drive must stay as it is


def makes_torque(emulator: Child) -> bool:
    """Whether the emulated drive was told to make torque last, and not to stop since."""
    said = [line for line in emulator.said.splitlines() if "F: " in line]
    return bool(said) and "F: torque on" in said[-1]


def killed(protocol: str, after: float) -> tuple[str, list[str]]:
    """Kills a loop so long after its first stage began; the stage that it was in, and what went wrong."""
    problems = []
    with tempfile.TemporaryDirectory() as name, keys_of("udp_multicast") as keys:
        folder = Path(name)
        config = write_config(folder / "cart.yaml", protocol, keys, 1.0)
        with emulated(folder, config) as emulator, looping(folder, config) as loop:
            loop.wait_for("enabling")
            time.sleep(after)
            loop.process.kill()
            loop.end()
            worked = makes_torque(emulator)
            time.sleep(WATCHDOG + WITHIN)
            if makes_torque(emulator):
                problems.append(f"the drive makes torque {WATCHDOG + WITHIN:g} s after the kill")
            before = emulator.said.count("F: torque on")
            time.sleep(AFTERWARDS)
            if emulator.said.count("F: torque on") != before:
                problems.append("the drive was switched on again")
            if worked and ACTS[protocol] not in emulator.said:
                problems.append(f"the drive never said {ACTS[protocol]!r}")
        wait_until(lambda: summary_of(folder)["status"] != "running", lambda: "the recorder did not close")
        load_run(folder / "run")
        stages = [event["text"] for event in read_events(folder / "run") if event["event"] == "stage"]
    return stages[-1], problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    numbers, stages, failed = random.Random(options.seed), Counter[str](), 0
    for number in range(options.count):
        protocol, after = numbers.choice(list(ACTS)), numbers.uniform(0.0, LASTS)
        stage, problems = killed(protocol, after)
        stages[stage] += 1
        failed += bool(problems)
        for problem in problems:
            print(f"{number} {protocol}, {after:.3f} s after the first stage began, in {stage}: {problem}", flush=True)
    print(f"{options.count} kills, {failed} failed; last stage: {dict(stages)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
