"""The points of a sweep: a grid, a Latin hypercube or random points, from `PATH=LO:HI:N` or `PATH=LO:HI:N:log`.

Only values of the config that can be set become part of a point, in a search too (`check_path`).
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from servoctl.assembly.make import make_run
from servoctl.assembly.run import Run
from servoctl.config.document import NAMED_LISTS
from servoctl.config.overrides import apply_overrides, is_number, setting
from servoctl.errors import ConfigError, ServoctlError, suggestion
from servoctl.expression import constant
from servoctl.types import Array

SAMPLES = ("grid", "lhs", "monte-carlo")
LOG = "log"

Point = Mapping[str, Any]  # path in the config -> value, a number or a word: what one run changes

FORM = (
    "expected PATH=LO:HI:N, as in law.correction.baumgarte.alpha=2:20:10, or PATH=LO:HI:N:log for equal ratios instead "
    "of equal differences"
)


@dataclass(frozen=True)
class Vary:
    """A number of the config and its range."""

    text: str  # the argument of `--vary`
    path: str  # path in the config, as for `--set`
    low: float  # least value, in the unit of the config
    high: float  # greatest value
    count: int  # number of values in a grid, both ends included; 1: the least value alone; 0: not given
    log: bool = False  # whether the spacing is logarithmic: equal ratios, or uniform random logarithms

    def line(self, count: int) -> Array:
        """Values from the least to the greatest, shape (count,): 0.007 and not 0.007000000000000001."""
        values = (np.geomspace if self.log else np.linspace)(self.low, self.high, count)
        return np.array([float(f"{value:.15g}") for value in values])

    def at(self, share: Array) -> Array:
        """The values at these shares of the range, 0 to 1."""
        return np.asarray(at_share(self.low, self.high, self.log, share))


def at_share(low: float, high: float, log: bool, share: Any) -> Any:
    """The value, or the values, at a share of a range, 0 to 1; log: equal ratios."""
    return np.exp(np.log(low) + share * np.log(high / low)) if log else low + share * (high - low)


def read_varies(texts: Sequence[str], run: Run) -> list[Vary]:
    """The varied numbers.

    Args:
        texts: `PATH=LO:HI:N`, or `PATH=LO:HI` for random points; `:log` at the end gives equal ratios. Bounds may be
            constant expressions.

    Raises:
        ConfigError: An argument is wrong; lists every mistake.
    """
    if not texts:
        raise ConfigError(f"--vary: missing ({FORM})")
    varies: list[Vary] = []
    problems: list[tuple[str, str]] = []
    for text in texts:
        try:
            vary = _read(text)
            if vary.path in [other.path for other in varies]:
                raise ConfigError(f"{vary.path} is varied twice (leave one out)")
            check_path(run, vary.path, [vary.low, vary.high])
            varies.append(vary)
        except ConfigError as error:
            problems += [(text, line) for line in error.problems]
    if problems:
        raise ConfigError(_grouped(problems))
    return varies


def _grouped(problems: Sequence[tuple[str, str]]) -> list[str]:
    """One sentence per problem, with all the arguments that have it."""
    arguments: dict[str, list[str]] = {}
    for text, line in problems:
        arguments.setdefault(line, []).append(f"--vary {text}")
    return [f"{', '.join(texts)}: {line}" for line, texts in arguments.items()]


def _read(text: str) -> Vary:
    path, equals, span = text.partition("=")
    parts = [part.strip() for part in span.split(":")]
    log = parts[-1] == LOG
    parts = parts[:-1] if log else parts
    if not path.strip() or not equals or len(parts) not in (2, 3):
        raise ConfigError(FORM)
    low, high = (_number(name, part) for name, part in zip(("LO", "HI"), parts, strict=False))
    if low > high:
        raise ConfigError(f"LO {low:g} is above HI {high:g} (exchange them)")
    if log and low <= 0.0:
        raise ConfigError(f"LO: expected a number above 0, since the spacing is log, got {low:g}")
    count = _number("N", parts[2]) if len(parts) == 3 else 0.0
    if len(parts) == 3 and (count < 1 or not count.is_integer()):
        raise ConfigError(f"N: expected an integer of at least 1, got {parts[2]}")
    return Vary(text, path.strip(), low, high, int(count), log)


def _number(name: str, text: str) -> float:
    try:
        value = float(constant(text))
    except (ServoctlError, ValueError) as error:
        raise ConfigError(f"{name}: expected a number, got {text!r}") from error
    if not math.isfinite(value):
        raise ConfigError(f"{name}: expected a finite number, got {text!r}")
    return value


def points_of(
    varies: Sequence[Vary], sample: str = "grid", samples: int = 100, seed: int = 0
) -> list[dict[str, float]]:
    """Path -> value, of every run.

    Args:
        sample: `grid`: every combination, the last path fastest; `lhs`: a Latin hypercube; `monte-carlo`: uniform.
        samples: Number of runs, unless `sample` is `grid`.
        seed: Seed of the random points.

    Raises:
        ConfigError: A grid without a number of values, an unknown sample, or no samples.
    """
    if sample not in SAMPLES:
        raise ConfigError(f"--sample {sample}: expected one of {', '.join(SAMPLES)}")
    paths = [vary.path for vary in varies]
    if sample == "grid":
        missing = [(vary.text, f"a grid needs the number of values ({FORM})") for vary in varies if not vary.count]
        if missing:
            raise ConfigError(_grouped(missing))
        axes = [vary.line(vary.count).tolist() for vary in varies]
        return [dict(zip(paths, values, strict=True)) for values in product(*axes)]
    if samples < 1:
        raise ConfigError(f"--samples {samples}: expected at least 1")
    random = np.random.default_rng(seed)
    if sample == "lhs":
        from scipy.stats import qmc

        unit = qmc.LatinHypercube(len(varies), rng=random).random(samples)
    else:
        unit = random.random((samples, len(varies)))
    columns = [vary.at(unit[:, i]).tolist() for i, vary in enumerate(varies)]
    return [dict(zip(paths, row, strict=True)) for row in zip(*columns, strict=True)]


LISTED = 12  # largest number of config paths that an error lists


def check_path(run: Run, path: str, values: Sequence[Any], further: Sequence[str] = ()) -> None:
    """Checks that at least one of some values can be set at a path.

    Args:
        further: Other `PATH=VALUE` that are set with it.

    Raises:
        ConfigError: None of them can be set. The message suggests another path; the caller adds this one.
    """
    assert run.loaded is not None
    known = leaves(run)
    numbers = [name for name, value in known.items() if is_number(value)]
    wants_number = all(is_number(value) for value in values)
    if wants_number and path in known and path not in numbers:
        raise ConfigError(f"is {known[path]!r}, not a number (vary a number)")
    overrides = [setting(path, value) for value in values]
    _, refused = apply_overrides(run.loaded.document, overrides[:1])
    if wants_number and path in numbers and not refused:
        return
    first: ServoctlError | None = None
    for override in [] if refused else overrides:
        try:
            make_run(run.loaded.overridden([*further, override]), run.engine, results=run.results)
            return
        except ServoctlError as error:
            first = first or error
    near = suggestion(path, known if not wants_number else numbers)
    if first is not None and not any(words in str(first) for words in ("unknown key", "no such")):
        raise ConfigError("; ".join(brief(line, path) for line in str(first).splitlines()))
    listed = f"numbers: {', '.join(numbers[:LISTED])}{' and more' if len(numbers) > LISTED else ''}"
    raise ConfigError(f"the config has no such number ({near or listed})")


def brief(sentence: str, path: str | None = None) -> str:
    """Shortens a message about an override, `--set PATH=VALUE: PATH: what is wrong`; returns others unchanged.

    Args:
        sentence: The message.
        path: A path that the context names already, so that it is left out.
    """
    found = re.match(r"--set ([^\s=]+)=(\S*): (?:\1: )?", sentence)
    if found is None:
        return sentence
    return f"{f'with {found[2]}' if found[1] == path else f'{found[1]}={found[2]}'}: {sentence[found.end() :]}"


def leaves(run: Run) -> dict[str, Any]:
    """Dotted path -> value, for all single values of a run's config; task entries are addressed by name."""
    assert run.loaded is not None
    return dict(_leaves(run.loaded.config.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"tune"})))


def _leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, (*path, str(key)))
    elif isinstance(node, (list, tuple)):
        for index, value in enumerate(node):
            name = value.get("name") if path in NAMED_LISTS and isinstance(value, Mapping) else None
            yield from _leaves(value, (*path, str(name or index)))
    else:
        yield ".".join(path), node
