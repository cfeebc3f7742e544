"""Time of a closed-loop run, from the start to its arrays."""

import time
from collections.abc import Callable

import numpy as np

from servoctl.assembly.run import Run
from servoctl.bench import comparison, peers
from servoctl.bench.comparison import Competitor
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress
from servoctl.bench.robots_case import closed_loop, compiled, laws, on_c
from servoctl.bench.timing import Contestant, Timings, interleaved, timed
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.integrate import integrate
from servoctl.simulation.rows import Integrator
from servoctl.simulation.runge_kutta import rk4
from servoctl.types import Array

STEP, DURATION = 0.001, 2 * np.pi  # [s]
PART = 100
"""Steps that a peer takes; the full run is extrapolated from them."""

TOLERANCE = 1e-9
"""Largest difference from textbook NumPy after `PART` steps [rad, rad/s] at which motions count as equal."""

CLOCK = time.process_time
C, VM, WHOLE = "servoctl C", "servoctl VM", "servoctl C, Run.simulate"


def run_rows(loop: CompiledLoop, x: Array, duration: float, step: float, output_step: float | None) -> Array:
    """States of a run with fixed steps, shape (rows, size)."""
    chunks = integrate(loop, x, 0.0, duration, Integrator("rk4", step), None, output_step)
    return np.concatenate([chunk.x for chunk in chunks])


def closed_loop_run(effort: Effort, progress: Progress) -> BenchReport:
    """A closed-loop run of two robots: 2 pi s by RK4 at 1 ms, peers in a loop of their own.

    Args:
        effort: Quick takes a tenth of a second and few turns.
        progress: Called with the share of turns that are done.
    """
    duration = 0.1 if effort.quick else DURATION
    part = 10 if effort.quick else PART
    share = part * STEP / duration
    notes = peers.notes()
    run, whole = closed_loop(), closed_loop()
    x = np.concatenate([run.start.q, run.start.v])
    contestants: dict[str, Contestant] = {}
    ends: dict[str, Array] = {}
    fast = compiled(closed_loop())
    problem = on_c(fast, None)
    for name, loop in {C: fast, VM: compiled(run)}.items():
        if name == C and problem is not None:
            notes.append(problem)
            continue
        contestants[name] = timed(lambda _, loop=loop: run_rows(loop, x, duration, STEP, 0.01), CLOCK)  # type: ignore[misc]
        ends[name] = run_rows(loop, x, part * STEP, STEP, None)[-1]
    if problem is None:
        compiled(whole).run_on(fast.program(None).load(), None)
        contestants[WHOLE], ends[WHOLE] = timed(lambda _: _simulated(whole, duration), CLOCK), ends[C]
    slow = {}
    for law in laws(peers.installed()):
        start = law.tree.joint_angles(run.start.q) if law.tree.bars else run.start.q
        loop_of = _peer(law.motion, start, part)
        slow[law.name] = timed(lambda _, loop_of=loop_of: loop_of(), CLOCK)  # type: ignore[misc]
        q, v = np.split(loop_of(), 2)
        ends[law.name] = np.concatenate([law.tree.angles(each) for each in (q, v)] if law.tree.bars else [q, v])
    times = interleaved({**contestants, **slow}, 2 if effort.quick else 7, progress=progress)
    reference = ends["textbook NumPy"]
    entries = [
        Competitor(
            name if name in contestants else f"{name} (x {1 / share:.3g})",
            times[name] if name in contestants else _scaled(times[name], 1 / share),
            float(np.abs(ends[name] - reference).max()),
            TOLERANCE,
        )
        for name in times
    ]
    title = f"{duration:.3g} s; difference from textbook NumPy after {part} steps [rad, rad/s]"
    work = f"closed loop of two robots, {duration:.3g} s, RK4 1 ms"
    findings = []
    best = C if problem is None else VM
    by_name = dict(zip(times, entries, strict=True))
    for peer, aim in {"Pinocchio + pinv": 250.0, "textbook NumPy": None}.items():
        if peer in by_name and by_name[peer].equal:
            findings.append(Comparison(work, peer, times[best].median, by_name[peer].times.median, aim))
    findings.append(Comparison(work, "real time", times[best].median, duration, 500.0))
    speeds = {name: duration / entry.times.median for name, entry in by_name.items()}
    notes += [
        "times are processor times of the process",
        f"peers: {part} steps are timed and multiplied by {1 / share:.4g}; all run the same RK4 and the same law",
        "times real time: " + ", ".join(f"{name} {speed:.3g}" for name, speed in speeds.items()),
        f"{C}: the integration and its rows; {WHOLE}: also everything else that a run records",
    ]
    values = {"rows": comparison.values(entries), "times_real_time": speeds, "versions": peers.versions()}
    table = comparison.table(title, entries, tails=False)
    return BenchReport("Closed loop: two robots lift an object", [table], values, notes, findings)


def pinocchio_part(steps: int) -> Contestant | None:
    """Steps of the closed loop in Pinocchio's own loop; None if it is not installed."""
    law = next((law for law in laws(peers.installed()) if law.name == "Pinocchio + pinv"), None)
    if law is None:
        return None
    go = _peer(law.motion, law.tree.joint_angles(closed_loop().start.q), steps)
    return timed(lambda _: go())


def _simulated(run: Run, duration: float) -> object:
    from dataclasses import replace

    return replace(run, settings=replace(run.settings, duration=duration)).simulate()


def _peer(motion: Callable[[float, Array, Array], Array], q: Array, steps: int) -> Callable[[], Array]:
    """A function that runs a peer's own loop from rest at q; it returns q and v at the end."""
    n = len(q)

    def rates(t: float, x: Array) -> Array:
        return np.concatenate([x[n:], motion(t, x[:n], x[n:])])

    def go() -> Array:
        x = np.concatenate([q, np.zeros(n)])
        for k in range(steps):
            x = rk4(rates, k * STEP, x, STEP)
        return x

    return go


def _scaled(times: Timings, factor: float) -> Timings:
    return Timings(times.median * factor, times.p99 * factor, times.p999 * factor, times.calls)
