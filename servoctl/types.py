"""Values that all packages share: arrays, the state of a plant, a command and its status.

Inside servoctl these parameters mean the same everywhere, and are explained here alone:

    loaded             the config as it was read; `problems` collects what is wrong in it
    values, path       a section of the config; a field's path in it; `folder`: what its files are relative to
    on_drives          whether the law runs at the period of `hil`; else at that of `run`
    run, trajectory    a run that is ready, and the result of one
    plant, tree        the plant; the robots of one
    task, rows         name -> constraint; the rows of the task
    model, system      plant and constraints; plant, law and constraints
    loop, law          the closed loop, and its law; `timing`: period, delay and lag of the loop
    t, q, v            time [s]; coordinates and their rates, shape (n,); `x` has q, v and the memory of the loop
    state, start       t, q and v; those at the start of a run
    terms              the terms of motion at a state
    settings           how to run; `integrator`: how to step
    engine             `auto`, `c`, `vm` or `numpy`
    h, period          period [s]; `duration`: length of a run [s]
    command            the held command; None: the law acts continuously
    limits             actuator -> (lower, upper)
    rank_tolerance     a direction counts when its pivot exceeds this times the size of its rows
    rates, jacobian    (t, x) -> x';  (t, x) -> dx'/dx, for an implicit method
    output_step        spacing of the rows [s]; None: every step
    substeps           steps of rk4 in one hold, 0 for an adaptive method; None: the law acts continuously
    signals            name -> column of a reference
    problem, trial     a search; one of its trials, which the evaluator evaluates
    varies, points     the varied numbers; path -> value, one mapping per run
    progress           called with the fraction that is done, 0 to 1
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]  # a NumPy array: of floats, or of symbols while a function is traced


class State(NamedTuple):
    """State of a plant at a time.

    Attributes:
        t: Time [s].
        q: Generalized coordinates, shape (n,), in the units of `Plant.coordinates`.
        v: Their time derivatives, shape (n,).
    """

    t: Any
    q: Array
    v: Array


class Status(Enum):
    """Result of a command, or of a whole run; the value is the sentence that the user reads.

    The members up to `NON_FINITE` belong to commands, in order of severity; those after it belong to whole runs.

    Attributes:
        code: Index of the member in that order, from 0; the number stored in a trajectory.
    """

    code: int

    OK = "the actuators deliver what the task asks"
    RANK_DEFICIENT = "task rows are dependent or out of reach, yet all that they ask is delivered"
    BOUNDED = "a bound holds and part of what the task asks is given up for it"
    SATURATED = "an input is at its limit and part of what the task asks is given up"
    INFEASIBLE = "the actuators cannot meet the task: the command is its least-squares answer"
    UNREACHABLE = "no actuator reaches the task (rank 0): the command moves nothing towards it"
    DAMPED = "the actuators cannot meet the task: the command damps the motion instead"
    NOT_POSITIVE = "the mass matrix is not symmetric and positive definite: there is no command"
    NON_FINITE = "a term of the equations of motion is not finite: there is no command"
    MISSED = "a required task was out of reach over most of the run"

    def __init__(self, sentence: str) -> None:
        self.code = len(type(self).__members__)

    @classmethod
    def from_code(cls, code: float) -> "Status":
        """The member with this code.

        Raises:
            IndexError: No member has it.
        """
        return list(cls)[int(code)]


@dataclass(frozen=True)
class Command:
    """A law's command to the actuators, with evidence of its quality.

    Attributes:
        u: Control inputs, shape (m,), in actuator units; NaN if there is no command.
        rank: Number of independent directions of `A Phi B` that were used.
        residual: `(I - T T^+) bbar` per task row, shape (r,): the acceleration that the actuators cannot deliver; for a
            row of priority 2 or below, also what rows of higher priority take from it.
        pivot_min: Smallest pivot counted in the rank, relative to `|A L^-T|_F |L^-1 B|_F`; 0 at rank 0.
        status: `Status.code` of the command.
        binding: Per bound of the law: 1 if it holds the inputs, else 0; shape (bounds,).
        lack: Per bound: the acceleration, or force, that inputs within their limits cannot give it; shape (bounds,).
        active: Per input: 1 or -1 if it is at its upper or lower limit, else 0; then per row of the bounds 1 if it
            binds, else 0. Empty for a law without limits and bounds.
        steps: Steps of the search for what is active.
        proven: Whether that search ended: u is the best within limits and bounds. If not, u is within the limits, but
            may give up more than it has to.
    """

    u: Array
    rank: Any
    residual: Array
    pivot_min: Any
    status: Any
    binding: Array = field(default_factory=lambda: np.zeros(0))
    lack: Array = field(default_factory=lambda: np.zeros(0))
    active: Array = field(default_factory=lambda: np.zeros(0))
    steps: Any = 0
    proven: Any = True
