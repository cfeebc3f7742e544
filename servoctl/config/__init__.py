"""What does a config say? YAML -> checked values with all defaults; all problems are reported at once.

Design: two checks, one after the other. `document`: is it YAML with only one meaning? `load`: is each section
valid, and do its fields and the sections fit each other? The rules are methods of the classes in `schema` and below.
Names of coordinates, actuators and parameters are checked in `assembly`, which builds the plant; `LoadedConfig.where`
tells it file and line of each field.
"""

from servoctl.config.document import Problem
from servoctl.config.load import LoadedConfig, dump, first_line, json_schema, load_config, shipped_configs, validate
from servoctl.config.schema import Config

__all__ = [
    "Config",
    "LoadedConfig",
    "Problem",
    "dump",
    "first_line",
    "json_schema",
    "load_config",
    "shipped_configs",
    "validate",
]
