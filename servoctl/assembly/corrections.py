"""A config's `correction`, `robust`, `adaptive` and `observer`, which know how late the actuators follow."""

from collections.abc import Mapping
from typing import Any

from servoctl.assembly.following import following, predicted
from servoctl.assembly.gains import Spacing
from servoctl.assembly.realism import build_realism
from servoctl.assembly.values import Problems
from servoctl.config.corrections import CorrectionConfig
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import LawConfig, ObserverConfig
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.laws.corrections import Baumgarte, Correction, PFeedback, Poles, SecondOrderCorrection
from servoctl.laws.funnel import Funnel
from servoctl.laws.observer import Observer
from servoctl.laws.observer_limit import largest_rate, of_one_row
from servoctl.laws.robust_design import Adaptive, Robust
from servoctl.laws.uncertainty import ModelError
from servoctl.mechanics.plant import Plant

CORRECTIONS: dict[str, type[Correction]] = {
    "baumgarte": Baumgarte,
    "second_order": SecondOrderCorrection,
    "p_feedback": PFeedback,
    "funnel": Funnel,
}
"""Kind in a config -> class; the keys of the section are its fields."""


def build_correction(values: CorrectionConfig | None, timing: Spacing | None = None) -> Correction | None:
    """The correction of a config; None without one.

    Args:
        values: The section of the config.
        timing: How often the law acts, and how late; None: it acts continuously.
    """
    if values is None:
        return None
    for name, kind in CORRECTIONS.items():
        section = getattr(values, name)
        if section is None:
            continue
        fields: dict[str, Any] = dict(section)
        if kind is Funnel and timing is not None:
            fields |= {"period": timing.h, "delay": timing.delay, "lag": timing.lag, "velocity": timing.velocity}
        return kind(**fields)
    assert values.poles is not None
    return Poles(values.poles)


def correction_timing(loaded: LoadedConfig, plant: Plant, on_drives: bool, trusting: bool = True) -> Spacing | None:
    """How often the law acts, and how late; None: it acts continuously.

    Args:
        loaded: The config.
        plant: The plant.
        on_drives: Whether the law runs at the period of `hil`; else at that of `run`.
        trusting: Whether a predicted state takes the delay back, as it does where the model is right.
    """
    hil = loaded.config.hil
    if on_drives and hil is not None:
        return Spacing.on_drives(hil)
    period, values = loaded.config.run.period, loaded.config.realism
    if period is None:  # what a law for drives promises is what it promises there
        return None if hil is None else Spacing.on_drives(hil)
    realism = None if values is None else build_realism(values, plant, period, Problems(loaded))
    return Spacing.simulated(realism, period, predicted=trusting and predicted(loaded, on_drives))


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


def build_observer(loaded: LoadedConfig, plant: Plant, problems: Problems, on_drives: bool) -> Observer | None:
    """The observer of a config; None without one, or without a period, which is noted; arguments as of `following`."""
    law = loaded.config.law
    if not isinstance(law, LawConfig) or law.observer is None:
        return None
    acts = following(loaded, plant, on_drives)
    if acts is None:
        problems.add("needs a sampled law (give run.period)", "law", "observer")
        return None
    if loaded.config.estimation is not None:
        acts = acts._replace(delay=0.0)  # the state that it gets is that of the moment at which the command acts
    rate = law.observer.rate if isinstance(law.observer, ObserverConfig) else None
    return Observer(acts.period, rate, *acts[1:])


def largest_lateness(loaded: LoadedConfig | None) -> float:
    """How much later than an observer knows a jitter makes commands act at most: it counts on the mean [s]."""
    realism = None if loaded is None or loaded.config.estimation is not None else loaded.config.realism
    return 0.0 if realism is None else realism.jitter / 2.0


def stable_rates(law: BoundConstraintFollowing, error: ModelError | None, later: float) -> list[float]:
    """Largest stable rate of the observer of each row [1/s], for every machine of the box and every delay.

    Args:
        law: The law, with an observer.
        error: Of the model over a box; None: no box.
        later: As of `largest_lateness` [s].
    """
    assert law.observer is not None
    errors = (0.0,) if error is None else (error.rho, 0.0, error.upper)
    return [
        min(
            largest_rate(of_one_row(law.observer, i), law.damping[i], law.stiffness[i], E, law.observer_rate, late)
            for E in errors
            for late in {0.0, later}
        )
        for i in range(len(law.observed))
    ]


def rate_refusals(law: BoundConstraintFollowing, error: ModelError | None, later: float) -> list[str]:
    """Why the rate of the observer is refused, per row; empty if it is stable, or without an observer."""
    if law.observer is None:
        return []
    worst = "" if error is None else " for the worst machine of law.uncertainty"
    return [
        f"{name}: unstable at {law.observer_rate:.4g} 1/s{worst} (use a rate below {limit:.4g})"
        for name, limit in zip(law.observed, stable_rates(law, error, later), strict=True)
        if law.observer_rate > limit
    ]
