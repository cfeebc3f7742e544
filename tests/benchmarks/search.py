"""Settings of ours and of peers, and the fastest one with which each reaches a given accuracy."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from servoctl.errors import CompileError
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.integrate import integrate
from servoctl.simulation.settings import Integrator, Settings
from servoctl.types import Array
from tests.benchmarks import peers
from tests.benchmarks.contest import Entry, Line, medians, timed
from tests.benchmarks.peers.tree import Tree

WORTH = 2.0
"""A series ends when it takes this many times as long as the best candidate of its program."""

SHORT, AGAIN = 0.5, 10
"""An accurate candidate runs again until `SHORT` [s] have passed, at most `AGAIN` times; in a quick run never."""

RACE, ROUNDS, SEVERAL = 10.0, (3, 25), 5
"""Intended time of a race [s], its fewest and most turns, and short runs in one turn."""

Motion = tuple[Array, Array]
"""Times, shape (rows,), and angles, shape (rows, angles)."""


@dataclass(frozen=True)
class Candidate:
    """One program with one setting."""

    name: str  # of the program
    how: str  # its method, step and gains
    run: Callable[[], Motion]
    series: str = ""  # common to candidates that differ only in accuracy, the coarse ones first


@dataclass(frozen=True)
class Trial:
    """Result of one candidate."""

    candidate: Candidate
    error: float  # largest error of an angle [rad]; infinite where the motion is lost
    seconds: float  # of one run [s]


def attempt(candidate: Candidate, exact: Callable[[Array], Array]) -> Trial:
    """Runs a candidate once and compares it with the exact motion, times -> angles of shape (rows, angles)."""
    began = time.process_time()
    with np.errstate(all="ignore"):
        t, angles = candidate.run()
    seconds = time.process_time() - began
    with np.errstate(all="ignore"):
        error = float(np.max(np.abs(angles - exact(t)))) if len(t) else np.inf
    return Trial(candidate, error if np.isfinite(error) else np.inf, seconds)


def fastest(
    candidates: Iterable[Candidate], exact: Callable[[Array], Array], tolerance: float, quick: bool = False
) -> dict[str, Trial]:
    """Program -> its fastest candidate that is accurate enough; if none is, its most accurate.

    Args:
        candidates: What to try.
        exact: Times -> angles.
        tolerance: Largest error [rad].
        quick: Whether each runs once.
    """
    best_of: dict[str, Trial] = {}
    last: dict[tuple[str, str], float] = {}
    for candidate in candidates:
        best, series = best_of.get(candidate.name), (candidate.name, candidate.series)
        if best is not None and best.error <= tolerance and last.get(series, 0.0) > WORTH * best.seconds:
            continue
        trial = attempt(candidate, exact)
        if trial.error <= tolerance and not quick:  # the least of several runs: the first one starts with cold caches
            again = [attempt(candidate, exact).seconds for _ in range(int(min(AGAIN, SHORT / trial.seconds)))]
            trial = Trial(candidate, trial.error, min([trial.seconds, *again]))
        last[series] = trial.seconds
        if best is None or _rank(trial, tolerance) < _rank(best, tolerance):
            best_of[candidate.name] = trial
    return best_of


def _rank(trial: Trial, tolerance: float) -> tuple[bool, float]:
    enough = trial.error <= tolerance
    return not enough, trial.seconds if enough else trial.error


def race(work: str, best: Mapping[str, Trial], tolerance: float, quick: bool) -> Line:
    """Times the best candidate of each program, in turns; a quick race has the fewest."""
    once = sum(trial.seconds for trial in best.values())
    rounds = ROUNDS[0] if quick else int(np.clip(RACE / once, *ROUNDS))
    contestants = {
        name: timed(lambda _, trial=trial: trial.candidate.run(), time.process_time) for name, trial in best.items()
    }
    with np.errstate(all="ignore"):
        times = medians(contestants, rounds, 1 if quick or once >= RACE / 100 else SEVERAL)
    entries = [Entry(f"{name}, {t.candidate.how}", times[name], t.error, tolerance) for name, t in best.items()]
    return Line(work, tuple(entries), "each with the fastest of its settings; difference: error [rad]; processor time")


@dataclass(frozen=True)
class Choices:
    """Settings to try."""

    gains: tuple[float, ...]  # [1/s] Baumgarte's alpha = beta for us and for Pinocchio
    steps: tuple[float, ...]  # [s] fixed steps for us and for Pinocchio
    rtols: tuple[float, ...]  # of DOP853
    soft_steps: tuple[float, ...]  # [s] for MuJoCo
    softnesses: tuple[float, ...] = (2.0,)  # MuJoCo's time constant of the loop in steps; unstable below two

    def quick(self) -> "Choices":
        """One setting of each program, from the middle."""
        gains, steps, soft_steps = (each[len(each) // 2 :][:1] for each in (self.gains, self.steps, self.soft_steps))
        return Choices(gains, steps, (), soft_steps, self.softnesses[:1])


@dataclass(frozen=True)
class PeerMotion:
    """An open-loop motion in the joint angles of the peers."""

    tree: Tree
    q: Array  # joint angles at the start, shape (n,)
    v: Array  # joint rates at the start, shape (n,)
    force: Array  # joint torques, constant, shape (n,)
    duration: float  # [s]
    shown: list[int]  # indices of the absolute angles that are compared

    def angles(self, states: Array) -> Array:
        """The compared angles of states, shape (rows, 2n)."""
        return self.tree.angles(states[:, : len(self.q)])[:, self.shown]

    def fixed(self, h: float, rk4: Callable[..., Array], *more: float) -> Motion:
        """The motion by fixed steps of a peer; its function takes q, v, force, further arguments and a count."""
        steps = round(self.duration / h)
        return h * np.arange(steps + 1), self.angles(rk4(self.q, self.v, self.force, *more, steps))


def our_candidates(
    make: Callable[[float | None], Loop],
    x: Array,
    duration: float,
    shown: list[int],
    choices: Choices,
    engine: str = "c",
) -> Iterator[Candidate]:
    """Our settings.

    Args:
        make: Baumgarte's gain [1/s], or None for projection of each step -> the loop with it.
        x: Initial state.
        duration: [s].
        shown: Indices of the angles that are compared.
        choices: Settings to try.
        engine: `c` or `vm`; without a compiler it is `vm`.
    """

    def run(loop: Loop, integrator: Integrator) -> Motion:
        chunks = list(integrate(loop, x, 0.0, Settings(duration, integrator=integrator)))
        t, states = (np.concatenate([getattr(chunk, part) for chunk in chunks]) for part in ("t", "x"))
        return t, states[:, shown]

    for gain in (None, *choices.gains):
        words, loop = "projection" if gain is None else f"{gain:g} 1/s", make(gain)
        name = "servoctl VM"
        if engine == "c":
            try:
                loop.run_on(loop.program(None).load(), None)
                name = "servoctl C"
            except CompileError:
                pass
        for h in choices.steps:
            yield Candidate(name, f"RK4 {h:g} s, {words}", partial(run, loop, Integrator("rk4", h)), words)
        for rtol in choices.rtols:
            adaptive = partial(run, loop, Integrator("dop853", rtol=rtol, atol=rtol))
            yield Candidate(name, f"DOP853 {rtol:g}, {words}", adaptive, f"dop853 {words}")


def peer_candidates(motion: PeerMotion, choices: Choices) -> Iterator[Candidate]:
    """The settings of the installed peers."""
    installed = peers.installed()
    if installed["pinocchio"]:
        from tests.benchmarks.peers.pinocchio import PinocchioTree

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
        from tests.benchmarks.peers.mujoco import MujocoTree

        for softness in choices.softnesses:
            for h in choices.soft_steps:
                soft = MujocoTree(motion.tree, h, softness * h)
                name = f"RK4 {h:g} s, solref {softness:g} steps"
                yield Candidate("MuJoCo", name, partial(motion.fixed, h, soft.rk4), f"{softness}")
