"""`servoctl sweep`: runs a config many times over ranges of its numbers."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from servoctl.cli.console import ExitCode, Phases, ProgressBar, announced, note, say, say_json, say_table
from servoctl.cli.options import (
    AsJson,
    ClusterAddress,
    Config,
    Jobs,
    ManyRunsEngine,
    Overrides,
    SetFiles,
    changes_of,
    connected,
    study_folder,
)

if TYPE_CHECKING:
    from servoctl.assembly import Run
    from servoctl.sweep import Study

BEST = 5  # number of runs in the printed table


def sweep(
    config: Config,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=LO:HI:N[:log]",
            help="A number of the config, its range, and the count of values; log: equal ratios; repeatable.",
        ),
    ] = None,
    sample: Annotated[
        Literal["grid", "lhs", "monte-carlo"],
        typer.Option(help="Every combination, a Latin hypercube, or uniform random points."),
    ] = "grid",
    samples: Annotated[int, typer.Option(metavar="K", help="Number of runs, unless --sample is grid.")] = 100,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Seed of the random points.")] = 0,
    jobs: Jobs = 1,
    cluster: ClusterAddress = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the sweep in --out.")] = False,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="Metric of the table and the picture; default: rms_violation.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Output folder; default: runs/<name>-sweep-<date>-<time>.")
    ] = None,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    engine: ManyRunsEngine = "auto",
    as_json: AsJson = False,
) -> None:
    """Run a config many times over ranges of its numbers."""
    from servoctl.assembly import load
    from servoctl.sweep import RowStore, identity_of, make_folder, plan, points_of, read_varies, save
    from servoctl.sweep import sweep as run_sweep
    from servoctl.sweep.store import SWEEP

    phases = Phases()
    with announced(config, "loading and tracing", always=engine == "c"):
        loaded = load(config, changes_of(set_file, overrides), engine=engine)
    phases.end("loading and tracing")
    varies = read_varies(vary or (), loaded)
    shown = plan(loaded, metric)
    folder = study_folder(f"{loaded.name}-sweep", out, resume, SWEEP.file)
    points = points_of(varies, sample, samples, seed)
    identity = identity_of(loaded, varies, sample, seed, len(points))
    with connected(cluster, jobs) as workers, RowStore(folder, identity, len(points), resume) as store:
        make_folder(folder)
        with ProgressBar(loaded.name, "compiling and starting the runs") as progress:
            study = run_sweep(loaded, varies, points, sample, seed, jobs, progress, workers, store)
    for sentence in filter(None, [loaded.engine_warning, study.broken, study.warning]):
        note(f"warning: {sentence}")
    best, examined = _best(loaded, study, shown)
    study = study.with_figures(examined)
    phases.end("limits", "compiling and simulating", share=study.wall_time)
    save(study, folder, shown)
    phases.end("writing")
    summary = study.summary()
    if as_json:
        say_json(summary)
    else:
        _say_study(study, summary, shown, best, len(examined) - len(best))
        say(f"\n{phases}")
        say(f"\nwritten to {quote(str(folder))}: sweep.parquet, sweep.png, summary.json")
        if summary["runs"] < summary["planned"]:
            say(f"next: the same command with --out {quote(str(folder))} --resume")
    if summary["status"] == "interrupted":
        raise typer.Exit(ExitCode.INTERRUPTED)
    bad = study.broken is not None or summary["failed"] == summary["runs"]
    raise typer.Exit(ExitCode.BAD_STATUS if bad else ExitCode.DONE)


def _best(run: "Run", study: "Study", metric: str) -> tuple[list[int], dict[int, dict[str, float]]]:
    """The best runs that keep the bounds of `tune:` on stability, and the figures of the runs that were examined."""
    from servoctl.sweep.study import within

    points = [{path: study.columns[path][i] for path in study.paths} for i in range(len(study.done))]
    return within(run, study.ranking(metric), points, BEST)


def _say_study(study: "Study", summary: dict[str, Any], metric: str, best: list[int], beyond: int) -> None:
    runs, failed, speed = summary["runs"], summary["failed"], summary["runs_per_second"]
    part = "" if runs == summary["planned"] else f" of {summary['planned']}, {summary['status']}"
    rate = "" if speed is None else f", {speed:.3g} runs per second"
    engines = f" by engine {', '.join(summary['engines'])}" if summary["engines"] else ""
    say(f"{study.name}: {runs} runs{part}, {failed} failed, in {summary['wall_time']:.3g} s{engines}{rate}")
    _say_best(study, metric, best, beyond)
    limits = [(name, path, values) for name, at in summary["limits"].items() for path, values in at.items() if values]
    for i, (name, path, values) in enumerate(limits):
        say("\n" * (i == 0) + f"{name}: {path} = {', '.join(f'{value:.5g}' for value in values)}")
    reasons = [i for i, ok in enumerate(study.done) if not ok]
    if reasons:
        first = reasons[0]
        why = study.columns["error"][first] or study.columns["status"][first]
        say(f"\nrun {first} failed: {why}" + (f" (and {failed - 1} more: sweep.parquet)" if failed > 1 else ""))


def _say_best(study: "Study", metric: str, best: list[int], beyond: int) -> None:
    """Prints the best runs with their stability figures."""
    from servoctl.config.tune import RESERVES

    columns = [*study.paths, metric]
    names = [name for name in RESERVES.values() if name in study.columns]
    rows = [
        [str(i), *(f"{study.columns[name][i]:.6g}" for name in columns),
         *("-" if (figure := study.columns[name][i]) is None else f"{figure:.3g}" for name in names)]
        for i in best
    ]  # fmt: skip
    if rows:
        say()
        say_table(["run", *columns, *names], rows, numbers=len(columns) + len(names))
    if beyond:
        runs = "1 run" if beyond == 1 else f"{beyond} runs"
        say(f"\nleft out: {runs} beyond a bound of tune.{', tune.'.join(RESERVES)}")
