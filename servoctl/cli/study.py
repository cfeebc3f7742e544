"""`servoctl sweep`: runs a config over ranges of its numbers. `servoctl tune`: searches them for the best runs."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from servoctl.cli.console import Announcer, ExitCode, Phases, note, number, say, say_json, say_table
from servoctl.cli.options import (
    AsJson,
    CommandWithExample,
    Config,
    EngineName,
    Out,
    Overrides,
    SetFiles,
    changes_of,
    fresh_folder,
)
from servoctl.errors import ConfigError, counted

if TYPE_CHECKING:
    from servoctl.assembly import Run
    from servoctl.study.batch import Machine
    from servoctl.study.cluster import Cluster
    from servoctl.study.sweep import Study
    from servoctl.study.trials import Refinement, Trial, Tuning

BEST = 5  # number of runs in the printed table
SAMPLES = 100  # number of runs of random points
ROUNDING = 1e-6  # [%] a metric of the best trial that differs by less is called unchanged

Jobs = Annotated[int, typer.Option(metavar="J", min=1, help="Number of CPU cores to use.")]
ClusterAddress = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="tcp://host:port of a Dask scheduler whose workers make the runs."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the sweep or search in --out.")]
ManyRunsEngine = Annotated[
    EngineName,
    typer.Option("--engine", help="auto compiles to C if that pays for all runs together; the others as in run."),
]


class TuneCommand(CommandWithExample):
    """The command `tune`, whose help ends with the table of metrics."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the example, then the metrics that a search can minimise or constrain."""
        from servoctl.run_folder.metrics import METRICS

        super().format_epilog(ctx, formatter)
        with formatter.section("Metrics of tune.objective.minimise and tune.constraints"):
            formatter.write_dl([(metric.form, f"{metric.meaning} ({metric.use})") for metric in METRICS])


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
    samples: Annotated[int, typer.Option(metavar="K", help="Number of runs, unless --sample is grid.")] = SAMPLES,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Seed of the random points.")] = 0,
    jobs: Jobs = 1,
    cluster: ClusterAddress = None,
    resume: Resume = False,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="Metric of the table and the picture; default: rms_violation.")
    ] = None,
    out: Out = None,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    engine: ManyRunsEngine = "auto",
    as_json: AsJson = False,
) -> None:
    """Run a config many times over ranges of its numbers."""
    from servoctl.assembly import load
    from servoctl.study import sweep as sweeps
    from servoctl.study.points import points_of, read_varies
    from servoctl.study.store import RowStore
    from servoctl.study.sweep_files import save

    phases = Phases()
    with Announcer(config, "loading and tracing", always=engine == "c"):
        loaded = load(config, changes_of(set_file, overrides), engine=engine)
    phases.end("loading and tracing")
    varies = read_varies(vary or (), loaded)
    shown = sweeps.plan(loaded, metric)
    folder = _folder(f"{loaded.name}-sweep", out, resume, RowStore.file)
    if sample == "grid" and (samples, seed) != (SAMPLES, 0):
        note("warning: --samples and --seed have no effect on a grid (add --sample lhs or monte-carlo)")
    points = points_of(varies, sample, samples, seed)
    identity = sweeps.identity(loaded, varies, sample, seed, len(points))
    with (
        _workers(cluster, jobs) as workers,
        RowStore(folder, identity, len(points), resume) as store,
        Announcer(loaded.name, "compiling and starting the runs") as announcer,
    ):
        study = sweeps.sweep(loaded, varies, points, sample, seed, workers, announcer.progress, store)
    _warn(loaded, study.broken)
    study = study.examined(*sweeps.within(loaded, study.ranking(shown), points, BEST))
    phases.end("limits", "compiling and simulating", share=study.wall_time)
    names = save(study, folder, shown)
    phases.end("writing")
    summary = study.summary()
    if as_json:
        say_json(summary)
    else:
        _say_study(study, summary, shown)
        say(f"\n{phases}")
        _say_folder(summary, folder, names)
    _end(summary, bad=summary["failed"] == summary["runs"])


def tune(
    config: Config,
    out: Out = None,
    trials: Annotated[int | None, typer.Option(metavar="N", min=1, help="Replaces tune.trials.")] = None,
    refine: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Replaces tune.refine: at most N trials near the best one."),
    ] = None,
    jobs: Jobs = 1,
    cluster: ClusterAddress = None,
    resume: Resume = False,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    engine: ManyRunsEngine = "auto",
    as_json: AsJson = False,
) -> None:
    """Search a config's numbers for the best runs."""
    from servoctl.assembly.make import make_run
    from servoctl.config import load_config
    from servoctl.study.problem import read_problem
    from servoctl.study.search import require_packages
    from servoctl.study.search import tune as run_tune
    from servoctl.study.search_files import save
    from servoctl.study.trials import TrialStore

    require_packages()
    lengths = {"trials": trials, "refine": refine}
    phases = Phases()
    with Announcer(config, "loading and tracing", always=engine == "c"):
        written = load_config(config, changes_of(set_file, overrides))
        if written.config.tune is not None:  # else the search says that it is missing
            written = written.with_values({f"tune.{name}": n for name, n in lengths.items() if n is not None})
        loaded = make_run(written, engine)
        problem = read_problem(loaded)
    phases.end("loading and tracing")
    folder = _folder(f"{loaded.name}-tune", out, resume, TrialStore.file)
    waiting = "compiling and running the baseline"
    with _workers(cluster, jobs) as workers, Announcer(loaded.name, waiting) as announcer:
        tuning = run_tune(problem, folder, workers, resume, announcer.progress)
    phases.end("compiling and refining" if problem.tune.refine else "compiling", "searching", share=tuning.wall_time)
    tuning = replace(tuning, total_time=phases.total)
    _warn(loaded, tuning.broken)
    names = save(tuning, folder)
    phases.end("writing")
    summary = tuning.summary() | {"times": phases.seconds}
    if as_json:
        say_json(summary)
    else:
        _say_tuning(tuning, summary, phases)
        after = "" if tuning.best is None else f"servoctl run {quote(str(folder / 'best.yaml'))}"
        _say_folder(summary, folder, [TrialStore.file, *names], after)
    _end(summary, bad=tuning.best is None)


def _workers(address: str | None, jobs: int) -> "Cluster | Machine":
    """The cluster or the processes of this machine that make the runs.

    Raises:
        ConfigError: No scheduler answers at the address, or `--jobs` is given too.
    """
    if address is None:
        from servoctl.study.batch import Machine

        return Machine(jobs)
    if jobs > 1:
        raise ConfigError(
            f"--jobs {jobs}: given with --cluster, which has as many workers as were started (leave it out)"
        )
    from servoctl.study.cluster import Cluster

    return Cluster(address)


def _folder(name: str, out: Path | None, resume: bool, file: str) -> Path:
    """The folder of a sweep or a search.

    Args:
        name: Beginning of the folder's name.
        out: The argument of `--out`.
        resume: Whether the folder must exist.
        file: Name of the file that an interrupted study leaves.

    Raises:
        ConfigError: `resume` without `--out`; the message names the newest folder.
    """
    if out is not None or not resume:
        return out or fresh_folder(name)
    folders = sorted(Path("runs").glob(f"{name}-*/{file}"), key=lambda path: path.stat().st_mtime)
    hint = f"the newest: --out {folders[-1].parent}" if folders else f"no folder matches runs/{name}-*"
    raise ConfigError(f"--resume: needs --out ({hint})")


def _warn(loaded: "Run", broken: str | None) -> None:
    for sentence in filter(None, [loaded.engine_warning, broken]):
        note(f"warning: {sentence}")


def _say_folder(summary: dict[str, Any], folder: Path, names: Sequence[str], after: str = "") -> None:
    """Prints what is in the folder of a study, and what to do next."""
    say(f"\nwritten to {quote(str(folder))}: {', '.join(names)}")
    if summary["status"] != "done":
        after = f"the same command with --out {quote(str(folder))} --resume"
    if after:
        say(f"next: {after}")


def _end(summary: dict[str, Any], bad: bool) -> NoReturn:
    if summary["status"] == "interrupted":
        raise typer.Exit(ExitCode.INTERRUPTED)
    raise typer.Exit(ExitCode.BAD_STATUS if bad or summary["status"] == "failed" else ExitCode.DONE)


def _say_study(study: "Study", summary: dict[str, Any], metric: str) -> None:
    runs, failed, speed = summary["runs"], summary["failed"], summary["runs_per_second"]
    part = "" if runs == summary["planned"] else f" of {summary['planned']}, {summary['status']}"
    rate = "" if speed is None else f", {speed:.3g} runs per second"
    engines = f" by engine {', '.join(summary['engines'])}" if summary["engines"] else ""
    say(f"{study.name}: {counted(runs, 'run')}{part}, {failed} failed, in {summary['wall_time']:.3g} s{engines}{rate}")
    _say_best_runs(study, metric)
    if lacking := int(study.lacks(metric).sum()):
        say(f"\nno value of {metric}: {counted(lacking, 'run')}")
    limits = [(name, path, values) for name, at in summary["limits"].items() for path, values in at.items() if values]
    for i, (name, path, values) in enumerate(limits):
        say("\n" * (i == 0) + f"{name}: {path} = {', '.join(f'{value:.5g}' for value in values)}")
    reasons = [i for i, ok in enumerate(study.done) if not ok]
    if reasons:
        first = reasons[0]
        why = study.columns["error"][first] or study.columns["status"][first]
        say(f"\nrun {first} failed: {why}" + (f" (and {failed - 1} more: sweep.parquet)" if failed > 1 else ""))


def _say_best_runs(study: "Study", metric: str) -> None:
    from servoctl.config.tune import RESERVES

    columns = [*study.paths, metric]
    names = [name for name in RESERVES.values() if name in study.columns]
    rows = [
        [str(i), *(f"{study.columns[name][i]:.6g}" for name in columns),
         *("-" if (figure := study.columns[name][i]) is None else f"{figure:.3g}" for name in names)]
        for i in study.within or study.beyond[:BEST]
    ]  # fmt: skip
    if rows:
        say()
        titles = [
            f"{name} [{unit}]" if unit else name for name, unit in ((name, study.units.get(name)) for name in columns)
        ]
        say_table(["run", *titles, *names], rows, numbers=len(columns) + len(names))
    beyond, bounds = len(study.beyond), f"a bound of tune.{', tune.'.join(RESERVES)}"
    if beyond:
        runs = counted(beyond, "run")
        say(f"\nleft out: {runs} beyond {bounds}" if study.within else f"\nall of these are beyond {bounds}")


def _say_tuning(tuning: "Tuning", summary: dict[str, Any], phases: Phases) -> None:
    say(_headline(tuning, phases.total))
    say(str(phases))
    if (rate := summary["trials_per_second"]) is not None:
        say(f"{rate:.3g} trials ({summary['runs_per_second']:.3g} runs) per second")
    if tuning.refinement is not None:
        say(_refined(tuning.refinement))
    if tuning.best is not None:
        _say_best_trial(tuning, tuning.best)
    else:
        _say_nothing_feasible(tuning)


def _headline(tuning: "Tuning", total: float) -> str:
    counts = [f"{count} {status}" for status, count in tuning.counts().items() if count and status != "done"]
    planned = "" if tuning.status == "done" else f" of {tuning.problem.tune.trials}, {tuning.status}"
    several = f"{counted(len(tuning.problem.scenarios) + len(tuning.problem.tune.sensitivity), 'run')} each, "
    engine = f" by engine {tuning.engine}" if tuning.engine else ""
    return (
        f"{tuning.problem.run.name}: {counted(len(tuning.trials), 'trial')}{planned}, {several}"
        f"{', '.join([*counts, '']) if counts else ''}in {total:.3g} s{engine}"
    )


def _refined(refinement: "Refinement") -> str:
    """The result of a refinement, in one line."""
    if refinement.why is not None:
        return f"refined: no ({refinement.why})"
    held = f", {', '.join(refinement.held)} unchanged" if refinement.held else ""
    return f"refined: from trial {refinement.start} in {refinement.steps} steps{held}"


def _say_best_trial(tuning: "Tuning", best: "Trial") -> None:
    from servoctl.config.tune import RESERVES

    problem, baseline, after = tuning.problem, tuning.baseline, best.evaluation
    front = f" of a front of {len(tuning.front)}" if problem.several else ""
    rows = [
        [path, tuning.unit(path), number(problem.baseline.get(path)), number(value), ""]
        for path, value in best.at.items()
    ]
    for i, name in enumerate(problem.objectives):
        rows.append(_compared(name, tuning, baseline.values[i] if baseline.values else None, after.values[i]))
    for name in dict.fromkeys([*problem.weights, *problem.bounds, *RESERVES.values()]):
        if name in after.metrics:
            rows.append(_compared(name, tuning, baseline.metrics.get(name), after.metrics[name]))
    count = len(problem.scenarios)
    over = f", the {problem.tune.objective.over} of {count} plants" if count > 1 else ""
    say(f"\nbest: trial {best.number}{front}{over}\n")
    say_table(["", "unit", "baseline", "best", "change"], rows, numbers=3)
    if "gain_margin" not in after.metrics and "gain_margin" in problem.bounds:
        say("\ngain_margin: none: the loop cannot be linearised at the start")
    if baseline.status != "done":
        say(f"\nthe baseline (the config without changes) is {baseline.status}: {baseline.reason}")
    elif not problem.several and baseline.values[0] < after.values[0]:
        say("\nthe baseline is better than every trial (widen tune.search, or use more trials)")


def _compared(name: str, tuning: "Tuning", before: float | None, after: float) -> list[str]:
    """One line of the table: an objective or a metric with its bound, before and after."""
    from servoctl.config.tune import RESERVES
    from servoctl.run_folder.metrics import greatest_is_best

    bound = tuning.problem.bounds.get(name)
    side = "at least" if greatest_is_best(name) else "at most"
    change = ""
    if before and isfinite(before + after):  # a drift may be negative
        times, percent = before > 0.0 and after / before >= 10.0, 100 * (after - before) / abs(before)
        same = "unchanged" if abs(percent) < ROUNDING else f"{percent:+.3g} %"
        change = f"{after / before:.3g} times" if times else same
    unit = tuning.unit(name)
    if name == RESERVES["share"]:  # of the gains that are stable
        unit, bound, before, after = "%", *(None if x is None else 100.0 * x for x in (bound, before)), 100.0 * after
    label = name if bound is None else f"{name} ({side} {bound:g})"
    return [label, unit, number(before), number(after), change]


def _say_nothing_feasible(tuning: "Tuning") -> None:
    miss = tuning.nearest_miss
    say("\nno trial is feasible")
    if miss is not None:
        say(f"nearest miss: trial {miss.number}: {miss.evaluation.reason}, at")
        say_table(["", "unit", "value"], [[p, tuning.unit(p), number(v)] for p, v in miss.at.items()], numbers=1)
    reasons = [trial.evaluation.reason or "" for trial in tuning.trials if not trial.evaluation.excess]
    for reason in sorted(set(reasons), key=reasons.count, reverse=True)[:3]:
        say(f"{counted(reasons.count(reason), 'trial')}: {reason}")
