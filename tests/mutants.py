"""Shipped configs with random changes of text and values: every command ends with a sentence and a known exit code.

    python -m tests.mutants --count 1000 --seed 3

Each mutant is checked, and if it is right also run, for a few steps. One that ends otherwise, says "this is a bug", or
takes longer than `LIMIT` is printed with its seed; the exit code is then 1.
"""

import argparse
import contextlib
import io
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from servoctl.cli import main
from servoctl.config.load import find_config, shipped_configs

CODES = {0, 2, 3, 4, 130}
LIMIT = 60.0
"""Longest processor time of one command [s]."""

VALUES = (
    "0", "-1", "1e308", "-1e308", "1e-308", "1e9", "1e-9", ".nan", ".inf", "null", "true", "''", "[]", "{}", "[1, 2]",
    "{a: 1}", "text", "2**999", "1/0", "sqrt(-1)", "x", "10:30", "010", "auto", "none", "robot", "t", "der(x)", "-0.0",
    "~", "1e5*deg", "[[1]]", "&a", "!!int", "0x10", "1_000", "\u00e9", "..", '"\\0"', "initial", "all", "free",
)  # fmt: skip
LARGE = ("swarm_50", "swarm", "four_bars", "two_arms_damiao", "chain")  # take long
SHORT = ["--set", "run.duration=0.02"]


def mutant(seed: int) -> tuple[str, str]:
    """Name and text of the config of a seed."""
    chance = random.Random(seed)
    name = chance.choice([each for each in sorted(shipped_configs()) if each not in LARGE])
    text = Path(find_config(name)).read_text()
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        text = chance.choice((_value, _value, _value, _key, _line, _swap, _characters))(text, chance)
    return name, text


def _value(text: str, chance: random.Random) -> str:
    """Another value in place of a number, a word or a formula."""
    starts = [i for i, letter in enumerate(text[:-1]) if letter in ":,[" and text[i + 1] not in "\n"]
    start = chance.choice(starts) + 1
    end = min([text.find(stop, start) for stop in ",}]\n#" if text.find(stop, start) > 0] or [len(text)])
    return f"{text[:start]} {chance.choice(VALUES)}{text[end:]}"


def _key(text: str, chance: random.Random) -> str:
    """A key that is left out, doubled or misspelt."""
    lines = text.splitlines(keepends=True)
    i = chance.choice([i for i, line in enumerate(lines) if ":" in line] or [0])
    key, _, rest = lines[i].partition(":")
    lines[i] = chance.choice((f"{key}x:{rest}", lines[i] * 2, rest, f"{key[:-1]}:{rest}"))
    return "".join(lines)


def _line(text: str, chance: random.Random) -> str:
    """A line that is left out, or moved."""
    lines = text.splitlines(keepends=True)
    taken = lines.pop(chance.randrange(len(lines)))
    if chance.random() < 0.5:
        lines.insert(chance.randrange(len(lines) + 1), taken)
    return "".join(lines)


def _swap(text: str, chance: random.Random) -> str:
    """A line of another shipped config."""
    other = Path(find_config(chance.choice(sorted(shipped_configs())))).read_text().splitlines(keepends=True)
    lines = text.splitlines(keepends=True)
    lines[chance.randrange(len(lines))] = chance.choice(other)
    return "".join(lines)


def _characters(text: str, chance: random.Random) -> str:
    """Some characters that are left out, or others."""
    i, length = chance.randrange(len(text)), chance.randrange(1, 6)
    return (
        text[:i]
        + "".join(chance.choice("{}[]:,-#&*!|>'\"%@`\t\\ 0e.") for _ in range(chance.randrange(4)))
        + text[i + length :]
    )


def fault(path: Path, command: list[str]) -> tuple[int | str, str]:
    """Exit code of a command on a config, and what is wrong with its end; empty: nothing."""
    out, err = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            code: int | str = int(main([command[0], str(path), *command[1:]]) or 0)
    except SystemExit as ended:
        code = int(ended.code or 0)
    except Exception:
        return "crash", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    said = err.getvalue() + out.getvalue()
    wrong = (
        "this is a bug" in said or "Traceback" in said or code not in CODES or (code in (2, 4) and not err.getvalue())
    )
    return code, f"exit code {code}: {err.getvalue()[-2000:]}" if wrong else ""


def _late(*_: object) -> None:
    raise TimeoutError(f"no end after {LIMIT:g} s")


def tried(seed: int, folder: Path) -> tuple[int | str, str]:
    """The worst end of `check` and `run` on a mutant."""
    name, text = mutant(seed)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    code, wrong = fault(path, ["check", *SHORT])
    if wrong or code != 0:
        return code, wrong
    return fault(path, ["run", *SHORT, "--engine", "vm", "--out", str(folder / "out")])


def search(count: int, seed: int) -> int:
    """Tries mutants; prints those that end wrongly, and how all ended; returns the number of wrong ends."""
    ends: Counter[int | str] = Counter()
    wrong, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("robots", "references", "scara_path.csv"):
            (folder / part).symlink_to(Path(find_config("scara")).parent / part)
        for each in range(seed, seed + count):
            code, text = tried(each, folder)
            ends[code] += 1
            wrong += bool(text)
            if text:
                print(f"--- seed {each}, {mutant(each)[0]}\n{text}", flush=True)
    print(f"{count} mutants from seed {seed} in {time.monotonic() - began:.0f} s: {wrong} wrong; ends {dict(ends)}")
    return wrong


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    sys.exit(1 if search(given.count, given.seed) else 0)
