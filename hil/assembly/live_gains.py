"""Gains that an operator changes while the loop runs: within bounds, never at once, and the same in a replay.

Design: what is ramped are the numbers of the config themselves, tick by tick, and every tick's are logged as columns;
so a row says by which law its torque was made. The law is linear in damping and stiffness, so its torque moves no
faster than they do. A value is refused where a violation would grow at the period, one cycle late.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from servoctl.assembly.build import build_law
from servoctl.assembly.gains import RowGains, Spacing
from servoctl.assembly.problems import Problems
from servoctl.config.load import LoadedConfig
from servoctl.errors import ConfigError, TaskError
from servoctl.laws.constraint_following import BoundConstraintFollowing, ConstraintFollowing
from servoctl.laws.corrections import Correction
from servoctl.laws.gain_limits import growth
from servoctl.laws.law import BoundLaw
from servoctl.mechanics.model import Model

EXPECTED = "law.correction.<kind>.<gain> or task.<name>.correction.<kind>.<gain>, of a correction that is there"


@dataclass(frozen=True)
class Gain:
    """A number of a correction.

    Attributes:
        path: In the config.
        task: Whose own correction it is of; None: of the common one.
        field: Of the correction.
        keys: On the way from there to the number: a task's name, or an index.
        lower: Least value.
        upper: Largest value.
    """

    path: str
    task: str | None
    field: str
    keys: tuple[str | int, ...]
    lower: float
    upper: float

    def correction(self, law: ConstraintFollowing) -> Correction | None:
        """Whose number it is."""
        return law.correction if self.task is None else (law.corrections or {}).get(self.task)

    def value(self, law: ConstraintFollowing) -> Any:
        """What a law has there.

        Raises:
            KeyError, IndexError, TypeError: It has nothing there.
        """
        found = getattr(self.correction(law), self.field)
        for key in self.keys:
            found = found[key]
        return found

    def put(self, law: ConstraintFollowing, value: float) -> ConstraintFollowing:
        """The law with another value."""
        correction = cast(Any, self.correction(law))
        changed = replace(correction, **{self.field: _put(getattr(correction, self.field), self.keys, value)})
        if self.task is None:
            return replace(law, correction=changed)
        return replace(law, corrections={**(law.corrections or {}), self.task: changed})


def _put(tree: Any, keys: Sequence[str | int], value: float) -> Any:
    if not keys:
        return value
    key, *rest = keys
    if isinstance(tree, Mapping):
        return {**tree, key: _put(tree[key], rest, value)}
    return [_put(each, rest, value) if i == key else each for i, each in enumerate(tree)]


class LiveGains:
    """The gains of a law that may change, where they stand, and where they are going.

    Attributes:
        gains: In the order of the config.
        values: In force, in that order.
        ramp: Ticks that a change takes.
    """

    def __init__(self, loaded: LoadedConfig, model: Model, bound: BoundLaw | None) -> None:
        """Takes them from a config.

        Args:
            loaded: A config with `hil`.
            model: Plant and task, as the law is bound to.
            bound: The law.

        Raises:
            ConfigError: A path is no gain, or its bounds do not hold it or what the period bears; every one at once.
        """
        problems = Problems(loaded)
        hil, law = loaded.config.hil, build_law(loaded, model.plant, problems)
        problems.check()
        assert hil is not None
        self._model, self._period, self._spacing = model, hil.period, Spacing.on_drives(hil)
        self.ramp = max(1, round(hil.live_ramp / hil.period))
        self.gains: tuple[Gain, ...] = ()
        self.values: tuple[float, ...] = ()
        self._left = 0
        if not hil.live:
            return
        assert law is not None and isinstance(bound, BoundConstraintFollowing)
        self._law, self._bound = law, bound
        for path, (lower, upper) in hil.live.items():
            try:
                gain = _gain(path, law, lower, upper)
            except ConfigError as error:
                problems.add(str(error), "hil", "live", path)
                continue
            self.gains += (gain,)
            self.values += (float(gain.value(law)),)
        problems.check()
        self._given = self._from = self._to = self.values
        for i, gain in enumerate(self.gains):
            for end in (gain.lower, gain.upper):
                for sentence in self._unfit(_with(self.values, i, end)):
                    problems.add(f"{end:g}: {sentence}", "hil", "live", gain.path)
        problems.check()

    def begin(self, take_law: Callable[[BoundLaw], None]) -> None:
        """Goes back to the config's values, where an earlier run has left others."""
        self._left = 0
        if self.gains and self.values != self._given:
            self._from = self._to = self._given
            self.force(self._given, take_law)

    def law(self, values: Sequence[float]) -> BoundLaw:
        """The law with these values.

        Raises:
            TaskError: A correction does not take them.
        """
        law = self._law
        for gain, value in zip(self.gains, values, strict=True):
            law = gain.put(law, value)
        return replace(self._bound, **cast(Any, law.gains_of(self._model.task_rows)))

    def _unfit(self, values: Sequence[float]) -> list[str]:
        """Why values cannot be had, in the words of `check`; takes milliseconds."""
        try:
            law = cast(BoundConstraintFollowing, self.law(values))
        except TaskError as error:
            return str(error).splitlines()
        found = [RowGains("task", row, *law.gains(i), self._spacing).problem for i, row in enumerate(law.rows)]
        return [sentence for sentence in found if sentence is not None]

    def ask(self, index: int, value: float) -> str:
        """Sets out for another value; takes some 100 us, once per wish.

        Returns:
            What is done; or, with nothing done, why not.
        """
        if not 0 <= index < len(self.gains):
            return "refused: there is no such gain"
        gain, before = self.gains[index], self.values[index]
        if not gain.lower <= value <= gain.upper:  # NaN too
            return f"refused: {value:g} is outside [{gain.lower:g}, {gain.upper:g}]"
        wanted = _with(self._to, index, float(value))
        try:
            worst = self._growth(wanted)
        except TaskError as error:
            return f"refused: {value:g}: {error}"
        if worst >= 1.0:
            return f"refused: with {value:g} a violation would grow by {worst:.4g} per period of {self._period:g} s"
        self._from, self._to, self._left = self.values, wanted, self.ramp
        return f"{before:g} -> {value:g} within {self.ramp * self._period:g} s"

    def _growth(self, values: Sequence[float]) -> float:
        """Largest growth of a violation over a period, one cycle late."""
        law, by = cast(BoundConstraintFollowing, self.law(values)), self._spacing
        rows = {(*law.gains(i), row.has_rate) for i, row in enumerate(law.rows)}
        return max(
            growth(damping, stiffness, has_rate, self._period, by.held, higher, by.delay, velocity=by.velocity)
            if damping or stiffness
            else 0.0
            for damping, stiffness, higher, has_rate in rows
        )

    def advance(self, take_law: Callable[[BoundLaw], None]) -> None:
        """One tick on the way; does nothing at the end of it."""
        if not self._left:
            return
        self._left -= 1
        share = 1.0 - self._left / self.ramp
        between = (a + share * (b - a) for a, b in zip(self._from, self._to, strict=True))
        self.force(tuple(between) if self._left else self._to, take_law)

    def force(self, values: Sequence[float], take_law: Callable[[BoundLaw], None]) -> None:
        """These values at once: for a start, and for a replay."""
        self.values = tuple(values)
        take_law(self.law(self.values))


def _with(values: Sequence[float], index: int, value: float) -> tuple[float, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _gain(path: str, law: ConstraintFollowing, lower: float, upper: float) -> Gain:
    """The gain at a path.

    Raises:
        ConfigError: There is none, or the bounds do not hold it; the message lacks its place.
    """
    words = path.split(".")
    task = words[1] if words[0] == "task" and len(words) > 1 else None
    rest = words[2:] if task is not None else words[1:]
    gain = Gain(path, task, "", (), lower, upper)
    correction = gain.correction(law) if words[0] in ("law", "task") else None
    if rest[:1] != ["correction"] or correction is None or rest[1:2] != [correction.label]:
        raise ConfigError(f"no gain (expected {EXPECTED})")
    fields = rest[1:] if correction.label == "poles" else rest[2:]
    if not fields or fields[0] not in {field.name for field in dataclasses.fields(cast(Any, correction))}:
        raise ConfigError(f"no gain (expected {EXPECTED})")
    keys = tuple(int(key) if key.isdigit() else key for key in fields[1:])
    gain = replace(gain, field=fields[0], keys=keys)
    try:
        value = gain.value(law)
    except (KeyError, IndexError, TypeError):
        raise ConfigError(f"nothing at {'.'.join(fields[1:])!r} (name a task, or count the rows from 0)") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"not one number but {value} (name one of them in the path)")
    if not lower <= value <= upper:
        raise ConfigError(f"the config's own value {value:g} is outside [{lower:g}, {upper:g}] (widen the bounds)")
    return gain
