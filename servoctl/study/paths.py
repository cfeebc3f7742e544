"""Which values of a config can a sweep or a search change?"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servoctl.assembly.make import make_run
from servoctl.assembly.run import Run
from servoctl.config.document import NAMED_LISTS
from servoctl.config.overrides import apply_overrides, is_number, setting
from servoctl.errors import ConfigError, ServoctlError, suggestion

LISTED = 12  # largest number of config paths that an error lists


def check_path(run: Run, path: str, values: Sequence[Any], besides: Sequence[str] = ()) -> None:
    """Checks that at least one of some values can be set at a path.

    Args:
        besides: Further `PATH=VALUE` to set.

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
            make_run(run.loaded.overridden([*besides, override]), run.engine, results=run.results)
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
