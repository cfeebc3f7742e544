"""`servoctl doctor`: what this machine grants, and what each lack costs."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated, Any

import typer

from servoctl.cli.console import say, say_json, say_table
from servoctl.cli.options import AsJson
from servoctl.compiled import AS_PYTHON
from servoctl.engine import cache, compiler
from servoctl.errors import CompileError

CAN_INTERFACE = "280"  # ARPHRD_CAN of linux/if_arp.h
LOCK_CURRENT = 1  # MCL_CURRENT of sys/mman.h


def doctor(
    clear_cache: Annotated[bool, typer.Option("--clear-cache", help="Empty the cache of compiled libraries.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what this machine grants, and what each lack costs."""
    if clear_cache:
        _clear_cache(as_json)
        return
    findings = examine()
    if as_json:
        say_json(findings)
        return
    packages = {name: number or "not installed" for name, number in findings.pop("packages").items()}
    lacks = findings.pop("lacks")
    say_table(["", ""], [[key.replace("_", " "), _words(value)] for key, value in findings.items()])
    say()
    say_table(["package", "version"], [[name, number] for name, number in packages.items()])
    say()
    for lack in lacks or ["nothing is lacking"]:
        say(lack)


def _clear_cache(as_json: bool) -> None:
    count, length = cache.clear()
    if as_json:
        say_json({"cache": str(cache.folder()), "removed": count, "bytes": length})
    else:
        say(f"{cache.folder()}: {count} files removed, {length / 1e6:.1f} MB")


def examine() -> dict[str, Any]:
    """What this machine grants, as JSON knows it; `lacks` holds one sentence per thing that is missing."""
    findings: dict[str, Any] = {
        "servoctl": version("servoctl"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": _cpus(),
        "compiler": _compiler(),
        "compiled_loop": not AS_PYTHON,
        "cache": str(cache.folder()),
        "cache_files": cache.size()[0],
        "cache_bytes": cache.size()[1],
        "cache_used": cache.refusal() is None,
        "can_interfaces": _can_interfaces(),
        "realtime_kernel": Path("/sys/kernel/realtime").exists(),
        "sched_fifo": _may_run_in_real_time(),
        "memory_lock": _may_lock_memory(),
        "memlock_bytes": _memlock_limit(),
        "packages": {name: _version(name) for name in _dependencies()},
    }
    return findings | {"lacks": lacks(findings)}


def lacks(findings: dict[str, Any]) -> list[str]:
    costs = {
        "compiler": "no C compiler: engine vm needs none, but long runs take some ten times as long on it",
        "compiled_loop": f"the loop on drives runs as Python, at half its speed: {AS_PYTHON}",
        "cache_used": f"compiled libraries are not kept, so each run compiles its own: {cache.refusal()}",
        "can_interfaces": "no CAN interface: no real drive can be reached; simulation needs none",
        "realtime_kernel": "no real-time kernel: a loop in real time may be late by milliseconds under load;"
        " simulation does not care",
        "sched_fifo": "no right to SCHED_FIFO: other processes delay a loop in real time (raise rtprio in"
        " /etc/security/limits.d); simulation does not care",
        "memory_lock": "memory cannot be locked: a page fault may delay a tick (raise memlock in"
        " /etc/security/limits.d); simulation does not care",
    }
    lacks = [sentence for key, sentence in costs.items() if not findings[key]]
    missing = [name for name, number in findings["packages"].items() if number is None]
    if missing:
        lacks.append(f"not installed: {', '.join(missing)} (pip install {' '.join(missing)})")
    if findings["cpus"] == 1:
        lacks.append("one CPU: a loop in real time shares it with everything else")
    return lacks


def _cpus() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _compiler() -> str | None:
    """The C compiler and what it calls itself; None where there is none that answers."""
    command = compiler.compiler()
    try:
        return None if command is None else f"{' '.join(command)}: {compiler.identity().splitlines()[0]}"
    except (CompileError, IndexError):
        return None


def _can_interfaces() -> list[str]:
    """Names of the CAN interfaces that the kernel has, virtual ones included."""
    kinds = sorted(Path("/sys/class/net").glob("*/type"))
    return [kind.parent.name for kind in kinds if kind.read_text().strip() == CAN_INTERFACE]


def _may_run_in_real_time() -> bool:
    """Whether this process gets SCHED_FIFO: asked for, and given back at once."""
    if not hasattr(os, "sched_setscheduler"):
        return False
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))
    except OSError:
        return False
    os.sched_setscheduler(0, policy, parameters)
    return True


def _may_lock_memory() -> bool:
    """Whether this process may lock its memory: asked for, and given back at once."""
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        locked = bool(libc.mlockall(LOCK_CURRENT) == 0)
    except (OSError, AttributeError, TypeError):  # a system without it
        return False
    if locked:
        libc.munlockall()
    return locked


def _memlock_limit() -> int | str | None:
    """Limit of locked memory [byte], `unlimited`, or None where the system has no such limit."""
    try:
        import resource
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return "unlimited" if limit == resource.RLIM_INFINITY else limit


def _dependencies() -> list[str]:
    """Names of the packages that servoctl needs, those of its extras left out."""
    required = [line for line in requires("servoctl") or [] if "extra ==" not in line]
    return [match[0] for line in required if (match := re.match(r"[\w.-]+", line))]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) or "none" if isinstance(value, list) else "none" if value is None else str(value)
