"""Arguments, options and output folders that several commands share."""

from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from servoctl.errors import ConfigError

if TYPE_CHECKING:
    from servoctl.config.overrides import Override
    from servoctl.sweep.cluster import Cluster


Config = Annotated[str, typer.Argument(metavar="CONFIG", help="A path, or the bare name of a shipped config.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of text.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the config; repeatable."),
]
SetFiles = Annotated[
    list[Path] | None,
    typer.Option("--set-file", metavar="FILE", help="Merge a YAML file into the config, before --set; repeatable."),
]
RunFolderOut = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="The run folder; default: runs/<name>-<date>-<time>.")
]
EngineName = Literal["auto", "c", "vm", "numpy"]
ManyRunsEngine = Annotated[
    EngineName,
    typer.Option("--engine", help="auto compiles to C if that pays for all runs together; the others as in run."),
]
Classes = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Folder of Python files such as cart.py:Cart that the config of a run names; default: where they were.",
    ),
]
Jobs = Annotated[int, typer.Option(metavar="J", min=1, help="Number of CPU cores to use.")]
ClusterAddress = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="tcp://host:port of a Dask scheduler whose workers make the runs."),
]


def changes_of(files: list[Path] | None, settings: list[str] | None) -> "list[Override]":
    """The files of `--set-file`, then the arguments of `--set`."""
    return [*(files or ()), *(settings or ())]


def connected(address: str | None, jobs: int) -> "AbstractContextManager[Cluster | None]":
    """A connection to the cluster that makes the runs; None without `--cluster`.

    Raises:
        ConfigError: No scheduler answers at the address, or `--jobs` is given too.
    """
    from servoctl.errors import ConfigError

    if address is None:
        return nullcontext()
    if jobs > 1:
        raise ConfigError(
            f"--jobs {jobs}: given with --cluster, which has as many workers as were started (leave it out)"
        )
    from servoctl.sweep.cluster import Cluster

    return Cluster(address)


def fresh_folder(name: str) -> Path:
    """A folder below `runs` that does not exist yet: `<name>-<date>-<time>`."""
    stem = Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (stem if number == 1 else stem.with_name(f"{stem.name}-{number}") for number in count(1))
    return next(path for path in names if not path.exists())


def study_folder(name: str, out: Path | None, resume: bool, file: str) -> Path:
    """The folder of a sweep or a search.

    Args:
        name: Beginning of the folder's name.
        out: The argument of `--out`.
        resume: Whether the folder must exist.
        file: Name of the file that an interrupted study leaves.

    Raises:
        ConfigError: `resume` without `--out`; the message names the newest folder.
    """
    if out is not None or not resume:
        return out or fresh_folder(name)
    folders = sorted(Path("runs").glob(f"{name}-*/{file}"), key=lambda path: path.stat().st_mtime)
    hint = f"the newest: --out {folders[-1].parent}" if folders else f"no folder matches runs/{name}-*"
    raise ConfigError(f"--resume: needs --out ({hint})")
