"""A config's `law.robust` or `law.adaptive` -> the term, which knows how late the actuators follow."""

from collections.abc import Mapping
from typing import Any

from servoctl.assembly.gains import DRIVES_DELAY
from servoctl.assembly.problems import Problems
from servoctl.assembly.realism import build_realism
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
    period, late = _timing(loaded, plant, on_drives)
    if law.robust is not None:
        values = law.robust
        bound: Any = dict(values.bound) if isinstance(values.bound, Mapping) else values.bound
        return Robust(bound, values.boundary_layer, scale=values.scale, period=period, late=late)
    if law.adaptive is not None:
        a = law.adaptive
        numbers = a.rate, a.leak or 0.0, a.width or 0.0, a.gain_budget
        return Adaptive(a.kind, *numbers, scale=a.scale, period=period, late=late)
    return None


def _timing(loaded: LoadedConfig, plant: Plant, on_drives: bool) -> tuple[float | None, float]:
    """Period [s], and periods from a measurement to the torque; a jitter counts by its mean, a lag as a delay."""
    hil, period, realism = loaded.config.hil, loaded.config.run.period, loaded.config.realism
    if on_drives and hil is not None:
        return hil.period, DRIVES_DELAY + hil.emulation.current_lag / hil.period
    if period is None or realism is None:
        return period, 0.0
    acts = build_realism(realism, plant, period, Problems(loaded))
    return period, (acts.delay + acts.jitter / 2.0 + max(acts.lag, default=0.0)) / period
