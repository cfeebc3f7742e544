"""`servoctl identify`: the plant's parameters and friction from logs. `servoctl excite`: a motion that shows them."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.console import Announcer, say, say_json, say_table
from servoctl.cli.options import AsJson, Classes, Config, Out, Overrides, SetFiles, changes_of, fresh_folder

if TYPE_CHECKING:
    from servoctl.identification import Identification


def identify(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOG",
            help="Folders written by `run` or `hil`, or tables (CSV, Parquet) with --config.",
        ),
    ],
    config: Annotated[
        str | None,
        typer.Option(metavar="CONFIG", help="The config of tables: its plant, and the columns under `log`."),
    ] = None,
    parameters: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="What to identify, such as m1,tool_m,friction; default: all that enters linearly, and friction.",
        ),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(metavar="HZ", help="Cut-off frequency of the positions; default: eight times that of the motion."),
    ] = None,
    classes: Classes = None,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Identify the plant's parameters, rotors and friction from logs.

    Writes identified.yaml, to be laid over the config by --set-file.
    """
    from servoctl.identification import identify as identified
    from servoctl.identification.files import IDENTIFIED, MACHINE, save
    from servoctl.run_folder.files import CONFIG, study_folder

    names = None if parameters is None else [name.strip() for name in parameters.split(",") if name.strip()]
    with Announcer(runs[0].name, "tracing and fitting"):
        result = identified(runs, names, bandwidth, classes, config, changes_of(set_file, overrides))
    folder = study_folder(out or fresh_folder(f"{result.config}-identify"))
    files = save(result, folder)
    if as_json:
        say_json(result.to_dict())
        return
    _say(result)
    say(f"\nwritten to {quote(str(folder))}: {', '.join(files)}")
    if result.findings:
        say("next: mend `log` of the config as the findings say, and identify again")
        return
    if result.objection is not None:
        return
    over = [f"--set-file {quote(str(folder / name))}" for name in (IDENTIFIED, MACHINE) if name in files]
    say(f"next: servoctl run {quote(config or str(runs[0] / CONFIG))} {' '.join(over)}")


def _say(result: "Identification") -> None:
    for kind, where, text in result.finding_groups:
        say(f"finding: {kind} of {where}: {text}")
    if result.findings:
        say("the values below are those of the mended log\n")
    *values, (header, torques) = result.tables
    for titles, rows in values:
        say_table(titles, rows, numbers=3)
        say()
    for line in result.without_value:
        say(line)
    late = ", ".join(dict.fromkeys(f"{1e3 * delay:.2g}" for delay in result.fit.delays))
    say(f"\ntorques act {late} ms after their rows; positions are filtered at {result.bandwidth:.3g} Hz")
    say("\nrms of the torque, and of what the model does not explain")
    say_table(header, torques, numbers=4)
    say(f"\n{result.verdict}")


def excite(
    config: Config,
    duration: Annotated[float, typer.Option(metavar="S", min=0.5, help="Duration of the motion [s].")] = 10.0,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Seed of the search.")] = 0,
    out: Out = None,
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

    with Announcer(config, "searching a motion"):
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
