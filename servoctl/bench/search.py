"""Settings of ours and of peers, and the fastest one with which each reaches a given accuracy."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from servoctl.bench import peers
from servoctl.bench.comparison import Competitor
from servoctl.bench.peers.tree import Tree
from servoctl.bench.report import Progress
from servoctl.bench.robots_case import on_c
from servoctl.bench.timing import interleaved, timed
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.integrate import integrate
from servoctl.simulation.rows import Integrator
from servoctl.types import Array

WORTH = 2.0
"""A series ends when it takes this many times as long as the best candidate of its program."""

Motion = tuple[Array, Array]
"""Times, shape (rows,), and angles, shape (rows, angles)."""


@dataclass(frozen=True)
class Candidate:
    """One program with one setting.

    Attributes:
        name: Name of the program.
        how: Its method, step and gains, as text.
        run: Runs it once.
        series: Name that is common to candidates of the program which differ only in accuracy, the coarse ones first.
    """

    name: str
    how: str
    run: Callable[[], Motion]
    series: str = ""


@dataclass(frozen=True)
class SearchResult:
    """Result of one candidate.

    Attributes:
        candidate: The candidate.
        error: Largest error of an angle [rad]; infinite where the motion is lost.
        seconds: Time of one run [s].
    """

    candidate: Candidate
    error: float
    seconds: float


def attempt(candidate: Candidate, exact: Callable[[Array], Array]) -> SearchResult:
    """Runs a candidate once and compares it with the exact motion.

    Args:
        candidate: What to run.
        exact: Times -> angles, shape (rows, angles).
    """
    began = time.process_time()
    with np.errstate(all="ignore"):
        t, angles = candidate.run()
    seconds = time.process_time() - began
    with np.errstate(all="ignore"):
        error = float(np.max(np.abs(angles - exact(t)))) if len(t) else np.inf
    return SearchResult(candidate, error if np.isfinite(error) else np.inf, seconds)


def fastest(
    candidates: Iterable[Candidate], exact: Callable[[Array], Array], tolerance: float
) -> tuple[dict[str, SearchResult], list[SearchResult]]:
    """For each program the fastest candidate that is accurate enough; if none is, the most accurate.

    Args:
        candidates: What to try.
        exact: Times -> angles.
        tolerance: Largest error [rad].

    Returns:
        Program -> its best trial, and all trials.
    """
    tried: list[SearchResult] = []
    best_of: dict[str, SearchResult] = {}
    for candidate in candidates:
        best, series = best_of.get(candidate.name), (candidate.name, candidate.series)
        last = [t.seconds for t in tried if (t.candidate.name, t.candidate.series) == series][-1:]
        if best is not None and best.error <= tolerance and last and last[0] > WORTH * best.seconds:
            continue
        trial = attempt(candidate, exact)
        if trial.error <= tolerance:  # the least of several runs: the first one starts with cold caches
            again = [attempt(candidate, exact).seconds for _ in range(int(min(AGAIN, SHORT / trial.seconds)))]
            trial = SearchResult(candidate, trial.error, min([trial.seconds, *again]))
        tried.append(trial)
        if best is None or _rank(trial, tolerance) < _rank(best, tolerance):
            best_of[candidate.name] = trial
    return best_of, tried


def _rank(trial: SearchResult, tolerance: float) -> tuple[bool, float]:
    enough = trial.error <= tolerance
    return not enough, trial.seconds if enough else trial.error


SHORT, AGAIN = 0.5, 10
"""An accurate candidate runs again until `SHORT` [s] have passed, at most `AGAIN` times."""

ROUNDS = (3, 25)
"""Fewest and most turns of a race."""

SEVERAL = 5
"""Short runs in one turn; the first of them starts with cold caches."""

RACE = 10.0
"""Intended time of a race [s]."""


def race(best: Mapping[str, SearchResult], tolerance: float, progress: Progress, quick: bool) -> list[Competitor]:
    """Times the best candidate of each program, in turns; a quick race has the fewest."""
    once = sum(trial.seconds for trial in best.values())
    rounds = ROUNDS[0] if quick else int(np.clip(RACE / once, *ROUNDS))
    contestants = {
        f"{name}, {trial.candidate.how}": timed(lambda _, trial=trial: trial.candidate.run(), time.process_time)  # type: ignore[misc]
        for name, trial in best.items()
    }
    with np.errstate(all="ignore"):
        times = interleaved(contestants, rounds, SEVERAL if once < RACE / 100 else 1, progress)
    return [
        Competitor(label, times[label], trial.error, tolerance)
        for label, trial in zip(contestants, best.values(), strict=True)
    ]


def named(best: Mapping[str, SearchResult], entries: Sequence[Competitor]) -> list[Competitor]:
    """The entries of a race under the names of their programs alone."""
    return [replace(entry, name=name) for name, entry in zip(best, entries, strict=True)]


def trial_values(trials: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """All trials as plain values."""
    return [{"name": t.candidate.name, "how": t.candidate.how, "error": t.error, "seconds": t.seconds} for t in trials]


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


def our_loops(gains: Iterable[float], make: Callable[[float | None], CompiledLoop]) -> dict[str, CompiledLoop]:
    """The arguments of `our_candidates`: our default, which projects each step onto the constraints, and Baumgarte.

    Args:
        gains: Baumgarte's alpha = beta [1/s].
        make: A gain, or None for projection -> the loop with it.
    """
    return {"projection": make(None)} | {f"{gain:g} 1/s": make(gain) for gain in gains}


def our_candidates(
    loops: Mapping[str, CompiledLoop],
    x: Array,
    duration: float,
    shown: list[int],
    choices: Choices,
    notes: list[str],
    on_vm: str = "",
) -> Iterator[Candidate]:
    """Our settings.

    Args:
        loops: How drift is corrected, in words -> the loop that does so.
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

    for words, loop in loops.items():
        problem = on_vm or on_c(loop, None)
        notes += [problem] if problem else []
        name = "servoctl VM" if problem else "servoctl C"
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
