"""Runs the code blocks of a page, one after another, and compares what they print with what the page says.

Design: all blocks of a page run in one folder, as a reader runs them. A block with `title="cart.py"` is a file.
`console` holds commands after `$`, each followed by its output; `...` stands for text that differs from run to run. A
command with `# ends with 2` must end with exit code 2. `python` runs; a `text` block right after it is its output.
`yaml` under `<!-- over: crane -->` is a part of that config. `<!-- not run: reason -->` marks what cannot run here.
"""

import contextlib
import doctest
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]+) -->\n)?^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
ENGINE = re.compile(r"^(engine c( from|:)|the run (starts|stayed|ended) on engine vm).*\n", re.MULTILINE)
"""What a command says about its engine depends on the machine and its caches."""

EXACT = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

os.environ["COLUMNS"] = "120"  # output does not depend on the terminal


class BlockError(AssertionError):
    """A block does not do what its page says."""


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        language: First word after the fence.
        text: Content.
        line: Line of the fence in the page.
        mark: The comment right before the block; "" without one.
        file: Name of the file that the block shows; None for other blocks.
        printed: Output of Python code: the text block right after it; None without one.
    """

    language: str
    text: str
    line: int
    mark: str
    file: str | None
    printed: str | None

    @property
    def reason(self) -> str | None:
        """Why the block does not run here; None where it runs."""
        return self.mark.removeprefix("not run: ") if self.mark.startswith("not run: ") else None

    @property
    def commands(self) -> list[tuple[str, int, str]]:
        """(command, exit code, output) of each command; an sh block gives each line with exit code 0 and no output."""
        if self.language == "sh":
            return [(line, 0, "") for line in self.text.splitlines()]
        commands = []
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            line, _, printed = part.partition("\n")
            command, _, code = line.partition("  # ends with ")
            commands.append((command, int(code or 0), printed))
        return commands


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order; blocks inside lists and tabs are not recognised."""
    page_blocks, matches = [], list(FENCE.finditer(text))
    for match, after in zip_longest(matches, matches[1:]):
        language, _, options = match["info"].partition(" ")
        mark = match["mark"] or ""
        named = re.search(r'title="([^"]+)"', options) or re.search(r"^file: (\S+)$", mark)
        follows = after is not None and after["info"] in ("", "text") and not text[match.end() : after.start()].strip()
        page_blocks.append(
            Block(
                language,
                match["text"],
                text.count("\n", 0, match.start("info")) + 1,
                mark,
                named[1] if named else None,
                after["text"] if after is not None and follows and language == "python" else None,
            )
        )
    return page_blocks


def run(page: str, some: list[Block], folder: Path) -> dict[str, str]:
    """Runs blocks one after another in a folder, except those marked `not run`.

    Returns:
        Text of each `console` block -> the same with what the commands print in place of `...` within a line.

    Raises:
        BlockError: A block does not do what its page says; the message begins with page and line.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    told: dict[str, str] = {}
    paths = sys.path[:]
    try:
        with contextlib.chdir(folder):
            for block in some:
                if block.reason is None:
                    try:
                        told[block.text] = _run(block, names)
                    except BlockError as error:
                        raise BlockError(f"{page}:{block.line}: {error}") from None
    finally:
        if sys.path != paths:
            installed = tuple(path for path in sys.path if path not in paths)
            sys.path[:] = paths
            for name, module in list(sys.modules.items()):
                if str(getattr(module, "__file__", None) or "").startswith(installed):
                    del sys.modules[name]
            _look_again()
    return {shown: full for shown, full in told.items() if full != shown}


def _run(block: Block, names: dict[str, Any]) -> str:
    """Its text; of a `console` block with what the commands print."""
    if block.file:
        Path(block.file).parent.mkdir(parents=True, exist_ok=True)
        Path(block.file).write_text(block.text)
    elif block.language in ("console", "sh"):
        text = block.text
        for command, code, printed in block.commands:
            exit_code, output = execute(command)
            _compare(command, code, printed, exit_code, output)
            here = output.replace(f"{Path.cwd()}/", "")
            text = text.replace(printed, filled(printed, here), 1) if printed.strip() else text
        return text
    elif block.language == "python":
        _compare("the code", 0, block.printed or "", 0, _executed(block.text, names))
    elif block.language == "yaml":
        _part(block.mark.removeprefix("over: "), block.text)
    return block.text


def filled(expected: str, output: str) -> str:
    """What a page says of an output, with the output's own words for `...` within a line."""
    parts = re.split(r"(\.\.\.|\s+)", expected.strip())
    pattern = "".join(_pattern(part) for part in parts)
    found = re.fullmatch(pattern, output.strip(), re.DOTALL)
    if found is None:
        return expected
    lines, words = expected.splitlines(keepends=True), iter(found.groups())
    return "".join(re.sub(r"\.\.\.", lambda mark, line=line: _word(next(words), line, mark[0]), line) for line in lines)


def _pattern(part: str) -> str:
    if part == "...":
        return "(.*?)"
    return (r"\s*\n\s*" if "\n" in part else r"[^\S\n]+") if part.isspace() else re.escape(part)


def _word(word: str, line: str, mark: str) -> str:
    """The text for a mark; the mark is kept where it is a whole line, for text of several lines, and for times."""
    timed = "simulated in" in word or "in total" in line or " second" in word
    return mark if line.strip() == mark or not word or "\n" in word or timed else word


def execute(command: str) -> tuple[int, str]:
    """Exit code and output of a command; servoctl commands run in this process, which saves the imports."""
    program, *words = shlex.split(command)
    if words[:-1] == ["install", "-e"]:
        return _install(Path(words[-1]))
    if program != "servoctl":
        start = {"python": [sys.executable], "pytest": [sys.executable, "-m", "pytest"]}
        checkout = (
            os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])} if "tests." in command else None
        )
        done = subprocess.run(
            [*start.get(program, [program]), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=checkout,
        )
        return done.returncode, done.stdout
    from servoctl.cli import main

    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code: Any = main(words)
        except SystemExit as end:
            code = end.code or 0
    return int(code), ENGINE.sub("", output.getvalue())


def _install(package: Path) -> tuple[int, str]:
    """Does what `pip install -e` does, without a network: the package can be imported, and its entry points found."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    info = package / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {place}" for name, place in points.items())])
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n\n".join(groups) + "\n")
    sys.path.append(str(package.resolve()))
    _look_again()
    return 0, ""


def _look_again() -> None:
    """Makes this process see which packages are installed now."""
    from hil.protocols import registry

    importlib.invalidate_caches()
    registry.entries.cache_clear()
    registry.protocol.cache_clear()


def _executed(code: str, names: dict[str, Any]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "page", "exec"), names)
    return output.getvalue()


def _compare(command: str, code: int, expected: str, exit_code: int, output: str) -> None:
    if exit_code != code:
        raise BlockError(f"{command}: ends with {exit_code}, not {code}:\n{output}")
    if expected.strip() and not doctest.OutputChecker().check_output(expected, output, EXACT):
        raise BlockError(f"{command}: the page says\n{expected}\nit prints\n{output}")


def _part(config: str, text: str) -> None:
    """Checks a part of a config: lays it over a shipped config, as `--set-file` does, and loads the result."""
    from servoctl.config import load_config
    from servoctl.errors import ConfigError

    part = Path("part.yaml")
    part.write_text(text)
    try:
        load_config(config, [part])
    except ConfigError as error:
        raise BlockError(f"over {config}: {error}") from None
