"""The smallest steps of each task row's violation and rate that the samples resolve."""

from collections.abc import Mapping, Sequence

import numpy as np

from hil.drives import Node
from hil.sensing import Sensing, task_errors
from hil.sensing.sample_errors import sample_errors
from servoctl.config.hil import Hil
from servoctl.mechanics.model import Model
from servoctl.types import State


def resolved_steps(
    model: Model, sensing: Sensing, nodes: Sequence[Node], values: Hil, state: State
) -> Mapping[str, tuple[float, float]]:
    """Task row -> steps of its violation and of its rate by quantisation and noise, in the row's units.

    Each sample is moved by its error to both sides, which is one step of quantisation. The steps of all samples add up.

    Args:
        model: Plant and task.
        sensing: Sensing of the rig.
        nodes: Drives, then encoder nodes.
        values: Section `hil` of the config.
        state: State at which the steps are computed.
    """
    positions, speeds = sample_errors(values, nodes)
    inverse = sensing.coordinates.inverse(state.t, state.q)
    steps: dict[str, tuple[float, float]] = {}
    for dq, dv in [*((move, 0.0) for move in (inverse * positions).T), *((0.0, move) for move in (inverse * speeds).T)]:
        above, below = (
            task_errors(model, State(state.t, state.q + side * dq, state.v + side * dv)) for side in (1.0, -1.0)
        )
        for name, pair in above.items():
            step = np.abs(np.subtract(pair, below[name]))
            violation, rate = steps.get(name, (0.0, 0.0))
            steps[name] = violation + float(np.nan_to_num(step[0])), rate + float(np.nan_to_num(step[1]))
    return steps
