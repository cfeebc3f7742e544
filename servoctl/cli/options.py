"""Arguments and options that several commands share."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    typer.Option("--set-file", metavar="FILE", help="Lay a YAML file over the config, before --set; repeatable."),
]
Jobs = Annotated[int, typer.Option(metavar="J", min=1, help="Cores that work at the same time.")]
ClusterAddress = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="tcp://host:port of a Dask scheduler whose workers do the runs instead."),
]


def given(files: list[Path] | None, overrides: list[str] | None) -> "list[Override]":
    """The files of `--set-file`, then the arguments of `--set`."""
    return [*(files or ()), *(overrides or ())]


def connected(address: str | None, jobs: int) -> "AbstractContextManager[Cluster | None]":
    """The cluster that makes the runs; None where there is none.

    Raises:
        ConfigError: None answers there, or `--jobs` is given besides.
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
