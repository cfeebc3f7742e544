"""A config's `law.observer` -> the disturbance observer, which knows how late and how far the actuators follow."""

from servoctl.assembly.following import following
from servoctl.assembly.problems import Problems
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import LawConfig, ObserverConfig
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.laws.observer import Observer
from servoctl.laws.observer_limit import largest_rate, of_one_row
from servoctl.laws.uncertainty import ModelError
from servoctl.mechanics.plant import Plant


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
