"""Cost of a reference from a file: values and two rates of three columns, against scipy for the same knots."""

import timeit
from dataclasses import asdict
from typing import Any

import numpy as np

from servoctl.bench.inside import Inside
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable
from servoctl.bench.timing import shown
from servoctl.engine.kernel import Kernel, inputs
from servoctl.errors import CompileError
from servoctl.reference.signal import Signal
from servoctl.reference.spline import spline
from servoctl.types import Array

KNOTS = (20, 200, 2000)
TARGET = 60e-9
"""Time for the largest of these in C [s]."""

STATES = 997
"""Number of times at which a reference is evaluated in turn, from its start to its end, as in a run."""


def rows(knots: int) -> tuple[Array, Array]:
    """Uneven times and three smooth columns."""
    times = np.linspace(0.0, 20.0, knots) + 0.2 / knots * np.sin(np.arange(knots))
    return times, np.stack([np.sin(times), np.cos(2 * times), np.exp(-0.1 * times)], axis=1)


def kernel_of(times: Array, values: Array) -> Kernel:
    """The function (t, x, p) -> columns, rates, second rates; x and p are not used."""
    curve = spline(times, values)
    signals = [Signal("path", name, curve, i) for i, name in enumerate("xyz")]
    given = inputs({"t": (1,), "x": (1,), "p": (1,)})
    t = given["t"][0]
    rates = [signal.rate(t, order) for order in (1, 2) for signal in signals]
    return Kernel.compile("reference", given, {"row": np.array([*(signal(t) for signal in signals), *rates])})


def measured(knots: int, calls: int) -> dict[str, Any]:
    """Medians in C, on the virtual machine and by scipy [s], and the largest difference between C and scipy."""
    from scipy.interpolate import CubicSpline

    times, values = rows(knots)
    kernel, peer = kernel_of(times, values), CubicSpline(times, values)
    at = np.linspace(times[0], times[-1], STATES)
    expected = np.concatenate([peer(at, order) for order in (0, 1, 2)], axis=1)
    call = kernel.bound([np.array([at[0]]), np.zeros(1), np.zeros(1)], [np.zeros(9)])
    found: dict[str, Any] = {"knots": knots, "vm": _median(call, 2000)}
    found["scipy"] = _median(lambda: [peer(at[0], order) for order in (0, 1, 2)], 200)
    try:
        inside = Inside(kernel.function, at, np.zeros((STATES, 1)), np.zeros(1))
        found["c"] = float(np.median(inside(calls)))
        found["difference"] = float(np.abs(inside.results - expected).max())
    except CompileError:
        found |= {"c": None, "difference": None}
    return found


def _median(call: Any, number: int) -> float:
    return float(np.median(timeit.repeat(call, number=number, repeat=7))) / number


def references(effort: Effort, progress: Progress) -> BenchReport:
    """References from files: three columns with two rates each, in C, on the virtual machine and by scipy.

    Args:
        effort: Quick makes fewer calls.
        progress: Called with the share of sizes that are done.
    """
    results = []
    for knots in KNOTS:
        results.append(measured(knots, 10_000 if effort.quick else 100_000))
        progress(len(results) / len(KNOTS))
    lines = [
        [str(each["knots"]), *("-" if each[name] is None else shown(each[name]) for name in ("c", "vm", "scipy")),
         "-" if each["difference"] is None else f"{each['difference']:.1e}"]
        for each in results
    ]  # fmt: skip
    last = results[-1]
    target = [] if last["c"] is None else [Comparison("reference of 2000 knots", "target", last["c"], TARGET, 1.0)]
    table = TextTable("Values, rates and second rates of 3 columns", ("knots", "C", "VM", "scipy", "difference"), lines)
    values = {"sizes": results, "findings": [asdict(one) for one in target]}
    return BenchReport("References from files", [table], values, findings=target)
