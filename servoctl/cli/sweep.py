"""`servoctl sweep`: many runs of a config over ranges of its numbers."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from servoctl.cli.console import ProgressBar, note, say, say_json, say_table
from servoctl.cli.exit_code import ExitCode
from servoctl.cli.options import AsJson, ClusterAddress, Config, Jobs, Overrides, SetFiles, connected, given
from servoctl.cli.phases import Phases, announced
from servoctl.cli.run import fresh_folder

if TYPE_CHECKING:
    from servoctl.assembly import Run
    from servoctl.sweep import Study

BEST = 5
"""Runs that the table shows."""


def sweep(
    config: Config,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=LO:HI:N[:log]",
            help="A number of the config, its range, and how many values; log: equal ratios; repeatable.",
        ),
    ] = None,
    sample: Annotated[
        Literal["grid", "lhs", "monte-carlo"],
        typer.Option(help="Every combination, a Latin hypercube, or uniform random points."),
    ] = "grid",
    samples: Annotated[int, typer.Option(metavar="K", help="Number of runs, where no grid is made.")] = 100,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Of the random points.")] = 0,
    jobs: Jobs = 1,
    cluster: ClusterAddress = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the sweep in --out.")] = False,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the table and the picture show; default: rms_violation.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write; default: runs/<name>-sweep-<date>-<time>.")
    ] = None,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    engine: Annotated[
        Literal["auto", "c", "vm", "numpy"],
        typer.Option(help="auto compiles to C where that pays for all runs together; the others as in run."),
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Run a config many times over ranges of its numbers."""
    from servoctl.assembly import load
    from servoctl.sweep import RowStore, identity_of, make_folder, plan, points_of, read_varies
    from servoctl.sweep import sweep as run_sweep

    phases = Phases()
    with announced(config, "loading and tracing", always=engine == "c"):
        loaded = load(config, given(set_file, overrides), engine=engine)
    phases.end("loading and tracing")
    varies = read_varies(vary or (), loaded)
    shown = plan(loaded, metric)
    folder = _folder(loaded.name, out, resume)
    points = points_of(varies, sample, samples, seed)
    identity = identity_of(loaded, varies, sample, seed, len(points))
    with connected(cluster, jobs) as workers, RowStore.open(folder, identity, len(points), resume) as store:
        make_folder(folder)
        with ProgressBar(loaded.name) as progress:
            study = run_sweep(loaded, varies, points, sample, seed, jobs, progress, workers, store)
    for sentence in filter(None, [loaded.engine_warning, study.broken]):
        note(f"warning: {sentence}")
    phases.end("limits", "compiling and simulating", share=study.wall_time)
    study.save(folder, shown)
    phases.end("writing")
    summary = study.summary()
    if as_json:
        say_json(summary)
    else:
        _say_study(loaded, study, summary, shown)
        say(f"\n{phases}")
        say(f"\nwritten to {quote(str(folder))}: sweep.parquet, sweep.png, summary.json")
        if summary["runs"] < summary["planned"]:
            say(f"next: the same command with --out {quote(str(folder))} --resume")
    if summary["status"] == "interrupted":
        raise typer.Exit(ExitCode.INTERRUPTED)
    bad = study.broken is not None or summary["failed"] == summary["runs"]
    raise typer.Exit(ExitCode.BAD_STATUS if bad else ExitCode.DONE)


def _folder(name: str, out: Path | None, resume: bool) -> Path:
    from servoctl.errors import ConfigError
    from servoctl.sweep.store import FILE

    if out is not None or not resume:
        return out or fresh_folder(f"{name}-sweep")
    there = sorted(Path("runs").glob(f"{name}-sweep-*/{FILE}"), key=lambda path: path.stat().st_mtime)
    hint = f"the newest: --out {there[-1].parent}" if there else f"there is none in runs/{name}-sweep-*"
    raise ConfigError(f"--resume: which sweep? ({hint})")


def _say_study(run: "Run", study: "Study", summary: dict[str, Any], metric: str) -> None:
    from servoctl.config.tune import RESERVES
    from servoctl.sweep.reserves import within

    runs, failed, speed = summary["runs"], summary["failed"], summary["runs_per_second"]
    part = "" if runs == summary["planned"] else f" of {summary['planned']}, {summary['status']}"
    rate = "" if speed is None else f", {speed:.3g} runs per second"
    engines = f" by engine {', '.join(summary['engines'])}" if summary["engines"] else ""
    say(f"{study.name}: {runs} runs{part}, {failed} failed, in {summary['wall_time']:.3g} s{engines}{rate}")
    points = [{path: study.columns[path][i] for path in study.paths} for i in range(len(study.done))]
    best, beyond = within(run, study.ranking(metric), points, BEST)
    columns = [*study.paths, metric]
    figures = [name for name in RESERVES.values() if any(name in own for own in best.values())]
    rows = [
        [str(i), *(f"{study.columns[name][i]:.6g}" for name in columns),
         *(f"{own[name]:.3g}" if name in own else "-" for name in figures)]
        for i, own in best.items()
    ]  # fmt: skip
    if rows:
        say()
        say_table(["run", *columns, *figures], rows, numbers=len(columns) + len(figures))
    if beyond:
        say(f"\nleft out: {beyond} runs beyond a bound of tune.{', tune.'.join(RESERVES)}")
    limits = [(name, path, values) for name, at in summary["limits"].items() for path, values in at.items() if values]
    for i, (name, path, values) in enumerate(limits):
        say("\n" * (i == 0) + f"{name}: {path} = {', '.join(f'{value:.5g}' for value in values)}")
    reasons = [i for i, ok in enumerate(study.done) if not ok]
    if reasons:
        first = reasons[0]
        why = study.columns["error"][first] or study.columns["status"][first]
        say(f"\nrun {first} failed: {why}" + (f" (and {failed - 1} more: sweep.parquet)" if failed > 1 else ""))
