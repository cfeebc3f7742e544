"""`servoctl bench`: runs benchmarks on this machine."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from servoctl.cli.console import ProgressBar, note, say, say_json
from servoctl.cli.exit_code import ExitCode
from servoctl.cli.options import AsJson

if TYPE_CHECKING:
    from servoctl.bench.report import BenchReport, Comparison, Effort, TextTable


FAULTS = "faults"
"""The table of faults; it runs only if it is named."""


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Benchmarks to run; default: all except faults."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A reduced set that takes seconds.")] = False,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Number of processes.")] = 1,
    cap: Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="Longest wall time of one run.")] = 20.0,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="For faults: number of scenarios; default: each row once.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="For faults: seed of the scenarios.")] = 0,
    estimation: Annotated[
        bool, typer.Option("--estimation", help="For faults: the law works with an estimator.")
    ] = False,
    tick: Annotated[
        Literal["both", "python", "c"],
        typer.Option("--tick", help="For faults: what does the ticks."),
    ] = "both",
    as_json: AsJson = False,
) -> None:
    """Run benchmarks, next to published figures and peers."""
    from servoctl.bench.registry import BENCHMARKS, description
    from servoctl.bench.report import Effort

    wanted = list(dict.fromkeys(names or BENCHMARKS))
    _refuse_unknown(wanted, [*BENCHMARKS, FAULTS])
    effort, values = Effort(quick, jobs, cap), {}
    findings: list[Comparison] = []
    for name in wanted:
        note(f"{name}: {'reactions of emulated drives to faults, with times' if name == FAULTS else description(name)}")
        report = _run(name, effort, count, seed, estimation, tick)
        values[name] = report.values
        findings += report.findings
        if not as_json:
            _say_report(report)
    if as_json:
        say_json({**values, "summary": [{**asdict(each), "ratio": each.ratio} for each in findings]})
    elif findings:
        _say_summary(findings)
    if values.get(FAULTS, {}).get("failures"):
        raise typer.Exit(ExitCode.RIG_FAILED)


def _refuse_unknown(wanted: list[str], known: list[str]) -> None:
    from servoctl.errors import ConfigError
    from servoctl.expression.suggest import remedy

    problems = [
        f"servoctl bench: NAME: there is no benchmark {name!r} ({remedy(name, known)})"
        for name in wanted
        if name not in known
    ]
    if problems:
        raise ConfigError(problems)


def _run(name: str, effort: "Effort", count: int | None, seed: int, estimation: bool, tick: str) -> "BenchReport":
    from servoctl.bench.registry import BENCHMARKS

    try:
        with ProgressBar(name) as progress:
            if name == FAULTS:
                from servoctl.bench.faults.table import faults

                ticks = ("python", "c") if tick == "both" else (tick,)
                return faults(effort, progress, count, seed, estimation, ticks)
            return BENCHMARKS[name](effort, progress)
    except KeyboardInterrupt:
        note(f"{name}: interrupted")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _say_report(report: "BenchReport") -> None:
    say(report.title)
    for table in report.tables:
        say(f"\n{table.title}")
        # tables with the same columns have the same widths
        alike = [other for other in report.tables if other.header == table.header]
        lines = [line for other in alike for line in [other.header, *other.rows]]
        _say_table(table, [max(map(len, column)) for column in zip(*lines, strict=True)])
    say()
    for sentence in report.notes:
        say(sentence)


def _say_summary(findings: "Sequence[Comparison]") -> None:
    """Prints our times next to those of others."""
    from servoctl.bench.report import TextTable
    from servoctl.bench.timing import shown

    rows = [
        [f.work, shown(f.ours), f.peer, shown(f.theirs), f"{f.ratio:.3g}", "" if f.aim is None else f"{f.aim:.3g}"]
        for f in findings
    ]
    header = ("task", "servoctl", "peer", "its time", "ratio", "aim")
    say("Summary: medians of this run; ratio: time of the peer divided by ours")
    _say_table(TextTable("", header, rows), [max(map(len, column)) for column in zip(header, *rows, strict=True)])


def _say_table(table: "TextTable", widths: list[int]) -> None:
    """Prints a table; lines wrap only if the terminal is too narrow."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, (title, width) in enumerate(zip(table.header, widths, strict=True)):
        drawn.add_column(title, justify="left" if index < table.left else "right", min_width=width)
    for row in table.rows:
        drawn.add_row(*row)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = sum(widths) + 3 * len(widths)
    console.print(drawn)
