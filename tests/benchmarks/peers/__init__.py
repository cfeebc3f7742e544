"""Other programs that do the same work, where they are installed.

Design: every mechanism is one `Tree` of planar bars and loops. Each peer builds its own model from it, in its natural
joint coordinates. States are converted before the clock starts, results after it has stopped.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

PACKAGES = {"pinocchio": "pin", "mujoco": "mujoco"}
"""Module -> distribution."""


def missing(module: str) -> str | None:
    """Why a peer cannot take part, in one line; None if it can."""
    try:
        import_module(module)
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == module
        why = "is not installed" if absent else f"cannot be imported ({str(error).splitlines()[0]})"
        return f"{module} {why}: left out (pip install 'servoctl[bench]')"
    return None


def notes() -> list[str]:
    """A sentence for each peer that cannot take part."""
    return list(filter(None, map(missing, PACKAGES)))


def versions() -> dict[str, str | None]:
    """Distribution -> version; None where it is not installed."""
    installed_versions: dict[str, str | None] = {}
    for package in ("numpy", "casadi", *PACKAGES.values()):
        try:
            installed_versions[package] = version(package)
        except PackageNotFoundError:
            installed_versions[package] = None
    return installed_versions


def installed() -> dict[str, bool]:
    """Module -> whether it can take part."""
    return {module: missing(module) is None for module in PACKAGES}
