"""What the bit fields of an MIT drive mean: as its options say, or as the table of motors has it, which is data."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

from servoctl.expression import constant

MINI_CHEETAH = {"position": 12.5, "velocity": 45.0, "torque": 18.0, "kp": 500.0, "kd": 5.0}
"""Ranges where the options name none: those of the first of these drives."""


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    table: dict[str, Mapping[str, Any]] = yaml.safe_load(
        (resources.files("hil") / "drives/mit_ranges.yaml").read_text()
    )
    return table


def ranges_of(options: Mapping[str, Any]) -> dict[str, float]:
    """Largest position [rad], velocity [rad/s], torque [N m], kp [N m/rad] and kd [N m s/rad].

    Args:
        options: Of a drive; `ranges`, a mapping of these, or else `motor`, a name in the table.

    Raises:
        KeyError: The table has no such motor.
    """
    given = options.get("ranges") or (_table()[options["motor"]] if options.get("motor") else MINI_CHEETAH)
    return {name: float(constant(given[name])) for name in MINI_CHEETAH}
