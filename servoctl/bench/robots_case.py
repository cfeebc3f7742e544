"""The coordinated robots for all benchmarks: our runs, the open loop, and states for evaluations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from servoctl.assembly.make import load
from servoctl.assembly.run import Run
from servoctl.bench.peers.algebra import LawOnTerms
from servoctl.bench.peers.textbook import TextbookRobots
from servoctl.bench.peers.tree import ROBOTS
from servoctl.engine.kernel import Kernel
from servoctl.errors import CompileError
from servoctl.simulation.compiled import CompiledLoop
from servoctl.types import Array

CONFIG = "coordinated_robots"
TORQUES = np.array([10.0, -5.0, 3.0, -2.0, 4.0, -8.0])  # [N m]
START = np.radians([60.0, 60.0, 0.0, -60.0, -60.0])
"""Angles at the start of the open loop, at rest [rad]."""

SPREAD = (1e-2, 1e-1)
"""Standard deviation of the states from the motion: angles [rad], rates [rad/s]."""


@dataclass(frozen=True)
class States:
    """States at which functions are evaluated.

    Attributes:
        t: Shape (count,) [s].
        q: Absolute angles, shape (count, 5) [rad].
        v: Rates of the angles, shape (count, 5) [rad/s].
    """

    t: Array
    q: Array
    v: Array

    @property
    def x(self) -> Array:
        """q and v, shape (count, 10)."""
        return np.hstack([self.q, self.v])


def states(count: int) -> States:
    """States near the motion of the task; the same for each call."""
    source = np.random.default_rng(1)
    t = np.linspace(0.0, np.pi, count)
    y = (1.0 - np.cos(t)) / 2
    distance = np.sqrt(1.0 + y**2)
    lean, open_ = np.arctan2(y, 1.0), np.arccos(distance / 2)
    q = np.stack([lean + open_, lean - open_, 0.0 * t, open_ - lean, -open_ - lean], axis=1)
    v = np.gradient(q, t, axis=0) if count > 1 else 0.0 * q
    return States(t, q + SPREAD[0] * source.normal(size=q.shape), v + SPREAD[1] * source.normal(size=q.shape))


def closed_loop() -> Run:
    """The shipped run on the virtual machine."""
    return load(CONFIG, ["run.integrator.step=0.001"], "vm")


def baumgarte(alpha: float | None) -> list[str]:
    """Settings by which Baumgarte's alpha = beta [1/s] corrects a plant's drift; None: our default, projection."""
    return [] if alpha is None else [f"plant.passive.correction={{baumgarte: {{alpha: {alpha!r}, beta: {alpha!r}}}}}"]


def open_loop(alpha: float | None = 5.0) -> Run:
    """One second under constant torques, with Baumgarte's alpha = beta [1/s] for the loop; None: projection."""
    inputs = ", ".join(f"u{i}: {value!r}" for i, value in enumerate(map(float, TORQUES), start=1))
    angles = ", ".join(f"theta{i}: {float(value)!r}" for i, value in enumerate(START, start=1))
    overrides = [
        "law=none",
        "task=[]",
        f"inputs={{{inputs}}}",
        f"initial.q={{{angles}}}",
        *baumgarte(alpha),
        "run.duration=1",
        "run.integrator={method: rk4, step: 0.01}",
        "run.output_step=1",
    ]
    return load(CONFIG, overrides, "vm")


def on_c(loop: CompiledLoop, parts: int | None) -> str | None:
    """Runs a loop in generated C, `parts` as in `CompiledLoop.program`; returns the reason if this is impossible."""
    try:
        loop.run_on(loop.program(parts).load(), parts)
    except CompileError as error:
        return f"engine C is left out: {error}"
    return None


def in_place(loop: CompiledLoop, kernel: Kernel, parts: int | None, where: States) -> Callable[[int], list[Array]]:
    """A function of (t, x, p) in C as a control loop calls it, on fixed arrays for arguments and results.

    Args:
        loop: The loop that has the function.
        kernel: The function.
        parts: As in `CompiledLoop.program`.
        where: The states, which calls choose by index.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    library, t, x = loop.program(parts).load(), where.t.tolist(), where.x
    moment, state = np.zeros(1), np.zeros(x.shape[1])
    results = [np.zeros(shape) for shape in kernel.outputs.values()]
    call = library.caller(kernel.function.name(), [moment, state, loop.parameters], results)

    def evaluate(k: int, keep: object = library) -> list[Array]:
        moment[0] = t[k]
        state[:] = x[k]
        call()
        return results

    return evaluate


def compiled(run: Run) -> CompiledLoop:
    """The compiled loop of a run."""
    assert isinstance(run.loop, CompiledLoop)
    return run.loop


def laws(installed: Mapping[str, bool]) -> list[TextbookRobots | LawOnTerms]:
    """The peers that evaluate the law, textbook NumPy first.

    Args:
        installed: Module -> whether it is installed.
    """
    peers: list[TextbookRobots | LawOnTerms] = [TextbookRobots()]
    if installed["pinocchio"]:
        from servoctl.bench.peers.pinocchio import PinocchioTerms

        peers.append(LawOnTerms(PinocchioTerms.name, PinocchioTerms(ROBOTS), ROBOTS))
    if installed["mujoco"]:
        from servoctl.bench.peers.mujoco import MujocoTerms

        peers.append(LawOnTerms(MujocoTerms.name, MujocoTerms(ROBOTS), ROBOTS))
    return peers
