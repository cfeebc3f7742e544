"""Every file that a run of a config depends on: what must be the same to continue a sweep, and what a worker needs."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from servoctl.assembly.classes import siblings
from servoctl.config.files import class_files, data_files
from servoctl.config.load import LoadedConfig
from servoctl.errors import ConfigError
from servoctl.mechanics.spatial.urdf import mesh_file
from servoctl.mechanics.spatial.xml_file import read_xml

XML = (".xml", ".urdf", ".mjcf")  # suffixes of files that may name other files
FOLDERS = ("meshdir", "texturedir", "assetdir")  # attributes of an MJCF's `<compiler>` that name folders of its assets


def files_of(loaded: LoadedConfig) -> dict[str, Path]:
    """Name from the config's folder -> file: classes, what they import from their folder, robots, references, and
    what the files of robots name: includes and meshes.

    Args:
        loaded: A config whose run has been made, so that its classes are imported.
    """
    classes, data = class_files(loaded.config), data_files(loaded.config)
    found = {name: loaded.folder / name for name in (*classes, *data)}
    for name in classes:
        home = (loaded.folder / name).resolve().parent
        found |= {_beside(name, path, home): path for path in siblings(home)}
    for name in data:
        file = loaded.folder / name
        found |= {_beside(name, path, file.parent): path for path in _named_in(file, file, set())}
    return found


def hashes_of(loaded: LoadedConfig) -> dict[str, str]:
    """Name from the config's folder -> hash of the file's content, for each of `files_of`."""
    return {name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for name, path in files_of(loaded).items()}


def _beside(name: str, path: Path, home: Path) -> str:
    """The name of a file from the config's folder, where `name` is that of a file in the folder `home`."""
    return str(Path(name).parent / os.path.relpath(path, home))


def _named_in(file: Path, main: Path, seen: set[Path]) -> Iterator[Path]:
    """Files that an XML file names, and those that these include; MuJoCo looks from the main file's folder too."""
    if file.suffix.lower() not in XML or file in seen:
        return
    seen.add(file)
    try:
        root = read_xml(file)
    except ConfigError:
        return  # reported where the robot is read
    folders = [element.get(key) or "" for element in root.iter("compiler") for key in FOLDERS]
    places = [home / folder for home in (file.parent, main.parent) for folder in ("", *folders)]
    for element in root.iter():
        address, mesh = element.get("file"), element.get("filename")
        candidates = [] if address is None else [place / address for place in places]
        candidates += [path for path in [mesh_file(mesh, file)] if path is not None] if mesh is not None else []
        path = next((path for path in candidates if path.is_file()), None)
        if path is not None:
            yield path
            yield from _named_in(path, main, seen)
