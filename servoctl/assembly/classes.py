"""Class paths of a config: classes of installed packages, or of a file next to the config."""

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from servoctl.assembly.siblings import PREFIX, importable, module_name, siblings
from servoctl.errors import ConfigError, in_one_line
from servoctl.expression.suggest import remedy

_loaded: dict[Path, tuple[ModuleType, dict[Path, bytes]]] = {}
"""File -> its module, with the content of the file and of the siblings of its folder at that time."""


def load_class(path: str, folder: Path, base: type) -> type[Any]:
    """The class that a config names.

    Args:
        path: `package.module:Name`, or `file.py:Name` relative to the folder.
        folder: The config's folder.
        base: What the class must derive from.

    Raises:
        ConfigError: Module or class do not exist, cannot be imported, or the class has another base.
    """
    source, _, name = path.partition(":")
    module = _from_file(folder / source) if source.endswith(".py") else _from_package(source)
    kind = getattr(module, name, None)
    if kind is None:
        names = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, base)]
        raise ConfigError(f"{path}: there is no class '{name}' in {source} ({remedy(name, names)})")
    if not isinstance(kind, type) or not issubclass(kind, base):
        raise ConfigError(f"{path}: {name} is not a {base.__name__} (derive it from servoctl.{base.__name__})")
    return kind


def file_of(kind: type) -> Path | None:
    """The file that `load_class` loaded a class from; None for a class of an installed package."""
    module = sys.modules.get(kind.__module__)
    path = getattr(module, "__file__", None)
    return Path(path) if path is not None and kind.__module__.startswith(PREFIX) else None


def _from_package(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and module.startswith(error.name):
            raise ConfigError(
                f"{module}: there is no such module (install its package, or give {module.split('.')[-1]}.py:Name)"
            ) from error
        raise ConfigError(f"{module}: cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{module}: cannot be imported: {in_one_line(error)}") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file (paths of classes are relative to the config's folder)")
    resolved = path.resolve()
    module, content = _loaded.get(resolved, (None, {}))
    if module is not None and content == _content(content):
        return module  # the same class again, so that a series of runs traces its plant once
    name = module_name(resolved)
    specification = importlib.util.spec_from_file_location(name, resolved)
    if specification is None or specification.loader is None:
        raise ConfigError(f"{path}: is not a Python file (expected a file that ends in .py)")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # dataclasses look up their module here
    try:
        with importable(resolved.parent):
            specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(f"{path}: cannot be imported: {in_one_line(error)}") from error
    _loaded[resolved] = module, _content([resolved, *siblings(resolved.parent)])
    return module


def _content(files: Iterable[Path]) -> dict[Path, bytes]:
    return {file: file.read_bytes() if file.is_file() else b"" for file in files}
