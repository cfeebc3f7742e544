"""Benchmarks: servoctl next to other programs and published results, measured in one run.

`python -m tests.benchmarks [NAME...] [--quick] [--json]` prints the rows of the speed tables.

Design: a case is a function that yields lines and tables; `contest` compares, times and prints them all. Programs do
the same work to the same accuracy, take turns, and are checked against an independent reference in the same run; one
that differs by more than its tolerance is shown as not equal, without a ratio.
"""
