"""Benchmarks: what published experiments and peers give, beside what we do, measured in one run.

Design: a benchmark is a function (Effort, Progress) -> BenchReport; the first line of its docstring is its
description. What it measures is said with its limits: a run that was cut short is shown as cut short.
"""

from inspect import getdoc

from servoctl.bench.pseudoinverse import pseudoinverse_study
from servoctl.bench.report import Benchmark, BenchReport, Effort, Progress, Table
from servoctl.bench.scaling import scaling_study

__all__ = ["BENCHMARKS", "BenchReport", "Benchmark", "Effort", "Progress", "Table", "description"]

BENCHMARKS: dict[str, Benchmark] = {"pseudoinverse": pseudoinverse_study, "scaling": scaling_study}
"""Name -> benchmark."""


def description(name: str) -> str:
    """What a benchmark measures, in one line."""
    return (getdoc(BENCHMARKS[name]) or "").partition("\n")[0]
