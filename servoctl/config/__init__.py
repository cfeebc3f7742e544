"""YAML -> checked values: what a config says, with every default filled in and every problem at once.

Design: three sieves, each with one kind of question. `yaml_loader`: is it YAML that cannot be misread? `schema`: is
each field what it should be? `rules`: do the fields fit each other? Names of coordinates, actuators and parameters are
checked by the room that builds the plant; `LoadedConfig.where` gives it the place of each field.
"""

from servoctl.config.document import FieldPath, Problem
from servoctl.config.dump import dump
from servoctl.config.load import LoadedConfig, load_config
from servoctl.config.problems import json_schema, validate
from servoctl.config.schema import Config
from servoctl.config.shipped import first_line, shipped_configs

__all__ = [
    "Config",
    "FieldPath",
    "LoadedConfig",
    "Problem",
    "dump",
    "first_line",
    "json_schema",
    "load_config",
    "shipped_configs",
    "validate",
]
