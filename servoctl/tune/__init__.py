"""Searches for the best numbers of a config on simulated runs: the problem, the trials, the result, and its files."""

from servoctl.tune.files import save
from servoctl.tune.problem import SearchProblem, read_problem
from servoctl.tune.refine import Refinement
from servoctl.tune.result import Tuning
from servoctl.tune.trials import Trial
from servoctl.tune.tuner import tune

__all__ = ["Refinement", "SearchProblem", "Trial", "Tuning", "read_problem", "save", "tune"]
