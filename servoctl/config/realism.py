"""Rules of `realism` and `estimation` with other sections."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from servoctl.config.document import Problem, mapping
from servoctl.simulation.realism import LONGEST_DELAY, OWN
from servoctl.tree.fields import number_or


def realism_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of `realism` with `run`."""
    realism, run = values.get("realism"), values.get("run")
    if realism is None or not isinstance(run, Mapping):
        return
    if mapping(realism).get("machine") is not None and mapping(values, "hil", "emulation").get("parameters"):
        yield Problem(("hil", "emulation", "parameters"), OWN)
    period = number_or(math.nan, run.get("period"))
    behind_drives = (
        isinstance(realism, Mapping) and realism.get("machine") is not None and values.get("hil") is not None
    )
    if run.get("period") is None and not behind_drives:
        yield Problem(("realism",), "needs run.period (realism is for sampled laws: give run.period [s])")
    if not period > 0.0 or not isinstance(realism, Mapping):
        return
    delay, jitter = (number_or(0.0, realism.get(field)) for field in ("delay", "jitter"))
    if delay > LONGEST_DELAY * period:
        cycles = f"{delay:g} s is {delay / period:.4g} periods of {period:g} s"
        yield Problem(("realism", "delay"), f"{cycles} (expected at most {LONGEST_DELAY}; is the unit right? 5*ms)")
    if jitter > period * (1 + 1e-9):
        yield Problem(
            ("realism", "jitter"),
            f"{jitter:g} s is longer than run.period, {period:g} s (commands would overtake each other)",
        )


REPLACED = {"velocity": "source of speeds", "velocity_filter": "filter of speeds", "prediction": "prediction"}
"""Fields of `hil` that an estimator replaces."""


def estimation_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of `estimation` with itself and with `law`, `run` and `hil`."""
    given, path = values.get("estimation"), ("estimation",)
    if not isinstance(given, Mapping):
        return
    kind, law, hil = given.get("kind"), values.get("law"), mapping(values, "hil")
    if law == "none":
        yield Problem(path, "needs a law (an open-loop run has no use for an estimate)")
    if mapping(values, "run").get("period") is None and "hil" not in values:
        yield Problem(path, "needs a sampled law (give run.period)")
    if kind == "model" and mapping(values, "law").get("observer") is not None:
        yield Problem(
            ("law", "observer"),
            "cannot be used with estimation.kind model: both would cancel the same disturbance (leave one out)",
        )
    for field, what in REPLACED.items():
        if hil.get(field) not in (None, False, "drive"):
            yield Problem(("hil", field), f"estimation replaces this {what} (leave one of the two out)")
