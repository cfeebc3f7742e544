"""Class paths of a config: classes of installed packages, or of a file next to the config.

A file may import other files of its folder.

Design: `sys.path` never changes. During the load, a finder provides the files of the folder, and only under names that
nothing else provides, so that a file never replaces a module of Python or of an installed package. The permanent name
of such a file in `sys.modules` is made from its path, so that two folders can each have a `gains.py`. A file is loaded
once, whoever names or imports it, and again when it or what it imports has changed. Bytecode is not kept: after a file
is written again within a second with the same length, Python would run that of the old text.
"""

import dataclasses
import hashlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np

from servoctl.assembly.values import Problems
from servoctl.config.load import LoadedConfig, named_files
from servoctl.engine.parameters import Numbers, annotated, field_of, parameter_fields, parameter_names
from servoctl.errors import ConfigError, ServoctlError, in_one_line, listed, remedy, suggestion
from servoctl.expression import constant
from servoctl.input_file import Stamp, stamp
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.description import read_xml
from servoctl.mechanics.spatial.urdf import mesh_file

PREFIX = "servoctl_user_"  # prefix of the names of modules that come from files

_loaded: dict[Path, dict[Path, bytes]] = {}
"""Loaded file -> content, when it was loaded, of itself and of all files of its folder that it imports."""

_lock = threading.RLock()


def module_name(path: Path) -> str:
    """Permanent name of a user's module in `sys.modules`, different for every path."""
    stem = path.parent.name if path.stem == "__init__" else path.stem
    return f"{PREFIX}{stem}_{abs(hash(path)):x}"


def _module(file: Path) -> ModuleType | None:
    """The module of a file; None if it is not loaded, or has changed since, or what it imports."""
    content = _loaded.get(file)
    if content is None or any(not each.is_file() or each.read_bytes() != text for each, text in content.items()):
        return None
    return sys.modules[module_name(file)]


class _Finder:
    """Finds the files of one folder, under names that nothing else provides."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: set[str] = set()
        self.content: dict[Path, bytes] = {}  # of the file that is being loaded, and of what it has imported so far

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The file of this name, or a module in a package of the folder; None if it does not exist or is not needed."""
        root, _, inner = name.partition(".")
        if inner and root not in self.names:
            return None
        base = self._folder.joinpath(*name.split("."))
        file = next((p for p in (base / "__init__.py", base.with_suffix(".py")) if p.is_file()), None)
        if file is None or (not inner and self._elsewhere(name, file)):
            return None
        self.names.add(root)
        return self.spec(name, file)

    def spec(self, name: str, file: Path) -> ModuleSpec:
        """How to load a file."""
        package = [str(file.parent)] if file.name == "__init__.py" else None
        loader = _Loader(name, file, self)
        found = importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=package)
        return cast(ModuleSpec, found)

    def _elsewhere(self, name: str, file: Path) -> bool:
        """Whether Python or an installed package provides this name: a package, or a module from another file."""
        for other in sys.meta_path:
            if not isinstance(other, _Finder):
                spec = other.find_spec(name, None)
                if spec is not None and spec.loader is not None and spec.origin is not None:
                    # a script's own folder is in `sys.path`, where Python finds the same file, and never again
                    return file.name == "__init__.py" or Path(spec.origin).resolve() != file.resolve()
        return False


class _Loader(SourceFileLoader):
    """Loads a file under its permanent name, or returns the loaded module."""

    def __init__(self, name: str, file: Path, finder: _Finder) -> None:
        super().__init__(name, str(file))
        self._file, self._finder = file, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return _module(self._file)

    def exec_module(self, module: ModuleType) -> None:
        file, permanent, importing = self._file, module_name(self._file), self._finder.content
        if sys.modules.get(permanent) is not module:
            module.__name__ = permanent  # classes keep this name, and dataclasses look up their module by it
            sys.modules[permanent] = module
            _loaded.pop(file, None)
            self._finder.content = {file: file.read_bytes()}
            try:
                exec(self.source_to_code(self._finder.content[file], str(file)), vars(module))
                _loaded[file] = self._finder.content
            except BaseException:
                del sys.modules[permanent]
                raise
            finally:
                self._finder.content = importing
        importing |= _loaded[file]


def load_class(path: str, folder: Path, base: type) -> type[Any]:
    """The class that a config names.

    Args:
        path: `package.module:Name`, or `file.py:Name` relative to the folder.
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
        public = "Holonomic, Nonholonomic or SecondOrder" if base is Constraint else base.__name__
        raise ConfigError(f"{path}: {name} is not a {base.__name__} (derive it from servoctl.{public})")
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
    file = path.resolve()
    with _lock:
        module = _module(file)
        if module is not None:
            return module  # the same class again, so that a series of runs traces its plant once
        finder = _Finder(file.parent)
        sys.meta_path.insert(0, finder)
        try:
            spec = finder.spec(module_name(file), file)
            module = importlib.util.module_from_spec(spec)
            cast(_Loader, spec.loader).exec_module(module)
            return module
        except (Exception, SystemExit) as error:
            raise ConfigError(f"{path}: cannot be imported: {in_one_line(error)}") from error
        finally:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.partition(".")[0] in finder.names]:
                del sys.modules[name]  # the permanent name stays


XML = (".xml", ".urdf", ".mjcf")  # suffixes of files that may name other files
FOLDERS = ("meshdir", "texturedir", "assetdir")  # attributes of an MJCF's `<compiler>` that name folders of its assets


def needed_by(file: Path) -> list[Path]:
    """Files that a file needs: of Python, what it imports from its folder, as far as it has been loaded; of a robot,
    what its XML names: includes and meshes. MuJoCo looks from the main file's folder too.
    """
    if file.suffix == ".py":
        return sorted(_loaded.get(file.resolve(), {}).keys() - {file.resolve()})
    found = {file: None}
    waiting = [file] if file.suffix.lower() in XML else []
    while waiting:
        path = waiting.pop()
        folders, files, meshes = _addresses(path, stamp(path))
        places = [home / folder for home in (path.parent, file.parent) for folder in ("", *folders)]
        named = [next((at / name for at in places if (at / name).is_file()), None) for name in files]
        named += [mesh_file(mesh, path) for mesh in meshes]
        new = dict.fromkeys(each for each in named if each is not None and each not in found)
        found |= new
        waiting += [each for each in new if each.suffix.lower() in XML]
    return list(found)[1:]


@lru_cache(maxsize=64)  # a sweep builds the same robot many times
def _addresses(file: Path, _: Stamp) -> tuple[list[str], list[str], list[str]]:
    """Folders, files and meshes that an XML file names; a file that is none is reported where the robot is read."""
    try:
        root = read_xml(file)
    except ConfigError:
        return [], [], []
    folders = [element.get(key) or "" for element in root.iter("compiler") for key in FOLDERS]
    files, meshes = ([name for element in root.iter() if (name := element.get(key))] for key in ("file", "filename"))
    return folders, files, meshes


def stamps(files: Iterable[Path]) -> tuple[Stamp, ...]:
    """Stamps of files and of all that they need."""
    return tuple(stamp(each) for file in files for each in (file, *needed_by(file)))


def files_of(loaded: LoadedConfig) -> dict[str, Path]:
    """Name from the config's folder -> file: classes, what they import from their folder, robots, references, and
    what the files of robots name: includes and meshes.

    Args:
        loaded: A config whose run has been made, so that its classes are imported.
    """
    found = {name: loaded.folder / name for name in named_files(loaded.config)}
    for name, file in tuple(found.items()):
        home = file.resolve().parent if name.endswith(".py") else file.parent
        found |= {str(Path(name).parent / os.path.relpath(path, home)): path for path in needed_by(file)}
    return found


def hashes_of(loaded: LoadedConfig) -> dict[str, str]:
    """Name from the config's folder -> hash of the file's content, for each of `files_of`."""
    return {name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for name, path in files_of(loaded).items()}


T = TypeVar("T")

LISTED = 12  # largest number of parameters that an error lists: a robot has many


def instantiate(kind: type[Any], parameters: Mapping[str, Any], problems: Problems, *path: str | int) -> Any:
    """An instance of a dataclass with these fields; None, and problems noted, if it cannot be made."""
    count = len(problems)
    given = fields_of(kind, parameters, problems, *path)
    if len(problems) > count:
        return None
    try:
        instance = kind(**given)
    except ServoctlError as error:
        problems.add(error, *path, "parameters")
        return None
    except TypeError as error:
        problems.add(f"{kind.__name__} cannot be made: {error}", *path, "class")
        return None
    except (Exception, SystemExit) as error:  # raised by the class's own checks
        problems.add(f"{kind.__name__} refuses its parameters: {in_one_line(error)}", *path, "parameters")
        return None
    for name in parameter_fields(instance):
        if not _finite(getattr(instance, name)):
            problems.add(f"expected finite numbers, got {getattr(instance, name)!r}", *path, "parameters", name)
    return instance if len(problems) == count else None


def replaced_parameters(thing: T, parameters: Mapping[str, Any], problems: Problems, *path: str | int) -> T:
    """A copy of a dataclass instance with these parameters, without those that are wrong."""
    kind: Any = type(thing)
    fields, given = annotated(kind), {}
    for name, value in parameters.items():
        if name not in fields:
            hint = suggestion(name, fields) or f"known: {listed(fields, LISTED)}"
            problems.add(f"there is no such parameter ({hint})", *path, "parameters", name)
            continue
        try:
            given[name] = _converted(value, fields[name], None)
            dataclasses.replace(thing, **{name: given[name]})  # type: ignore[type-var]
        except ServoctlError as error:
            given.pop(name, None)
            problems.add(error, *path, "parameters", name)
    return dataclasses.replace(thing, **given)  # type: ignore[type-var]


def changed_parameters(
    plant: Plant, errors: Mapping[str, float | Sequence[float]], problems: Problems, *where: str
) -> dict[str, Any]:
    """Parameter -> (1 + e) times its value, for relative errors e of the field at `where`.

    One actuator's share of a parameter may be named alone, as in `armature.u1`.
    """
    fields = parameter_fields(plant)
    single = [name for name in parameter_names(plant) if "." in name]
    changed: dict[str, Any] = {}
    for name, error in errors.items():
        path, field = (*where, name), field_of(name)
        if name in single and np.ndim(error) == 0:
            values = list(changed.get(field, getattr(plant, field)))
            values[list(plant.actuators).index(name.partition(".")[2])] *= 1.0 + float(cast(float, error))
            changed[field] = tuple(values)
            continue
        if name not in fields:
            kind = type(plant).__name__
            problems.add(f"{kind} has no such parameter that is a number ({remedy(name, [*fields, *single])})", *path)
            continue
        length, value = fields[name], changed.get(name, getattr(plant, name))
        scale = 1.0 + np.asarray(error, dtype=float)
        if scale.ndim and len(scale) != length:
            expected = "one number" if length is None else f"one number, or {length}"
            problems.add(f"expected {expected}, got {len(scale)}", *path)
            continue
        changed[name] = float(value * scale) if length is None else tuple((np.array(value) * scale).tolist())
    return changed


def fields_of(kind: type[Any], parameters: Mapping[str, Any], problems: Problems, *path: str | int) -> dict[str, Any]:
    """Values of the fields, each as the field's type."""
    if not dataclasses.is_dataclass(kind):
        if parameters:
            what = f"{kind.__name__} has no parameters (decorate it with @dataclass(frozen=True))"
            problems.add(what, *path, "parameters")
        return {}
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    parameters_of, given = annotated(kind), {}
    for name, value in parameters.items():
        if name not in fields:
            problems.add(f"{kind.__name__} has no such parameter ({remedy(name, fields)})", *path, "parameters", name)
            continue
        try:
            given[name] = _converted(value, parameters_of.get(name), fields[name].type)
        except ServoctlError as error:
            problems.add(error, *path, "parameters", name)
    for name, field in fields.items():
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if not optional and name not in parameters:
            problems.add(f"{kind.__name__} needs the parameter '{name}' (it has no default)", *path, "parameters")
    return given


def _converted(value: Any, numbers: Numbers | None, annotation: Any) -> Any:
    """A config's value as the field's type.

    Args:
        numbers: Of a parameter; None: the field is none.
    """
    if numbers is None:
        return _of_structure(value, annotation)
    if not numbers.many:
        return constant(value)
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"expected a list of numbers, got {value!r}")
    if numbers.size not in (None, len(value)):
        raise ConfigError(f"expected {numbers.size} numbers, got {list(value)!r}")
    return tuple(constant(item) for item in value)


def _of_structure(value: Any, annotation: Any) -> Any:
    """A config's value as the type of a field that is no parameter."""
    wanted = {"int": int, "str": str, "bool": bool}.get(getattr(annotation, "__name__", str(annotation)))
    if wanted is int and isinstance(value, float) and value.is_integer():
        return int(value)
    # True is an int in Python; in a config it is a mistake
    if wanted is not None and (not isinstance(value, wanted) or (wanted is int and isinstance(value, bool))):
        word = {"int": "an integer", "str": "text", "bool": "true or false"}[wanted.__name__]
        raise ConfigError(f"expected {word}, got {value!r}")
    return tuple(value) if isinstance(value, list) else value


def _finite(value: Any) -> bool:
    """Whether all numbers of a field are finite after the class's own `__post_init__`."""
    try:
        return bool(np.isfinite(np.asarray(value, dtype=float)).all())
    except (TypeError, ValueError, OverflowError):
        return False
