"""A config's `law.uncertainty` -> machines of that box, and the states of the path at which they are compared."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from servoctl.assembly.model_error import ModelError, model_error, rate_refusals
from servoctl.assembly.realism import changed_parameters, retuned_model
from servoctl.assembly.values import Problems
from servoctl.config.load import LoadedConfig
from servoctl.config.schema import LawConfig
from servoctl.errors import ServoctlError
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.simulation.system import System
from servoctl.types import State

CORNERS = 64  # largest number of corners of the box; of a box with more, random ones are taken
INSIDE = 8  # number of random machines inside the box; the corners are tried too


@dataclass(frozen=True)
class Machines:
    """Machines of the box."""

    box: Mapping[str, tuple[float, float]]  # parameter -> (lower, upper) relative error
    errors: tuple[Mapping[str, float], ...]  # of each machine: parameter -> relative error
    models: tuple[Model, ...]  # the law's model with these parameters
    corners: bool  # whether every corner of the box is among them

    def named(self, index: int) -> str:
        """A machine in words: `m +30 %, I -10 %`."""
        return in_words(self.errors[index])


def in_words(errors: Mapping[str, float]) -> str:
    """Relative errors of a machine: `m +30 %, I -10 %`."""
    return ", ".join(f"{name} {100 * error:+.3g} %" for name, error in errors.items()) or "the law's model"


def uncertainty_box(loaded: LoadedConfig) -> dict[str, tuple[float, float]]:
    """Parameter -> (lower, upper) relative error; empty without `law.uncertainty`."""
    law = loaded.config.law
    if not isinstance(law, LawConfig):
        return {}
    given = law.uncertainty or {}
    return {name: (e[0], e[1]) if isinstance(e, tuple) else (-e, e) for name, e in given.items()}


def check_uncertainty(loaded: LoadedConfig, plant: Plant, problems: Problems) -> None:
    """Notes parameters of `law.uncertainty` that the plant does not have."""
    if box := uncertainty_box(loaded):
        changed_parameters(plant, dict.fromkeys(box, 0.0), problems, "law", "uncertainty")


def machines(loaded: LoadedConfig, model: Model, start: State, problems: Problems) -> Machines | None:
    """Corners of the box and random machines inside; None without a box, or with problems, which are noted."""
    box = uncertainty_box(loaded)
    if not box:
        return None
    errors, corners = machine_errors(box)
    before, found = len(problems), []
    for error in errors:
        changed = changed_parameters(model.plant, error, problems, "law", "uncertainty")
        if len(problems) == before:
            found.append(retuned_model(model, changed, start, problems, "law", "uncertainty"))
        if len(problems) > before:
            return None
    known = [machine for machine in found if machine is not None]
    return Machines(box, tuple(errors), tuple(known), corners)


def machine_errors(box: Mapping[str, tuple[float, float]]) -> tuple[list[Mapping[str, float]], bool]:
    """Parameter -> relative error, of each machine that stands for a box; whether every corner is among them."""
    errors = [dict(zip(box, map(float, values), strict=True)) for values in _errors(list(box.values()))]
    return list(errors), 2 ** len(box) <= CORNERS


def _errors(ends: Sequence[tuple[float, float]]) -> list[Iterable[float]]:
    """Relative errors of each machine, in the order of the box."""
    random, count = np.random.default_rng(0), len(ends)
    lower, upper = np.array(ends).T
    if 2**count <= CORNERS:
        corners: list[Iterable[float]] = list(itertools.product(*ends))
    else:
        corners = list(np.where(random.random((CORNERS, count)) < 0.5, lower, upper))
    return [*corners, *(lower + (upper - lower) * random.random((INSIDE, count)))]


def rests_on_model(law: AttachedConstraintFollowing) -> str | None:
    """The field of the law whose guarantee needs rho_E > -1; None: there is none."""
    if law.robust is not None:
        return "law.adaptive" if law.robust.adaptive else "law.robust"
    return None if law.observer is None else "law.observer"


def refusal(law: AttachedConstraintFollowing, error: ModelError, worst: str) -> str | None:
    """Why a law must not run on its box; None if it may."""
    field = rests_on_model(law)
    if field is None or error.rho > -1.0:
        return None
    return (
        f"rho_E = {error.rho:.3g} for {worst}: the inputs may act on the task against what the model says, so {field} "
        "would drive the task error away (expected above -1: make the box smaller, or identify these parameters)"
    )


def check_start_error(loaded: LoadedConfig, system: System, start: State, problems: Problems) -> None:
    """Notes a box for which the law's feedback has the wrong sign at the start, or its observer is too fast there."""
    law, model = system.following, system.model
    if law is None or rests_on_model(law) is None:
        return
    found = machines(loaded, model, start, problems)
    if found is None:
        return
    try:
        error = model_error(law, model, found.models, [start])
    except ServoctlError as wrong:
        problems.add(wrong, "law", "uncertainty")
        return
    sentence = refusal(law, error, found.named(error.at[1]))
    if sentence is not None:
        problems.add(sentence, "law", "uncertainty")
        return
    for sentence in rate_refusals(law, error):
        problems.add(sentence, "law", "observer")
