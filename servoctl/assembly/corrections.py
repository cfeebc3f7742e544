"""A config's `correction`, `robust`, `adaptive` and `observer`, which know how late the actuators follow."""

from collections.abc import Mapping
from typing import Any

from servoctl.assembly.timing import correction_timing, timing_of
from servoctl.assembly.values import Problems
from servoctl.config.corrections import CorrectionConfig
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import LawConfig, ObserverConfig
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.corrections import Baumgarte, Correction, PFeedback, Poles, SecondOrderCorrection
from servoctl.laws.funnel import Funnel
from servoctl.laws.observer import Observer, largest_rate, of_one_row
from servoctl.laws.robust_design import Adaptive, Robust
from servoctl.laws.uncertainty import ModelError
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing

CONTINUOUS = Timing(None)

CORRECTIONS: dict[str, type[Correction]] = {
    "baumgarte": Baumgarte,
    "second_order": SecondOrderCorrection,
    "p_feedback": PFeedback,
    "funnel": Funnel,
}
"""Kind in a config -> class; the keys of the section are its fields."""


def build_correction(values: CorrectionConfig | None, timing: Timing = CONTINUOUS) -> Correction | None:
    """The correction of a config; None without one."""
    if values is None:
        return None
    for name, kind in CORRECTIONS.items():
        section = getattr(values, name)
        if section is None:
            continue
        fields: dict[str, Any] = dict(section)
        return kind(**fields, timing=timing) if kind is Funnel else kind(**fields)
    assert values.poles is not None
    return Poles(values.poles)


def build_robust(loaded: LoadedConfig, plant: Plant, on_drives: bool) -> Robust | Adaptive | None:
    """The robust or adaptive term of a config; None without."""
    law = loaded.config.law
    if not isinstance(law, LawConfig):
        return None
    timing = correction_timing(loaded, plant, on_drives, trusting=False)
    if law.robust is not None:
        values = law.robust
        bound: Any = dict(values.bound) if isinstance(values.bound, Mapping) else values.bound
        return Robust(bound, values.boundary_layer, scale=values.scale, timing=timing)
    if law.adaptive is not None:
        a = law.adaptive
        numbers = a.rate, a.leak or 0.0, a.width or 0.0, a.gain_budget
        return Adaptive(a.kind, *numbers, scale=a.scale, timing=timing)
    return None


def build_observer(loaded: LoadedConfig, plant: Plant, problems: Problems, on_drives: bool) -> Observer | None:
    """The observer of a config; None without one, or without a period, which is noted; arguments as of `timing_of`."""
    law = loaded.config.law
    if not isinstance(law, LawConfig) or law.observer is None:
        return None
    timing = timing_of(loaded, plant, on_drives)
    if timing.period is None:
        problems.add("needs a sampled law (give run.period)", "law", "observer")
        return None
    rate = law.observer.rate if isinstance(law.observer, ObserverConfig) else None
    return Observer(timing if loaded.config.estimation is None else timing.at_action, rate)


def stable_rates(law: AttachedConstraintFollowing, error: ModelError | None) -> list[float]:
    """Largest stable rate of the observer of each row [1/s], for every machine of the box and every delay.

    Args:
        law: The law, with an observer.
        error: Of the model over a box; None: no box.
    """
    assert law.observer is not None
    errors = (0.0,) if error is None else (error.rho, 0.0, error.upper)
    return [
        min(
            largest_rate(of_one_row(law.observer, i), *law.correction.gains(i)[:2], E, law.observer.rate)
            for E in errors
        )
        for i in range(len(law.observed))
    ]


def rate_refusals(law: AttachedConstraintFollowing, error: ModelError | None) -> list[str]:
    """Why the rate of the observer is refused, per row; empty if it is stable, or without an observer."""
    if law.observer is None:
        return []
    worst = "" if error is None else " for the worst machine of law.uncertainty"
    return [
        f"{name}: unstable at {law.observer.rate:.4g} 1/s{worst} (use a rate below {limit:.4g})"
        for name, limit in zip(law.observed, stable_rates(law, error), strict=True)
        if law.observer.rate > limit
    ]
