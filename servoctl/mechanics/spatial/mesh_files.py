"""Finds the file of a mesh that a robot file names."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

SCHEMES = ("package", "model")  # schemes of an address that names a package, then a path in it


def mesh_file(address: str, robot_file: Path) -> Path | None:
    """The file of a mesh; None if there is none. Nothing is fetched from a network.

    Args:
        address: `package://name/path`, `model://name/path`, `file:///path`, or a path relative to the robot file.
        robot_file: The file that names the mesh.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        places = iter([robot_file.parent / address])
    elif scheme in SCHEMES:
        places = _in_packages(rest, robot_file)
    else:
        places = iter([Path(unquote(rest))] if scheme == "file" else [])
    return next((place for place in places if os.path.isfile(place)), None)


def _in_packages(path: str, robot_file: Path) -> Iterator[Path]:
    """Yields where a package's file may be: above the robot file, then in ROS 1 and ROS 2 search paths."""
    package, _, inside = path.partition("/")
    for folder in robot_file.absolute().parents:
        yield folder / package / inside
        if folder.name == package:
            yield folder / inside
    for folder in _search_path("ROS_PACKAGE_PATH"):
        yield folder / package / inside
        if folder.name == package:
            yield folder / inside
    for folder in _search_path("AMENT_PREFIX_PATH"):
        yield folder / "share" / package / inside


def _search_path(variable: str) -> list[Path]:
    return [Path(folder) for folder in os.environ.get(variable, "").split(os.pathsep) if folder]
