"""Arguments and options that several commands share."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

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
