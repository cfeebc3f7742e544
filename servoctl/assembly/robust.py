"""A config's `law.robust` or `law.adaptive` -> the term, which knows how late the actuators follow."""

from collections.abc import Mapping
from typing import Any

from servoctl.assembly.corrections import correction_timing
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import LawConfig
from servoctl.laws.robust_design import Adaptive, Robust
from servoctl.mechanics.plant import Plant


def build_robust(loaded: LoadedConfig, plant: Plant, on_drives: bool) -> Robust | Adaptive | None:
    """The robust or adaptive term of a config; None without.

    Args:
        loaded: The config.
        plant: The plant.
        on_drives: Whether period and delay are those of `hil`; else `run.period`, and the delay and lag of `realism`.
    """
    law = loaded.config.law
    if not isinstance(law, LawConfig):
        return None
    timing = correction_timing(loaded, plant, on_drives, trusting=False)
    period, late = (None, 0.0) if timing is None else (timing.h, timing.delay + timing.lag)  # a lag counts as a delay
    if law.robust is not None:
        values = law.robust
        bound: Any = dict(values.bound) if isinstance(values.bound, Mapping) else values.bound
        return Robust(bound, values.boundary_layer, scale=values.scale, period=period, late=late)
    if law.adaptive is not None:
        a = law.adaptive
        numbers = a.rate, a.leak or 0.0, a.width or 0.0, a.gain_budget
        return Adaptive(a.kind, *numbers, scale=a.scale, period=period, late=late)
    return None
