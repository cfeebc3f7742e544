"""Arguments, options, help and output folders that several commands share.

Design: plain text, since importing rich takes longer than all the rest of `--help`.
"""

from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from servoctl.errors import ServoctlError, in_one_line

if TYPE_CHECKING:
    from servoctl.config.overrides import Override


Config = Annotated[str, typer.Argument(metavar="CONFIG", help="A path, or the bare name of a shipped config.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of text.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the config; repeatable."),
]
SetFiles = Annotated[
    list[Path] | None,
    typer.Option("--set-file", metavar="FILE", help="Merge a YAML file into the config, before --set; repeatable."),
]
RunFolderOut = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", file_okay=False, help="The run folder; default: runs/<name>-<date>-<time>."),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", file_okay=False, help="Output folder; default: runs/<name>-<command>-<date>-<time>."),
]
RunFolders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN_DIR", exists=True, file_okay=False, help="Folders written by `run` or `hil`."),
]
EngineName = Literal["auto", "c", "vm", "numpy"]
Classes = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Folder of Python files such as cart.py:Cart that the config of a run names; default: where they were.",
    ),
]


def changes_of(files: list[Path] | None, settings: list[str] | None) -> "list[Override]":
    """The files of `--set-file`, then the arguments of `--set`."""
    return [*(files or ()), *(settings or ())]


def fresh_folder(name: str) -> Path:
    """A folder below `runs` that does not exist yet: `<name>-<date>-<time>`."""
    stem = Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (stem if number == 1 else stem.with_name(f"{stem.name}-{number}") for number in count(1))
    return next(path for path in names if not path.exists())


class GroupedCommands(TyperGroup):
    """Lists each command in the section of its `rich_help_panel`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes one section per group; the descriptions of all sections begin in the same column."""
        width = max(map(len, self.commands))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            title = str(getattr(command, "rich_help_panel", None) or "Commands")
            text = command.get_short_help_str(formatter.width - 6 - width)
            sections.setdefault(title, []).append((name.ljust(width), text))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class CommandWithExample(TyperCommand):
    """A command whose epilog is a command line, shown as its example."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. Its own end is no SystemExit: that comes from the user's code, whatever number it carries.

        Raises:
            ServoctlError: The user's code has ended the program.
        """
        try:
            return super().invoke(ctx)
        except SystemExit as error:
            raise ServoctlError(f"{ctx.command.name}: a plant or protocol ended it: {in_one_line(error)}") from error

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the example in one line, which a person can copy."""
        with formatter.section("Example"):
            formatter.write(f"{'':{formatter.current_indent}}{self.epilog}\n")
