"""How `--help` looks: commands in groups, and an example at the end of each command.

Design: plain text, since importing rich takes longer than all the rest of `--help`.
"""

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

from servoctl.errors import ConfigError, ServoctlError, in_one_line

GONE = {
    ("bench", ""): "benchmarks are a tool of the repository (in a checkout: python -m tests.benchmarks)",
    ("export", "--loop"): "the loop on drives runs in servoctl hil (without --loop, export writes the law)",
    ("export", "--float"): "the exported law computes in double (leave it out)",
    ("tune", "--storage"): "a study is a file of its folder (use --out, and --resume to continue)",
    ("tune", "--compare"): "a search times nothing but itself (leave it out)",
    ("tune", "--no-compare"): "a search times nothing but itself (leave it out)",
}
"""(command, option) -> reason and remedy; the option is empty where the whole command is gone."""


def refuse_gone(command: str, words: Sequence[str]) -> None:
    """Refuses a command line that names something from earlier versions.

    Raises:
        ConfigError: The command, or one of its options, no longer exists.
    """
    for (name, option), text in GONE.items():
        if name == command and (not option or option in [word.partition("=")[0] for word in words]):
            raise ConfigError(f"servoctl {' '.join(filter(None, (name, option)))}: no longer exists: {text}")


class GroupedCommands(TyperGroup):
    """Lists each command in the section of its `rich_help_panel`, and says what serves in place of one that is gone."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command of a line.

        Raises:
            ConfigError: The command, or one of its options, no longer exists.
        """
        refuse_gone(args[0], args[1:])
        return super().resolve_command(ctx, args)

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
