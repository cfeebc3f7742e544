"""Ranges of the fields of an MIT frame, from a drive's options or from the table of motors."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

from servoctl.expression import constant

MINI_CHEETAH = {"position": 12.5, "velocity": 45.0, "torque": 18.0, "kp": 500.0, "kd": 5.0}
"""Default ranges: those of the Mini Cheetah's drive."""


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    table: dict[str, Mapping[str, Any]] = yaml.safe_load(
        (resources.files("hil") / "drives/mit_ranges.yaml").read_text()
    )
    return table


def ranges_of(options: Mapping[str, Any]) -> dict[str, float]:
    """Largest position [rad], velocity [rad/s], torque [N m], kp [N m/rad] and kd [N m s/rad].

    Args:
        options: Options of a drive: `ranges`, a mapping of these, or `motor`, a name in the table.

    Raises:
        KeyError: The table has no such motor.
    """
    given = options.get("ranges") or (_table()[options["motor"]] if options.get("motor") else MINI_CHEETAH)
    return {name: float(constant(given[name])) for name in MINI_CHEETAH}
