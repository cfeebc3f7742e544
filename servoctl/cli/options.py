"""Arguments and options that several commands share."""

from typing import Annotated

import typer

Config = Annotated[str, typer.Argument(metavar="CONFIG", help="A path, or the bare name of a shipped config.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of text.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the config; repeatable."),
]
