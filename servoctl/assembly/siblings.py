"""Lets a user's file import other files of its folder while it is loaded.

Design: `sys.path` never changes. During the load, a finder provides the files of the folder, and only under names that
nothing else provides, so that a file never replaces a module of Python or of an installed package. The permanent name
of such a sibling in `sys.modules` is made from its path, so that two folders can each have a `gains.py`. Siblings are
loaded once; when one of a folder changes, all of them are loaded again.
"""

import importlib.util
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

Stamp = tuple[int, int]  # time of the last change [ns] and size of a file
PREFIX = "servoctl_user_"  # prefix of the names of modules that come from files
_loaded: dict[Path, dict[Path, Stamp]] = {}  # folder -> siblings loaded from it, with their stamps at that time

_lock = threading.RLock()


def module_name(path: Path) -> str:
    """Permanent name of a user's module in `sys.modules`, different for every path."""
    stem = path.parent.name if path.stem == "__init__" else path.stem
    return f"{PREFIX}{stem}_{abs(hash(path)):x}"


def siblings(folder: Path) -> list[Path]:
    """Files of this folder that other files in it have imported so far."""
    return sorted(_loaded.get(folder.resolve(), {}))


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Lets code import the Python files of a folder, under names that nothing else provides.

    Args:
        folder: Resolved folder of the file that is being loaded.
    """
    with _lock:
        _forget_changed(folder)
        finder = _Finder(folder)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.partition(".")[0] in finder.names]:
                del sys.modules[name]  # the permanent name stays


class _Finder:
    """Finds the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The sibling of this name, or a module in a sibling package; None if it does not exist or is not needed."""
        root, _, inner = name.partition(".")
        if inner and root not in self.names:
            return None
        base = self._folder.joinpath(*name.split("."))
        file = next((p for p in (base / "__init__.py", base.with_suffix(".py")) if p.is_file()), None)
        if file is None or (not inner and _elsewhere(self, name)):
            return None
        self.names.add(root)
        loader = _SiblingLoader(name, str(file), self._folder)
        package = [str(base)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=package)


class _SiblingLoader(SourceFileLoader):
    """Loads a sibling under its permanent name, or returns the loaded module."""

    def __init__(self, name: str, path: str, folder: Path) -> None:
        super().__init__(name, path)
        self._file, self._folder = Path(path), folder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module = sys.modules.get(module_name(self._file))
        return module if module is not None and self._file in _loaded.get(self._folder, {}) else None

    def exec_module(self, module: ModuleType) -> None:
        files = _loaded.setdefault(self._folder, {})
        permanent = module_name(self._file)
        if self._file in files and sys.modules.get(permanent) is module:
            return
        files[self._file] = _stamp(self._file)
        module.__name__ = permanent  # classes keep this name, and dataclasses look up their module by it
        sys.modules[permanent] = module
        try:
            exec(self.get_code(self.name) or "", vars(module))
        except BaseException:
            del files[self._file], sys.modules[permanent]
            raise


def _elsewhere(finder: _Finder, name: str) -> bool:
    """Whether Python or an installed package provides a module of this name."""
    for other in sys.meta_path:
        if other is not finder and not isinstance(other, _Finder):
            spec = other.find_spec(name, None)
            if spec is not None and spec.loader is not None and spec.origin is not None:
                return True
    return False


def _forget_changed(folder: Path) -> None:
    files = _loaded.get(folder, {})
    if any(_stamp(file) != stamp for file, stamp in files.items()):
        for file in files:
            sys.modules.pop(module_name(file), None)
        files.clear()


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
