"""Gains that the operator changes during a run: within bounds, along a ramp, and reproducible in a replay.

Design: the numbers of the config themselves are ramped, tick by tick, and each tick's values are logged as columns. So
every row tells the law that made its torque. The law is linear in damping and stiffness, so its torque changes no
faster than they do. A value is refused if a violation would grow at this period with one period of delay.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

from servoctl.assembly.build import build_law
from servoctl.assembly.context import Context, drives_timing
from servoctl.assembly.gains import RowGains, Spacing
from servoctl.assembly.values import Problems
from servoctl.config.load import LoadedConfig
from servoctl.errors import ConfigError, TaskError
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.corrections import Correction
from servoctl.laws.hold import growth
from servoctl.laws.law import AttachedLaw
from servoctl.mechanics.model import Model

EXPECTED = "law.correction.<kind>.<gain> or task.<name>.correction.<kind>.<gain> of a correction in the config"


@dataclass(frozen=True)
class Gain:
    """A number of a correction."""

    path: str  # path in the config
    keys: tuple[str | int, ...]  # from the law to the number: fields, names and indices
    lower: float  # smallest value
    upper: float  # largest value

    def value(self, law: ConstraintFollowing) -> Any:
        """The value in a law; KeyError, IndexError, TypeError if the law has nothing at this path."""
        return reduce(_part, self.keys, law)

    def put(self, law: ConstraintFollowing, value: float) -> ConstraintFollowing:
        """A copy of the law with another value."""
        return cast(ConstraintFollowing, _put(law, self.keys, value))


def _part(tree: Any, key: str | int) -> Any:
    return getattr(tree, str(key)) if dataclasses.is_dataclass(tree) else tree[key]


def _put(tree: Any, keys: Sequence[str | int], value: float) -> Any:
    if not keys:
        return value
    key, *rest = keys
    part = _put(_part(tree, key), rest, value)
    if dataclasses.is_dataclass(tree):
        return replace(cast(Any, tree), **{str(key): part})
    return {**tree, key: part} if isinstance(tree, Mapping) else [*tree[:key], part, *tree[int(key) + 1 :]]


class LiveGains:
    """The gains of a law that may change, their present values and their targets.

    Raises ConfigError if a path is not a gain, its bounds exclude the config's value, or a value within the bounds is
    unstable at the period; every problem at once.
    """

    def __init__(
        self,
        loaded: LoadedConfig,  # a config with `hil`
        model: Model,  # plant and task that the law is attached to
        attached: AttachedLaw | None,  # the attached law
    ) -> None:
        problems = Problems(loaded)
        hil, law = loaded.config.hil, build_law(loaded, Context(model.plant, loaded.config, problems, on_drives=True))
        problems.check()
        assert hil is not None
        self._model, self._period = model, hil.period
        self._spacing = Spacing("hil.period", drives_timing(hil, model.plant))
        self.ramp = max(1, round(hil.live_ramp / hil.period))  # number of ticks of a change
        self.gains: tuple[Gain, ...] = ()  # in the order of the config
        self.values: tuple[float, ...] = ()  # present values, in that order
        self._left = 0
        if not hil.live:
            return
        if not (isinstance(law, ConstraintFollowing) and isinstance(attached, AttachedConstraintFollowing)):
            problems.add("needs constraint following (a law.class has no live gains: leave it out)", "hil", "live")
            problems.check()
            return
        self._law, self._attached = law, attached
        for path, (lower, upper) in hil.live.items():
            try:
                gain = _gain(path, law, lower, upper)
            except ConfigError as error:
                problems.add(str(error), "hil", "live", path)
                continue
            self.gains += (gain,)
            self.values += (float(gain.value(law)),)
        problems.check()
        self._config_values = self._from = self._to = self.values
        for i, gain in enumerate(self.gains):
            for end in (gain.lower, gain.upper):
                for problem in self._problems(_with(self.values, i, end)):
                    problems.add(f"{end:g}: {problem}", "hil", "live", gain.path)
        problems.check()

    def begin(self, take_law: Callable[[AttachedLaw], None]) -> None:
        """Restores the config's values after an earlier run has changed them."""
        self._left = 0
        if self.gains and self.values != self._config_values:
            self._from = self._to = self._config_values
            self.force(self._config_values, take_law)

    def law(self, values: Sequence[float]) -> AttachedConstraintFollowing:
        """The attached law with these values; TaskError if a correction refuses them."""
        law = self._law
        for gain, value in zip(self.gains, values, strict=True):
            law = gain.put(law, value)
        return self._attached.with_terms([term for term in law.terms_of_rows(self._model.task_rows) if term])

    def _problems(self, values: Sequence[float]) -> list[str]:
        """Why these values are not possible, as `check` says it; takes milliseconds."""
        try:
            law = self.law(values)
        except TaskError as error:
            return str(error).splitlines()
        problems = [
            RowGains("task", row, law.correction.feedback(i), self._spacing).problem for i, row in enumerate(law.rows)
        ]
        return [str(problem) for problem in problems if problem is not None]

    def request(self, index: int, value: float) -> str:
        """Starts a change to another value, or refuses it, and says which in words; takes about 100 us."""
        if not 0 <= index < len(self.gains):
            return "refused: there is no such gain"
        gain, before = self.gains[index], self.values[index]
        if not gain.lower <= value <= gain.upper:  # NaN too
            return f"refused: {value:g} is outside [{gain.lower:g}, {gain.upper:g}]"
        target = _with(self._to, index, float(value))
        try:
            worst = self._growth(target)
        except TaskError as error:
            return f"refused: {value:g}: {error}"
        if worst >= 1.0:
            return f"refused: with {value:g} a task error would grow by {worst:.4g} per period of {self._period:g} s"
        self._from, self._to, self._left = self.values, target, self.ramp
        return f"{before:g} -> {value:g} within {self.ramp * self._period:g} s"

    def _growth(self, values: Sequence[float]) -> float:
        """Largest growth of a violation over a period, with one period of delay; 1 is the limit of stability."""
        law = self.law(values)
        rows = {law.correction.feedback(i) for i in range(len(law.rows))}
        return max(growth(row, self._spacing.timing, self._period) if row.corrects else 0.0 for row in rows)

    def advance(self, take_law: Callable[[AttachedLaw], None]) -> None:
        """Moves one tick along the ramp; does nothing after its end."""
        if not self._left:
            return
        self._left -= 1
        share = 1.0 - self._left / self.ramp
        values = (a + share * (b - a) for a, b in zip(self._from, self._to, strict=True))
        self.force(tuple(values) if self._left else self._to, take_law)

    @property
    def moving(self) -> bool:
        """Whether values are on their ramp."""
        return self._left > 0

    def force(self, values: Sequence[float], take_law: Callable[[AttachedLaw], None]) -> None:
        """Sets values at once, without a ramp: at a start, and in a replay."""
        self.values = tuple(values)
        take_law(self.law(self.values))


def _with(values: Sequence[float], index: int, value: float) -> tuple[float, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _gain(path: str, law: ConstraintFollowing, lower: float, upper: float) -> Gain:
    """The gain at a path.

    Raises ConfigError if there is none, or its bounds exclude it; the message does not name file and line.
    """
    words = path.split(".")
    keys: tuple[str | int, ...] = ("correction",)
    correction: Correction | None = law.correction if words[0] == "law" else None
    if words[0] == "task" and len(words) > 1:
        task = words.pop(1)
        keys = ("corrections", task)
        correction = (law.corrections or {}).get(task)
    if correction is None or words[1:3] != ["correction", correction.label]:
        raise ConfigError(f"not a gain (expected {EXPECTED})")
    fields = words[2:] if correction.label == "poles" else words[3:]
    if not fields or fields[0] not in {field.name for field in dataclasses.fields(cast(Any, correction))}:
        raise ConfigError(f"not a gain (expected {EXPECTED})")
    keys += (fields[0], *(int(key) if key.isdigit() else key for key in fields[1:]))
    gain = Gain(path, keys, lower, upper)
    try:
        value = gain.value(law)
    except (KeyError, IndexError, TypeError):
        raise ConfigError(f"nothing at {'.'.join(fields[1:])!r} (give a task, or a row counted from 0)") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"expected one number, got {value} (choose one of them in the path)")
    if not lower <= value <= upper:
        raise ConfigError(f"the config's value {value:g} is outside [{lower:g}, {upper:g}] (widen the bounds)")
    return gain
