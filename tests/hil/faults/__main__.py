"""Plays random scenarios: `python -m tests.hil.faults --count 5000 --seed 1`; `--rows`: each row of the carts once."""

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter

from tests.hil import rigs
from tests.hil.by_drivers import TICKS
from tests.hil.faults.carts.run import FaultResult, play_on
from tests.hil.faults.carts.scenario import Scenario as CartScenario
from tests.hil.faults.carts.scenario import rows
from tests.hil.faults.carts.scenario import scenarios as scenarios_of_rows
from tests.hil.faults.judge import Verdict, play
from tests.hil.faults.scenarios import RIGS, Scenario, scenarios


def _played(scenario: Scenario) -> Verdict:
    try:
        return play(scenario)
    except Exception as error:  # counts, and the others go on
        return Verdict(scenario, -1, (), (f"{type(error).__name__}: {error}",))


def _on_both_ticks(scenario: CartScenario) -> tuple[FaultResult, ...]:
    return play_on(TICKS, scenario)


def play_rows(seed: int, jobs: int, limit: float) -> int:
    """Plays each row of the carts on both ticks, for at most `limit` [s], and prints what went wrong."""
    began, played, failed = time.monotonic(), 0, 0
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for results in pool.imap(_on_both_ticks, scenarios_of_rows(len(rows()), seed)):
            for result in results:
                played += 1
                failed += bool(result.problems)
                if result.problems:
                    print(json.dumps({"scenario": result.scenario.name, "problems": result.problems}), flush=True)
            if time.monotonic() - began > limit:
                break
    print(f"{played} runs, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", action="store_true", help="each row of the carts, on both ticks")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rig", action="append", help="only this machine; may be repeated")
    parser.add_argument("--limit", type=float, default=float("inf"), help="longest time [s]")
    parser.add_argument("--only", type=int, help="only the scenario of this number")
    options = parser.parse_args()
    if options.rows:
        return play_rows(options.seed, options.jobs, options.limit)
    names = options.rig or list(RIGS)
    drives = {name: rigs._setup(rigs.RIGS[name], ()).settings.drives for name in names}
    drawn = list(scenarios(options.count, options.seed, drives))
    if options.only is not None:
        drawn = [scenario for scenario in drawn if scenario.seed == options.only]
    began, counts, failed = time.monotonic(), Counter[str](), 0
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for verdict in pool.imap(_played, drawn):
            counts[f"{verdict.scenario.rig}: exit {verdict.exit_code}"] += 1
            if verdict.problems:
                failed += 1
                print(json.dumps({"scenario": verdict.scenario.name, "exit": verdict.exit_code, "events": verdict.kinds,
                                  "problems": verdict.problems}), flush=True)  # fmt: skip
            if time.monotonic() - began > options.limit:
                break
    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")
    print(f"{counts.total()} scenarios, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
