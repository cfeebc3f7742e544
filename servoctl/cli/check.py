"""`servoctl check`: validates a config and reports on its model, without a simulation."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.console import Announcer, ExitCode, note, say, say_json, wrapped
from servoctl.cli.options import AsJson, Config, Overrides, SetFiles, changes_of

if TYPE_CHECKING:
    from servoctl.assembly import Run
    from servoctl.check.sections import CheckReport
    from servoctl.config import schema
    from servoctl.config.load import LoadedConfig
    from servoctl.config.overrides import Override
    from servoctl.errors import Finding


def check(
    config: Config,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    no_import: Annotated[bool, typer.Option("--no-import", help="Check only the grammar; import no code.")] = False,
) -> None:
    """Validate a config and report on its model."""
    from servoctl.config import load_config
    from servoctl.errors import ConfigError

    changes = changes_of(set_file, overrides)
    try:
        loaded = load_config(config, changes)
        if no_import:
            if as_json:
                say_json({"grammar": "right"})
            else:
                say(f"{config}: the grammar is correct (nothing was imported)")
            return
        say_imports(loaded.config, note if as_json else say)
        with Announcer(config, "tracing and checking"):
            report = _examine(loaded, changes)
    except ConfigError as error:
        if as_json:
            from servoctl.check.sections import CheckReport

            say_json(CheckReport(findings=error.findings).to_dict())
        raise
    if as_json:
        say_json(report.to_dict())
    else:
        _say_report(report)
    raise typer.Exit(ExitCode.WRONG_INPUT if report.errors else ExitCode.DONE)


def _examine(loaded: "LoadedConfig", changes: "Sequence[Override]") -> "CheckReport":
    """The report on a config whose grammar is right.

    Raises:
        ConfigError: Names, files or classes are wrong.
    """
    from servoctl.assembly.make import make_run
    from servoctl.assembly.values import Problems
    from servoctl.check.report import check as examine
    from servoctl.errors import ConfigError

    problems, values = Problems(loaded), loaded.config
    try:
        run = make_run(loaded, strict=False, problems=problems)
    except ConfigError:
        if values.hil is not None:
            from hil.assembly.settings import check_rig

            check_rig(loaded, problems)
        raise
    report = examine(run)
    if values.tune is not None and not report.errors:
        report.findings += _search_problems(run, changes)
    if values.hil is not None:
        _check_rig(run, report)
    return report


def say_imports(values: "schema.Config", tell: Callable[[str], None]) -> None:
    """Prints the classes that a config imports, before they run with the rights of the user."""
    from servoctl.config.load import paths_by_field

    for path in dict.fromkeys(path for field, path in paths_by_field(values).items() if field.endswith(".class")):
        tell(f"imports {path}")


def _search_problems(run: "Run", changes: "Sequence[Override]") -> "list[Finding]":
    """What is wrong with the section on the search, which a run does not look at: no error if others are changed."""
    from servoctl.errors import ConfigError
    from servoctl.study.problem import read_problem

    try:
        read_problem(run)
    except ConfigError as error:
        if all(change.startswith("tune") for change in changes if isinstance(change, str)):
            return error.findings
        more = " (`tune` would refuse it with this --set)"
        return [replace(each, sentence=each.sentence + more, severity="warning") for each in error.findings]
    return []


def _check_rig(run: "Run", report: "CheckReport") -> None:
    """Adds a section on the drives, or their errors, to the report."""
    from hil.assembly.prepare import prepare
    from hil.session.notes import describe
    from servoctl.check.sections import Section
    from servoctl.errors import CompileError, ConfigError, Finding

    assert run.loaded is not None
    try:
        lines = describe(prepare(run.loaded, engine="vm"))
    except ConfigError as error:
        report.findings += [finding for finding in error.findings if str(finding) not in report.errors]
        return
    except CompileError as error:
        report.findings.append(Finding("hil", f"not checked: {str(error).removeprefix('hil: ')}"))
        return
    report.add(Section("drives", "drives", lines, lines))


def _say_report(report: "CheckReport") -> None:
    for title, lines in report.sections:
        say(f"\n{title}")
        for line in lines:
            say(wrapped(f"  {line}"))
    for warning in report.warnings:
        note(f"warning: {warning}")
    for error in report.errors:
        note(f"error: {error}")
