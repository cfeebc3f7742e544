"""A config's `law.observer` -> the disturbance observer, which knows how late and how far the actuators follow."""

from servoctl.assembly.following import following
from servoctl.assembly.problems import Problems
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import LawConfig, ObserverConfig
from servoctl.laws.observer import Observer
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
