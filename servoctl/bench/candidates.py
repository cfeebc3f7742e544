"""The settings of each program that a search for the fastest one tries on an open-loop motion."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from servoctl.bench import peers
from servoctl.bench.peers.tree import Tree
from servoctl.bench.robots_case import on_c
from servoctl.bench.search import Candidate, Motion
from servoctl.simulation.integrate import integrate
from servoctl.simulation.rows import Integrator
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import Array


@dataclass(frozen=True)
class Choices:
    """Settings to try.

    Attributes:
        gains: Baumgarte's alpha = beta [1/s] for us and for Pinocchio.
        steps: Fixed steps for us and for Pinocchio [s].
        rtols: Relative tolerances of DOP853.
        soft_steps: Steps for MuJoCo [s].
        softnesses: MuJoCo's time constant of the loop, in steps; it is unstable below two.
    """

    gains: tuple[float, ...]
    steps: tuple[float, ...]
    rtols: tuple[float, ...]
    soft_steps: tuple[float, ...]
    softnesses: tuple[float, ...] = (2.0,)

    def quick(self) -> "Choices":
        """One setting of each program, from the middle."""
        gains, steps, soft_steps = (each[len(each) // 2 :][:1] for each in (self.gains, self.steps, self.soft_steps))
        return Choices(gains, steps, (), soft_steps, self.softnesses[:1])


@dataclass(frozen=True)
class PeerMotion:
    """An open-loop motion in the joint angles of the peers.

    Attributes:
        tree: The mechanism.
        q: Joint angles at the start, shape (n,).
        v: Joint rates at the start, shape (n,).
        force: Joint torques, constant, shape (n,).
        duration: [s].
        shown: Indices of the absolute angles that are compared.
    """

    tree: Tree
    q: Array
    v: Array
    force: Array
    duration: float
    shown: list[int]

    def angles(self, states: Array) -> Array:
        """The compared angles of states, shape (rows, 2n)."""
        return self.tree.angles(states[:, : len(self.q)])[:, self.shown]

    def fixed(self, h: float, rk4: Callable[..., Array], *more: float) -> Motion:
        """The motion by fixed steps of a peer; its function takes q, v, force, further arguments and a count."""
        steps = round(self.duration / h)
        return h * np.arange(steps + 1), self.angles(rk4(self.q, self.v, self.force, *more, steps))


def our_candidates(
    loops: Mapping[float, CompiledLoop],
    x: Array,
    duration: float,
    shown: list[int],
    choices: Choices,
    notes: list[str],
    on_vm: str = "",
) -> Iterator[Candidate]:
    """Our settings.

    Args:
        loops: Gain [1/s] -> the loop with it.
        x: Initial state.
        duration: [s].
        shown: Indices of the angles that are compared.
        choices: Settings to try.
        notes: Gets a sentence where engine C is left out.
        on_vm: Why engine C is not wanted; empty: it is.
    """

    def run(loop: CompiledLoop, integrator: Integrator) -> Motion:
        chunks = list(integrate(loop, x, 0.0, duration, integrator))
        t, states = (np.concatenate([getattr(chunk, part) for chunk in chunks]) for part in ("t", "x"))
        return t, states[:, shown]

    for alpha, loop in loops.items():
        problem = on_vm or on_c(loop, None)
        notes += [problem] if problem else []
        name, words = "servoctl VM" if problem else "servoctl C", f"{alpha:g} 1/s"
        for h in choices.steps:
            yield Candidate(name, f"RK4 {h:g} s, {words}", partial(run, loop, Integrator("rk4", h)), words)
        for rtol in choices.rtols:
            adaptive = partial(run, loop, Integrator("dop853", rtol=rtol, atol=rtol))
            yield Candidate(name, f"DOP853 {rtol:g}, {words}", adaptive, f"dop853 {words}")


def peer_candidates(motion: PeerMotion, choices: Choices) -> Iterator[Candidate]:
    """The settings of the installed peers."""
    installed = peers.installed()
    if installed["pinocchio"]:
        from servoctl.bench.peers.pinocchio import PinocchioTree

        def dop853(rigid: PinocchioTree, rtol: float) -> Motion:
            t, states = rigid.dop853(motion.q, motion.v, motion.force, motion.duration, rtol)
            return t, motion.angles(states)

        for alpha in choices.gains:
            rigid, words = PinocchioTree(motion.tree, alpha), f"{alpha:g} 1/s"
            for h in choices.steps:
                yield Candidate("Pinocchio", f"RK4 {h:g} s, {words}", partial(motion.fixed, h, rigid.rk4, h), words)
            for rtol in choices.rtols:
                name = f"DOP853 {rtol:g}, {words}"
                yield Candidate("Pinocchio", name, partial(dop853, rigid, rtol), f"dop853 {words}")
    if installed["mujoco"]:
        from servoctl.bench.peers.mujoco import MujocoTree

        for softness in choices.softnesses:
            for h in choices.soft_steps:
                soft = MujocoTree(motion.tree, h, softness * h)
                name = f"RK4 {h:g} s, solref {softness:g} steps"
                yield Candidate("MuJoCo", name, partial(motion.fixed, h, soft.rk4), f"{softness}")
