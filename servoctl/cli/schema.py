"""`servoctl schema`: prints the JSON Schema of a config, for editors."""

from servoctl.cli.console import say_json


def schema() -> None:
    """Print the JSON Schema of a config."""
    from servoctl.config import json_schema

    say_json(json_schema())
