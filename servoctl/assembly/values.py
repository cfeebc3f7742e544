"""Equations that are given by name, and the problems of a config, all at once."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from servoctl.config.document import Document, Problem
from servoctl.config.load import LoadedConfig
from servoctl.engine.parameters import parameter_fields
from servoctl.errors import ConfigError, ExpressionError, Finding, no_such
from servoctl.expression import Expression, check_names, parse
from servoctl.mechanics.plant import Plant
from servoctl.reference.curve import Signal

NO_SIGNALS: Mapping[str, Signal] = MappingProxyType({})


class Problems:
    """Problems of a config so far: names, files and classes that do not fit, or a start that is impossible."""

    def __init__(self, source: LoadedConfig | Document) -> None:
        self._document = source if isinstance(source, Document) else source.document
        self._all: list[Problem] = []

    def __len__(self) -> int:
        return len(self._all)

    @property
    def found(self) -> list[Finding]:
        """One finding per problem, with file and line, in order of lines."""
        return self._document.report(self._all)

    def add(self, what: object, *path: str | int) -> None:
        """Notes what is wrong at a field; each line is a problem."""
        path = self._document.indexed(path)
        self._all += [Problem(path, line) for line in str(what).splitlines()]

    def add_named(self, sentence: str) -> None:
        """Notes a sentence that begins with its field, such as `law.limits.F: ...`."""
        field, _, what = sentence.partition(": ")
        self.add(what, *field.split("."))

    def extend(self, found: Iterable[Problem]) -> None:
        """Notes several problems."""
        for problem in found:
            self.add(problem.what, *problem.path)

    def check(self) -> None:
        """Raises ConfigError with all problems, if there are any."""
        if self._all:
            raise ConfigError(self.found)


Once = Callable[[Any, Callable[[], Any]], Any]
"""A key and what makes the result of this key, which is made only if it is not known."""


class Results:
    """The latest results of some runs by key: equal keys have one result, such as a compiled function."""

    MOST = 32

    def __init__(self) -> None:
        self._kept: list[tuple[Any, Any]] = []  # key and result, the latest first

    def once(self, problems: Problems, key: Any, make: Callable[[], Any]) -> Any:
        """The result of a key; one that was made with problems is not kept, so that they are noted again.

        Args:
            key: It is compared, not hashed, because sections of a config contain mappings.
        """
        for index, (known, result) in enumerate(self._kept):
            if known == key:
                self._kept.insert(0, self._kept.pop(index))
                return result
        count = len(problems)
        result = make()
        if len(problems) == count:
            self._kept = [(key, result), *self._kept[: self.MOST - 1]]
        return result


def build_equation(
    text: str, plant: Plant, problems: Problems, *path: str | int, signals: Mapping[str, Signal] = NO_SIGNALS
) -> Expression | None:
    """An equation in the plant's names and those of signals; None if it is wrong."""
    try:
        expression = parse(text)
    except ExpressionError as error:
        problems.add(error, *path)
        return None
    wrong = check_names(expression, plant.coordinates, parameter_fields(plant), signals)
    for sentence in wrong:
        problems.add(sentence, *path)
    return None if wrong else expression.with_signals(signals)


def build_equations(
    given: Mapping[str, str] | None,
    plant: Plant,
    problems: Problems,
    *path: str,
    signals: Mapping[str, Signal] = NO_SIGNALS,
) -> dict[str, Expression]:
    """Actuator -> equation, without those that are wrong."""
    equations: dict[str, Expression] = {}
    for name, text in (given or {}).items():
        if name not in plant.actuators:
            problems.add(no_such("actuator", name, plant.actuators), *path, name)
            continue
        if callable(text):
            problems.add(f"expected an equation as text, such as 'sin(t)', got {text!r}", *path, name)
            continue
        expression = build_equation(str(text), plant, problems, *path, name, signals=signals)
        if expression is not None:
            equations[name] = expression
    return equations
