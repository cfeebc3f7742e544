"""`servoctl excite`: makes a motion that tells the plant's parameters apart."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from servoctl.cli.console import announced, say, say_json
from servoctl.cli.folders import fresh_folder
from servoctl.cli.options import AsJson, Config, Overrides, SetFiles, changes_of


def excite(
    config: Config,
    duration: Annotated[float, typer.Option(metavar="S", min=0.5, help="Duration of the motion [s].")] = 10.0,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Seed of the search.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Output folder; default: runs/<name>-excite-<date>-<time>.")
    ] = None,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Make a motion that tells the plant's parameters apart.

    It starts and ends at rest at the config's start, within 90 % of all limits of positions, speeds and torques.
    """
    from servoctl.assembly import load
    from servoctl.identification.excitation import RANGE
    from servoctl.identification.excitation import excite as excitation_of
    from servoctl.identification.files import CONFIG, save_excitation
    from servoctl.run_folder.files import study_folder

    with announced(config, "searching a motion"):
        run = load(config, changes_of(set_file, overrides), engine="numpy")
        found = excitation_of(run, duration, seed)
    folder = study_folder(out or fresh_folder(f"{run.name}-excite"))
    files = save_excitation(run, found, folder)
    if as_json:
        say_json(
            {
                "coordinates": list(found.coordinates), "duration": duration, "condition": found.condition,
                "parameters": found.parameters, "limit_share": found.share, "files": files,
            }
        )  # fmt: skip
        return
    say(f"moves {', '.join(found.coordinates)} for {duration:g} s, from rest to rest")
    say(f"determines {found.parameters} sums of parameters, friction included; condition number {found.condition:.3g}")
    say(f"uses at most {100.0 * found.share:.3g} % of a limit, by the model as it is now")
    limits = {"positions": found.limits.half, "speeds": found.limits.speed, "torques": found.limits.most}
    missing = [what for what, values in limits.items() if not all(abs(value) < float("inf") for value in values)]
    if missing:
        way = f"; no coordinate moves more than {RANGE:g} of its unit from the start" if "positions" in missing else ""
        say(f"no limits are known for some {', '.join(missing)} (state them under law.limits or hil.drives){way}")
    say(f"\nwritten to {quote(str(folder))}: {', '.join(files)}")
    say(f"next: servoctl run {quote(str(folder / CONFIG))} --out log && servoctl identify log")
