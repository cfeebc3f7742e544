"""Code blocks of a page: what they are, and what happens when they run one after another.

Design: a page's blocks share one folder, as a reader's do. A block with `title="cart.py"` is a file; `console` holds
commands behind `$` and, where anything follows, what they print, with `...` for what differs from run to run; a
command that ends in `# ends with 2` must; `python` runs, and a `text` block right behind it is what it prints; `yaml`
under `<!-- over: crane -->` is a part of that config. `<!-- not run: reason -->` stands before what cannot run here.
"""

import contextlib
import doctest
import io
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]+) -->\n)?^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
EXACT = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


os.environ["COLUMNS"] = "120"  # what is printed does not depend on the terminal


class BlockError(AssertionError):
    """A block does not do what its page says."""


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        language: Its first word.
        text: What stands in it.
        line: Line of its fence in the page.
        mark: The comment right before it, "" without one.
        file: The file that it is, None for others.
        printed: Of Python code: the text block right behind it.
    """

    language: str
    text: str
    line: int
    mark: str
    file: str | None
    printed: str | None

    @property
    def reason(self) -> str | None:
        """Why it does not run here; None where it does."""
        return self.mark.removeprefix("not run: ") if self.mark.startswith("not run: ") else None

    @property
    def commands(self) -> list[tuple[str, int, str]]:
        """Of a console: each command, the code that it ends with, and what it prints; of sh: each line, 0, and ""."""
        if self.language == "sh":
            return [(line, 0, "") for line in self.text.splitlines()]
        said = []
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            line, _, printed = part.partition("\n")
            command, _, code = line.partition("  # ends with ")
            said.append((command, int(code or 0), printed))
        return said


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order; fences of others inside lists and tabs are not seen."""
    found, matches = [], list(FENCE.finditer(text))
    for match, after in zip(matches, [*matches[1:], None], strict=True):
        language, _, options = match["info"].partition(" ")
        mark = match["mark"] or ""
        named = re.search(r'title="([^"]+)"', options) or re.search(r"^file: (\S+)$", mark)
        behind = after is not None and after["info"] in ("", "text") and not text[match.end() : after.start()].strip()
        found.append(
            Block(
                language,
                match["text"],
                text.count("\n", 0, match.start("info")) + 1,
                mark,
                named[1] if named else None,
                after["text"] if after is not None and behind and language == "python" else None,
            )
        )
    return found


def run(page: str, some: list[Block], folder: Path) -> None:
    """Runs blocks one after another in a folder; those with a reason not to are left out.

    Raises:
        BlockError: One of them does something else than its page says; page and line stand in front.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for block in some:
            if block.reason is None:
                try:
                    _run(block, names)
                except BlockError as error:
                    raise BlockError(f"{page}:{block.line}: {error}") from None


def _run(block: Block, names: dict[str, Any]) -> None:
    if block.file:
        Path(block.file).write_text(block.text)
    elif block.language in ("console", "sh"):
        for command, code, printed in block.commands:
            _compare(command, code, printed, *execute(command))
    elif block.language == "python":
        _compare("the code", 0, block.printed or "", 0, _executed(block.text, names))
    elif block.language == "yaml":
        _part(block.mark.removeprefix("over: "), block.text)


def execute(command: str) -> tuple[int, str]:
    """A command's exit code and all that it prints; servoctl's own run in this process, which saves their imports."""
    program, *words = shlex.split(command)
    if program != "servoctl":
        start = {"servoctl": [sys.executable, "-m", "servoctl"], "pytest": [sys.executable, "-m", "pytest"]}
        done = subprocess.run(
            [*start.get(program, [program]), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return done.returncode, done.stdout
    from servoctl.cli import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code: Any = main(words)
        except SystemExit as end:
            code = end.code or 0
    return int(code), said.getvalue()


def _executed(code: str, names: dict[str, Any]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "page", "exec"), names)
    return said.getvalue()


def _compare(what: str, code: int, printed: str, ended: int, said: str) -> None:
    if ended != code:
        raise BlockError(f"{what}: ends with {ended}, not {code}:\n{said}")
    if printed.strip() and not doctest.OutputChecker().check_output(printed, said, EXACT):
        raise BlockError(f"{what}: the page says\n{printed}\nit prints\n{said}")


def _part(config: str, text: str) -> None:
    """Checks a part of a config by the grammar, with the rest of a shipped one around it."""
    from servoctl.config import load_config
    from servoctl.errors import ConfigError

    part = yaml.safe_load(text)
    settings = [f"{section}.{key}={json.dumps(value)}" for section, of in part.items() for key, value in of.items()]
    try:
        load_config(config, settings)
    except ConfigError as error:
        raise BlockError(f"over {config}: {error}") from None
