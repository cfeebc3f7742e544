"""Wrong configs and plants: `refusals/NAME.txt` has, a case a line, what is changed, and what is said about it.

old text  ->  new text  =>  part of the sentence     several changes, and several sentences, follow each other
PATH=VALUE  +  PATH=VALUE  =>  ..                    the same by overrides
# what the cases below have in common

\\n stands for a new line.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from servoctl.config import load_config
from servoctl.errors import ConfigError
from tests.faces import answer


@dataclass(frozen=True)
class Base:
    """A good config, of which a case makes a wrong one."""

    text: str
    file: str = "c.yaml"
    beside: Mapping[str, str] = field(default_factory=dict)  # name of a file in its folder -> text
    command: tuple[str, ...] = ("run",)  # `servoctl ..`; (): only the grammar is checked, the plant does not exist

    @property
    def texts(self) -> dict[str, str]:
        """Name of a file in its folder -> text, the config first."""
        return {self.file: self.text, **self.beside}

    def write(self, folder: Path, change: Callable[[str], str] = str) -> str:
        """Writes its files into a folder, each with a change; returns the name of the config."""
        for name, text in self.texts.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(change(text), encoding="utf-8")
        return self.file


@dataclass(frozen=True)
class Case:
    """What is changed, and the sentences that are said."""

    changes: tuple[tuple[str, str], ...]
    overrides: tuple[str, ...]
    sentences: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The text with all changes that it has a place for."""
        for old, new in self.changes:
            text = text.replace(old, new)
        return text


def table(name: str) -> list[tuple[str, list[str], list[str]]]:
    """The lines of a file: what they have in common, the columns before `=>`, and the sentences behind it."""
    title, rows = name, []
    for line in (Path(__file__).parent / "refusals" / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            title = line[2:]
            continue
        left, *sentences = line.replace("\\n", "\n").split("  =>  ")
        rows.append((title, left.split("  ->  "), sentences))
    return rows


def cases(name: str) -> list[Any]:
    """The cases of a file, for `pytest.mark.parametrize`."""
    found = []
    for number, (title, words, sentences) in enumerate(table(name), 1):
        overrides = tuple(words[0].split("  +  ")) if len(words) == 1 else ()
        changes = () if overrides else tuple(zip(words[::2], words[1::2], strict=True))
        found.append(pytest.param(Case(changes, overrides, tuple(sentences)), id=f"{title}-{number}"))
    return found


def assert_refused(case: Case, base: Base, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """These sentences come out and no others, each after its place; no traceback; no run begins."""
    for old, _ in case.changes:
        assert any(old in text for text in base.texts.values()), old
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        base.write(folder, case.applied)
        if base.command:
            sets = [word for override in case.overrides for word in ("--set", override)]
            code, out, err = answer(capsys, *base.command, base.file, *sets)
            assert code == 2 and (not out or "check" in base.command), err
            said = [line.removeprefix("error: ") for line in err.splitlines() if not line.startswith("warning: ")]
        else:
            with pytest.raises(ConfigError) as caught:
                load_config(base.file, case.overrides)
            said = caught.value.problems
        assert len(said) == len(case.sentences), said
        assert all(re.match(rf"({re.escape(base.file)}(:\d+)?|--set .+): ", line) for line in said), said
        for sentence in case.sentences:
            found = [line for line in said if sentence in line.replace(f"{folder}/", "")]
            assert found, (sentence, said)
            said.remove(found[0])
        assert not (folder / "runs").exists()
