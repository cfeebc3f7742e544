"""`servoctl bench`: benchmarks, run here and now."""

from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.console import ProgressBar, note, say, say_json
from servoctl.cli.options import AsJson
from servoctl.cli.outcome import Outcome

if TYPE_CHECKING:
    from servoctl.bench import BenchReport, Effort, Table


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which benchmarks; none: all of them.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A reduced set, in seconds.")] = False,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Processes that work at the same time.")] = 1,
    cap: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Wall time after which one run is cut short.")
    ] = 20.0,
    as_json: AsJson = False,
) -> None:
    """Run benchmarks: published figures and peers beside our own."""
    from servoctl.bench import BENCHMARKS, Effort, description

    wanted = list(dict.fromkeys(names or BENCHMARKS))
    _refuse_unknown(wanted, list(BENCHMARKS))
    effort, values = Effort(quick, jobs, cap), {}
    for name in wanted:
        note(f"{name}: {description(name)}")
        report = _run(name, effort)
        values[name] = report.values
        if not as_json:
            _say_report(report)
    if as_json:
        say_json(values)


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


def _run(name: str, effort: "Effort") -> "BenchReport":
    from servoctl.bench import BENCHMARKS

    try:
        with ProgressBar(name) as progress:
            return BENCHMARKS[name](effort, progress)
    except KeyboardInterrupt:
        note(f"{name}: interrupted")
        raise typer.Exit(Outcome.INTERRUPTED) from None


def _say_report(report: "BenchReport") -> None:
    say(report.title)
    for table in report.tables:
        say(f"\n{table.title}")
        # as wide as in the other tables with these columns
        alike = [other for other in report.tables if other.header == table.header]
        lines = [line for other in alike for line in [other.header, *other.rows]]
        _say_table(table, [max(map(len, column)) for column in zip(*lines, strict=True)])
    say()
    for sentence in report.notes:
        say(sentence)


def _say_table(table: "Table", widths: list[int]) -> None:
    """Prints a table, folded only where a terminal is too narrow for it."""
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
