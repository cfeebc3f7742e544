"""Both readers of YAML give the same values, lines and problems."""

import random
from pathlib import Path

import pytest

from servoctl.config import yaml_loader
from servoctl.config.yaml_loader import NotYamlError, read_value

CONFIGS = [path.read_text() for path in sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))]
PIECES = [
    ":", ": ", "{", "}", "[", "]", ",", "\n", "  ", "- ", "? ", "!!str ", "|\n", ">", '"', "'", " #", "\t", "&a ", "*a",
    "---\n", "...\n", "%", "\\", "\x00", "é", "\u2028", "\ufeff", "a:b", "{a:1}", "on", "~", "<<: ", '"\\x', "\r\n",
]  # fmt: skip


def outcome(text: str) -> str:
    try:
        return repr(read_value(text))
    except NotYamlError as error:
        return str(error)


def damaged(random: random.Random) -> str:
    """A few lines of a shipped config with pieces put in and cut out."""
    lines = random.choice(CONFIGS).splitlines()
    first = random.randrange(len(lines))
    text = "\n".join(lines[first : first + 8])
    for _ in range(random.randrange(4)):
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice([random.choice(PIECES), ""]) + text[at + random.choice([0, 0, 2]) :]
    return text


def test_the_fast_reader_gives_what_the_slow_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = random.Random(0)
    texts = [*CONFIGS, *(damaged(numbers) for _ in range(500))]
    by_default = [outcome(text) for text in texts]
    monkeypatch.setattr(yaml_loader, "_FastLoader", yaml_loader._Loader)
    assert [outcome(text) for text in texts] == by_default
