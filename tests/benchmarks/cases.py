"""The benchmarks by name, and the command line that runs them."""

import argparse
import json
import sys
from collections.abc import Sequence
from inspect import getdoc

from servoctl.errors import ServoctlError
from tests.benchmarks import bounds, laws, linkages, on_drives, peers, startup, two_robots, wrong_model
from tests.benchmarks.contest import Case, Results, printed


def two_arms(quick: bool) -> Results:
    """The control step of two seven-joint arms from URDFs that carry a box, inside C."""
    return laws.laws_inside("two_arms", quick)


def quadruped(quick: bool) -> Results:
    """The control step of a standing quadruped inside C, without limits and with them."""
    return laws.laws_inside("quadruped", quick)


def spatial_chain(quick: bool) -> Results:
    """The control step of spatial chains to 30 joints whose tip follows a point, inside C."""
    return laws.laws_inside("spatial_chain", quick)


CASES: dict[str, Case] = {
    "tick": two_robots.tick,
    "dynamics": two_robots.dynamics,
    "closed_loop": two_robots.closed_loop,
    "open_loop": two_robots.open_loop,
    "sweep": two_robots.sweep,
    "two_arms": two_arms,
    "quadruped": quadruped,
    "spatial_chain": spatial_chain,
    "robots_from_files": laws.robots_from_files,
    "bounds": bounds.bounds,
    "parallelogram": linkages.parallelogram,
    "four_bars": linkages.four_bars,
    "startup": startup.startup,
    "hil": on_drives.hil,
    "tick_c": on_drives.tick_c,
    "tick_stages": on_drives.tick_stages,
    "fd_at_1khz": on_drives.fd_at_1khz,
    "wrong_model": wrong_model.wrong_model,
    "law_in_cpp": two_robots.law_in_cpp,
}
"""Name -> benchmark."""

ONLY_BY_NAME = ("fd_at_1khz", "law_in_cpp", "tick_stages")
"""These take minutes, or show the loop from within, and are no rows of a speed table."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the named benchmarks; without names, all that have rows of a speed table."""
    width = max(map(len, CASES))
    listed = "\n".join(f"  {name:{width}}  {(getdoc(case) or '').splitlines()[0]}" for name, case in CASES.items())
    parser = argparse.ArgumentParser("python -m tests.benchmarks", description="Prints the rows of the speed tables.")
    parser.epilog = listed
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="a reduced set that takes seconds")
    parser.add_argument("--json", action="store_true", help="print values as JSON")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in CASES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r} (there are: {', '.join(CASES)})")
    values, failed = {}, False
    for name in options.names or [name for name in CASES if name not in ONLY_BY_NAME]:
        print(f"{name}: {(getdoc(CASES[name]) or '').splitlines()[0]}", file=sys.stderr, flush=True)
        try:
            results = list(CASES[name](options.quick))
        except ServoctlError as error:  # the others go on
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed = True
            continue
        values[name] = [result.values for result in results]
        if not options.json:
            print(f"{printed(results)}\n", flush=True)
    if options.json:
        print(json.dumps({**values, "versions": peers.versions()}, indent=2))
    else:
        print("\n".join(peers.notes()))
    return int(failed)
