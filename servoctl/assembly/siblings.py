"""Imports of the files beside a user's own file, while that file is loaded.

Design: `sys.path` is never changed. A finder serves the file's folder for the time of the load, and only names that
nothing else provides, so that a file never replaces a module of Python or of an installed package. A sibling's lasting
name in `sys.modules` is that of its path, so two folders can each have a `gains.py`. Siblings are loaded once and are
loaded again as soon as one of their folder has changed.
"""

import importlib.util
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

Stamp = tuple[int, int]
"""Time of the last change [ns] and size of a file."""

PREFIX = "servoctl_user_"
"""Start of the names of modules that come from files."""

_loaded: dict[Path, dict[Path, Stamp]] = {}
"""Folder -> the siblings that were loaded from it, and their state then."""

_lock = threading.RLock()


def module_name(path: Path) -> str:
    """The lasting name of a user's module in `sys.modules`, different for every path."""
    stem = path.parent.name if path.stem == "__init__" else path.stem
    return f"{PREFIX}{stem}_{abs(hash(path)):x}"


def siblings(folder: Path) -> list[Path]:
    """The files that files of this folder have imported from it so far."""
    return sorted(_loaded.get(folder.resolve(), {}))


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Lets code import the Python files of a folder, by names that nothing else provides.

    Args:
        folder: Where the file that is loaded lies, resolved.
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
                del sys.modules[name]  # its lasting name stays


class _Finder:
    """Finds the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The sibling of this name, or a module within one; None where something else provides it, or nothing does."""
        root, _, inner = name.partition(".")
        if inner and root not in self.names:
            return None
        place = self._folder.joinpath(*name.split("."))
        file = next((p for p in (place / "__init__.py", place.with_suffix(".py")) if p.is_file()), None)
        if file is None or (not inner and _elsewhere(self, name)):
            return None
        self.names.add(root)
        loader = _Loader(name, str(file), self._folder)
        within = [str(place)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=within)


class _Loader(SourceFileLoader):
    """Loads a sibling under its lasting name, or gives the one that is loaded."""

    def __init__(self, name: str, path: str, folder: Path) -> None:
        super().__init__(name, path)
        self._file, self._folder = Path(path), folder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module = sys.modules.get(module_name(self._file))
        return module if module is not None and self._file in _loaded.get(self._folder, {}) else None

    def exec_module(self, module: ModuleType) -> None:
        files = _loaded.setdefault(self._folder, {})
        lasting = module_name(self._file)
        if self._file in files and sys.modules.get(lasting) is module:
            return
        files[self._file] = _stamp(self._file)
        module.__name__ = lasting  # classes remember it, and dataclasses look it up
        sys.modules[lasting] = module
        try:
            exec(self.get_code(self.name) or "", vars(module))
        except BaseException:
            del files[self._file], sys.modules[lasting]
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
