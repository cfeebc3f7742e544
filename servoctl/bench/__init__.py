"""Benchmarks: what published experiments and peers give, beside what we do, measured in one run.

Design: a benchmark is a function (Effort, Progress) -> BenchReport; the first line of its docstring is its
description. Whoever is compared does the same work to the same accuracy, takes turns with the others, and is checked
against an independent reference in the same run; who differs by more than is stated is shown as not equal. What it
measures is said with its limits: a run that was cut short is shown as cut short.
"""
