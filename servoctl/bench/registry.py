"""The benchmarks by name."""

from inspect import getdoc

from servoctl.bench.bounds import bounds
from servoctl.bench.closed_loop import closed_loop_run
from servoctl.bench.dynamics import dynamics
from servoctl.bench.example_robots import example_robots
from servoctl.bench.four_bars import four_bars
from servoctl.bench.hil import hil
from servoctl.bench.identify import identification_study
from servoctl.bench.linkage import parallelogram
from servoctl.bench.margins import margins
from servoctl.bench.pendulum import pendulum
from servoctl.bench.pseudoinverse import pseudoinverse_study
from servoctl.bench.quadruped import quadruped
from servoctl.bench.realism import realism
from servoctl.bench.references import references
from servoctl.bench.report import Benchmark
from servoctl.bench.robots import robots
from servoctl.bench.robots_from_files import robots_from_files
from servoctl.bench.scaling import scaling_study
from servoctl.bench.spatial_chain import spatial_chain
from servoctl.bench.startup import memory, startup
from servoctl.bench.sweep import sweep
from servoctl.bench.tick import tick
from servoctl.bench.tick_c import tick_c
from servoctl.bench.tune import tune
from servoctl.bench.two_arms import two_arms
from servoctl.bench.view import view
from servoctl.bench.wrong_model import wrong_model

BENCHMARKS: dict[str, Benchmark] = {
    "tick": tick,
    "tick_c": tick_c,
    "bounds": bounds,
    "dynamics": dynamics,
    "closed_loop": closed_loop_run,
    "robots": robots,
    "robots_from_files": robots_from_files,
    "two_arms": two_arms,
    "quadruped": quadruped,
    "spatial_chain": spatial_chain,
    "pendulum": pendulum,
    "four_bars": four_bars,
    "example_robots": example_robots,
    "parallelogram": parallelogram,
    "references": references,
    "sweep": sweep,
    "realism": realism,
    "margins": margins,
    "tune": tune,
    "scaling": scaling_study,
    "startup": startup,
    "memory": memory,
    "identify": identification_study,
    "wrong_model": wrong_model,
    "hil": hil,
    "view": view,
    "pseudoinverse": pseudoinverse_study,
}
"""Name -> benchmark."""


def description(name: str) -> str:
    """What a benchmark measures, in one line."""
    return (getdoc(BENCHMARKS[name]) or "").partition("\n")[0]
