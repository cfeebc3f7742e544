"""The memory of a loop that has run for a while at a state, for a linearisation there."""

import numpy as np

from servoctl.laws.robust import ESTIMATE
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array, State

GROWN = 1e9  # an adaptive bound beyond every violation times gain: the state is inside the term's layer


def settled_memory(loop: Loop, state: State) -> Array:
    """The memory with which observer and estimator run, and have found no disturbance.

    An estimator expects just this state at this tick, under the command that the law gives there. The bound of an
    adaptive term has grown until the term has its full gain here: it grows to that wherever the loop is disturbed.
    """
    memory, h = loop.memory_start.copy(), loop.memory_period
    if ESTIMATE in loop.memory_names:
        memory[loop.memory_names.index(ESTIMATE)] = GROWN
    if h is None or not len(memory):
        return memory
    rate = loop.layout.slices["memory_rate"]
    for _ in range(2):  # the second time with the law's command on its way
        command = loop.control(state.t, np.concatenate([state.q, state.v, memory]))
        memory = memory + h * command[rate]
        if loop.system.estimator is not None:
            _expect(loop, state, memory, command)
    return memory


def _expect(loop: Loop, state: State, memory: Array, command: Array) -> None:
    """Puts into the memory the estimate of the last tick that leads to a state, and equal commands since long."""
    estimator, law = loop.system.estimator, loop.system.law
    assert estimator is not None and law is not None
    n, h, u = loop.system.model.n, estimator.timing.h, command[loop.layout.slices["u"]]
    own = memory[len(law.memory) :]
    ends = np.cumsum(list(estimator.parts.values()))
    parts = {name: own[end - size : end] for (name, size), end in zip(estimator.parts.items(), ends, strict=True)}
    parts["sent"][:] = np.tile(u, len(parts["sent"]) // max(len(u), 1))
    if len(parts["torque"]):
        parts["torque"][:] = u
    a = np.zeros(n)
    if estimator.has_model:
        parts["disturbance"][:] = 0.0
        x = np.concatenate([state.q, state.v, memory])
        a = parts["acceleration"] if "acceleration" in parts else loop.motion(state.t, x, command)[0][n : 2 * n]
    parts["v"][:] = state.v - h * a
    parts["q"][:] = state.q - h * parts["v"] - h * h / 2.0 * a
