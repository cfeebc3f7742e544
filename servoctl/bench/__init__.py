"""Benchmarks: servoctl next to published results and other programs, measured in one run.

Design: a benchmark is a function (Effort, Progress) -> BenchReport; the first line of its docstring is its
description. All programs do the same work to the same accuracy, take turns, and are checked against an independent
reference in the same run; one that differs by more than the stated tolerance is shown as not equal. The report states
the limits of each measurement, and marks runs that were cut short.
"""
