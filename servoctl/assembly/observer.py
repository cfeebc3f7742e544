"""A config's `law.observer` -> the disturbance observer, which knows how late and how far the actuators follow."""

from servoctl.assembly.gains import DRIVES_DELAY
from servoctl.assembly.problems import Problems
from servoctl.assembly.realism import build_realism
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import LawConfig, ObserverConfig
from servoctl.laws.observer import Observer
from servoctl.mechanics.plant import Plant


def build_observer(loaded: LoadedConfig, plant: Plant, problems: Problems, on_drives: bool) -> Observer | None:
    """The observer of a config; None without one, or without a period, which is noted.

    Args:
        loaded: The config.
        plant: The plant.
        problems: Collects the problems.
        on_drives: Whether period and delay are those of `hil`; else `run.period`, and the delay, lag and saturation of
            `realism`.
    """
    law, run, realism = loaded.config.law, loaded.config.run, loaded.config.realism
    if not isinstance(law, LawConfig) or law.observer is None:
        return None
    rate = law.observer.rate if isinstance(law.observer, ObserverConfig) else None
    if on_drives and loaded.config.hil is not None:
        period = loaded.config.hil.period
        return Observer(period, rate, DRIVES_DELAY * period, engaged=True)
    if run.period is None:
        problems.add("needs a sampled law (give run.period)", "law", "observer")
        return None
    if realism is None:
        return Observer(run.period, rate)
    # its problems are noted where the plant's realism is built
    acts = build_realism(realism, plant, run.period, Problems(loaded))
    late = acts.delay + acts.jitter / 2.0
    return Observer(run.period, rate, late, acts.lag, acts.lower, acts.upper)
