"""`servoctl tune`: searches the numbers of a config for the best simulated runs."""

from dataclasses import replace
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servoctl.cli.console import ExitCode, Phases, ProgressBar, announced, note, say, say_json, say_table
from servoctl.cli.options import (
    AsJson,
    ClusterAddress,
    CommandWithExample,
    Config,
    Jobs,
    ManyRunsEngine,
    Overrides,
    SetFiles,
    changes_of,
    connected,
    study_folder,
)
from servoctl.cli.run import number

if TYPE_CHECKING:
    from servoctl.tune import Refinement, Trial, Tuning


class TuneCommand(CommandWithExample):
    """The command `tune`, whose help ends with the table of metrics."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the example, then the metrics that a search can minimise or constrain."""
        from servoctl.sweep.metrics import METRICS

        super().format_epilog(ctx, formatter)
        with formatter.section("Metrics of tune.objective.minimise and tune.constraints"):
            formatter.write_dl([(metric.form, f"{metric.meaning} ({metric.use})") for metric in METRICS])


def tune(
    config: Config,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Output folder; default: runs/<name>-tune-<date>-<time>.")
    ] = None,
    trials: Annotated[int | None, typer.Option(metavar="N", min=1, help="Replaces tune.trials.")] = None,
    refine: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Replaces tune.refine: at most N trials near the best one."),
    ] = None,
    jobs: Jobs = 1,
    cluster: ClusterAddress = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the study in --out.")] = False,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    engine: ManyRunsEngine = "auto",
    as_json: AsJson = False,
) -> None:
    """Search a config's numbers for the best runs."""
    from servoctl.assembly import load
    from servoctl.tune import read_problem, save
    from servoctl.tune import tune as run_tune
    from servoctl.tune.trials import STUDY
    from servoctl.tune.tuner import require_packages

    require_packages()
    lengths = {"trials": trials, "refine": refine}
    changes = changes_of(set_file, overrides)
    changes += [f"tune.{name}={value}" for name, value in lengths.items() if value is not None]
    phases = Phases()
    with announced(config, "loading and tracing", always=engine == "c"):
        loaded = load(config, changes, engine=engine)
        problem = read_problem(loaded)
    phases.end("loading and tracing")
    folder = study_folder(f"{loaded.name}-tune", out, resume, STUDY.file)
    waiting = "compiling and running the baseline"
    with connected(cluster, jobs) as workers, ProgressBar(loaded.name, waiting) as progress:
        tuning = run_tune(problem, folder, jobs, resume, workers, progress)
    phases.end("compiling and refining" if problem.tune.refine else "compiling", "searching", share=tuning.wall_time)
    tuning = replace(tuning, total_time=phases.total)
    for sentence in filter(None, [loaded.engine_warning, tuning.broken]):
        note(f"warning: {sentence}")
    names = save(tuning, folder)
    phases.end("writing")
    if as_json:
        say_json(tuning.summary() | {"times": phases.seconds})
    else:
        _say(tuning, phases)
        say(f"\nwritten to {quote(str(folder))}: {STUDY.file}, {', '.join(names)}")
        _say_next(tuning, folder)
    if tuning.status == "interrupted":
        raise typer.Exit(ExitCode.INTERRUPTED)
    bad = tuning.broken is not None or tuning.best is None
    raise typer.Exit(ExitCode.BAD_STATUS if bad else ExitCode.DONE)


def _say(tuning: "Tuning", phases: Phases) -> None:
    say(_headline(tuning, phases.total))
    say(str(phases))
    speed = _speed(tuning.summary())
    if speed:
        say(speed)
    if tuning.refinement is not None:
        say(_refined(tuning.refinement))
    if tuning.best is not None:
        _say_best(tuning, tuning.best)
    else:
        _say_nothing_feasible(tuning)


def _headline(tuning: "Tuning", total: float) -> str:
    counts = [f"{count} {status}" for status, count in tuning.counts().items() if count and status != "done"]
    planned = "" if tuning.status == "done" else f" of {tuning.problem.tune.trials}, {tuning.status}"
    several = f"{len(tuning.problem.scenarios) + len(tuning.problem.tune.sensitivity)} runs each, "
    engine = f" by engine {tuning.engine}" if tuning.engine else ""
    return (
        f"{tuning.problem.run.name}: {len(tuning.trials)} trials{planned}, {several}"
        f"{', '.join([*counts, '']) if counts else ''}in {total:.3g} s{engine}"
    )


def _refined(refinement: "Refinement") -> str:
    """The result of a refinement, in one line."""
    if refinement.why is not None:
        return f"refined: no ({refinement.why})"
    held = f", {', '.join(refinement.held)} unchanged" if refinement.held else ""
    return f"refined: from trial {refinement.start} in {refinement.steps} steps{held}"


def _speed(summary: dict[str, Any]) -> str:
    """Trials and runs per second; empty without trials."""
    rate, runs = summary["trials_per_second"], summary["runs_per_second"]
    return "" if rate is None else f"{rate:.3g} trials ({runs:.3g} runs) per second"


def _say_best(tuning: "Tuning", best: "Trial") -> None:
    from servoctl.config.tune import RESERVES

    problem, baseline, after = tuning.problem, tuning.baseline, best.evaluation
    front = f" of a front of {len(tuning.front)}" if problem.several else ""
    rows = [
        [path, tuning.unit(path), _number(problem.baseline.get(path)), _number(value), ""]
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
    from servoctl.sweep.metrics import greatest_is_best

    bound = tuning.problem.bounds.get(name)
    side = "at least" if greatest_is_best(name) else "at most"
    change = f"{100 * (after / before - 1):+.3g} %" if before and isfinite(before + after) else ""
    unit = tuning.unit(name)
    if name == RESERVES["share"]:  # of the gains that are stable
        unit, bound, before, after = "%", *(None if x is None else 100.0 * x for x in (bound, before)), 100.0 * after
    label = name if bound is None else f"{name} ({side} {bound:g})"
    return [label, unit, _number(before), _number(after), change]


def _number(value: Any) -> str:
    return str(value) if isinstance(value, str) else number(value)


def _say_nothing_feasible(tuning: "Tuning") -> None:
    miss = tuning.nearest_miss
    say("\nno trial is feasible")
    if miss is not None:
        say(f"nearest miss: trial {miss.number}: {miss.evaluation.reason}, at")
        say_table(["", "unit", "value"], [[p, tuning.unit(p), _number(v)] for p, v in miss.at.items()], numbers=1)
        return
    reasons = [trial.evaluation.reason or "" for trial in tuning.trials]
    for reason in sorted(set(reasons), key=reasons.count, reverse=True)[:3]:
        say(f"{reasons.count(reason)} trials: {reason}")


def _say_next(tuning: "Tuning", folder: Path) -> None:
    if tuning.status != "done":
        say(f"next: the same command with --out {quote(str(folder))} --resume")
    elif tuning.best is not None:
        say(f"next: servoctl run {quote(str(folder / 'best.yaml'))}")
