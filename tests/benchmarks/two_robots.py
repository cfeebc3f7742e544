"""Two planar arms that lift an object, six motors: the control step, the dynamics, whole runs and many runs."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from hil.core.controller import Controller
from servoctl.assembly.make import load
from servoctl.assembly.run import Run
from servoctl.engine.kernel import Kernel
from servoctl.engine.step import rk4
from servoctl.errors import CompileError
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.integrate import integrate
from servoctl.simulation.settings import Integrator, Settings
from servoctl.study.batch import batch
from servoctl.study.metrics import metrics_of
from servoctl.types import Array
from tests.benchmarks import peers
from tests.benchmarks.contest import Contest, Entry, Results, line, medians, scaled, timed
from tests.benchmarks.inside import Inside
from tests.benchmarks.peers.algebra import LOOP_GAIN, LawOnTerms, actuation
from tests.benchmarks.peers.cpp import LawInCpp
from tests.benchmarks.peers.textbook import TextbookRobots
from tests.benchmarks.peers.tree import ROBOTS
from tests.benchmarks.search import Choices, PeerMotion, fastest, our_candidates, peer_candidates, race

CONFIG = "coordinated_robots"
TORQUES = np.array([10.0, -5.0, 3.0, -2.0, 4.0, -8.0])  # [N m]
START = np.radians([60.0, 60.0, 0.0, -60.0, -60.0])
"""Angles at the start of the open loop, at rest [rad]."""

SPREAD = (1e-2, 1e-1)
"""Standard deviation of the states from the motion: angles [rad], rates [rad/s]."""

FROM_PYTHON, INSIDE = "servoctl C, from Python", "servoctl C, inside C"
ON_DRIVES, VM = "servoctl C, as the loop on drives calls it", "servoctl VM"
TEXTBOOK, PINOCCHIO = "textbook NumPy", "Pinocchio + pinv"
CPP = "C++, Pinocchio + Eigen"

TOLERANCE = 1e-9
"""Largest difference from textbook NumPy that counts as equal: of u [N m], accelerations and states [rad/s^2, rad]."""

SOFT_TOLERANCE = 0.01
"""The same for accelerations of MuJoCo, whose loops are soft and exact to 1e-4 at best [rad/s^2]."""


@dataclass(frozen=True)
class States:
    """States at which functions are evaluated."""

    t: Array  # shape (count,) [s]
    q: Array  # absolute angles, shape (count, 5) [rad]
    v: Array  # their rates, shape (count, 5) [rad/s]

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
    lean = np.arctan2(y, 1.0)
    open_ = np.arccos(distance / 2)
    q = np.stack([lean + open_, lean - open_, 0.0 * t, open_ - lean, -open_ - lean], axis=1)
    v = np.gradient(q, t, axis=0) if count > 1 else 0.0 * q
    return States(t, q + SPREAD[0] * source.normal(size=q.shape), v + SPREAD[1] * source.normal(size=q.shape))


def compiled(run: Run) -> Loop:
    """The compiled loop of a run."""
    assert isinstance(run.loop, Loop)
    return run.loop


def closed_loop_run() -> Run:
    """The shipped run on the virtual machine."""
    return load(CONFIG, ["run.integrator.step=0.001"], "vm")


def open_loop_run(alpha: float | None = LOOP_GAIN) -> Run:
    """One second under constant torques, with Baumgarte's alpha = beta [1/s] for the loop; None: projection."""
    inputs = ", ".join(f"u{i}: {value!r}" for i, value in enumerate(map(float, TORQUES), start=1))
    angles = ", ".join(f"theta{i}: {float(value)!r}" for i, value in enumerate(START, start=1))
    overrides = [
        "law=none", "task=[]", f"inputs={{{inputs}}}", f"initial.q={{{angles}}}", *baumgarte(alpha), "run.duration=1",
        "run.integrator={method: rk4, step: 0.01}", "run.output_step=1",
    ]  # fmt: skip
    return load(CONFIG, overrides, "vm")


def baumgarte(alpha: float | None) -> list[str]:
    """Settings by which Baumgarte's alpha = beta [1/s] corrects a plant's drift; None: our default, projection."""
    return [] if alpha is None else [f"plant.passive.correction={{baumgarte: {{alpha: {alpha!r}, beta: {alpha!r}}}}}"]


def in_place(loop: Loop, kernel: Kernel, parts: int | None, where: States) -> Callable[[int], list[Array]]:
    """A function of (t, x, p) in C, called on fixed arrays for arguments and results, at a state by index."""
    library = loop.program(parts).load()
    t = where.t.tolist()
    x = where.x
    moment, state = np.zeros(1), np.zeros(x.shape[1])
    results = [np.zeros(shape) for shape in kernel.outputs.values()]
    call = library.caller(kernel.name, [moment, state, loop.parameters], results).evaluate

    def evaluate(k: int, keep: object = library) -> list[Array]:
        moment[0] = t[k]
        state[:] = x[k]
        call()
        return results

    return evaluate


def laws() -> list[TextbookRobots | LawOnTerms]:
    """The peers that evaluate the law, textbook NumPy first."""
    if not peers.installed()["pinocchio"]:
        return [TextbookRobots()]
    from tests.benchmarks.peers.pinocchio import PinocchioTerms

    return [TextbookRobots(), LawOnTerms(PINOCCHIO, PinocchioTerms(ROBOTS), ROBOTS)]


def tick(quick: bool) -> Results:
    """The control step of two robots: 5 links, 6 motors, 2 passive and 3 servo rows."""
    where = states(20 if quick else 500)
    loop, on = compiled(closed_loop_run()), compiled(closed_loop_run())
    contest = Contest(len(where.t))
    t, x = where.t.tolist(), where.x
    try:
        row = in_place(loop, loop.control_kernel, 1, where)
        contest.enter(FROM_PYTHON, lambda k: row(k)[0][:6])
        contest.enter_inside(INSIDE, Inside(loop.control_kernel, where.t, x, loop.parameters), slice(6))
        on.run_on(on.program(1).load(), 1)
        controller = Controller(on)
        contest.enter(ON_DRIVES, lambda k: controller.command(t[k], where.q[k], where.v[k]))
    except CompileError:  # VM alone
        pass
    contest.enter(VM, lambda k: loop.control(t[k], x[k])[:6])
    for law in laws():
        q, v = (law.tree.joint_angles(part) if len(law.tree.bars) else part for part in (where.q, where.v))
        contest.enter(law.name, lambda k, law=law, q=q, v=v: law.command(t[k], q[k], v[k]))
    exact = np.array([contest.results[TEXTBOOK](k) for k in range(len(t))])
    entries = contest.entries(exact, TOLERANCE, quick)
    others = (PINOCCHIO, TEXTBOOK)
    for ours, where_from in {FROM_PYTHON: "from Python", ON_DRIVES: "as the loop on drives calls it",
                             INSIDE: "inside C", VM: "on the virtual machine"}.items():  # fmt: skip
        if ours in entries:
            yield line(f"control step of two robots, {where_from}", entries, ours, *others)


def law_in_cpp(quick: bool) -> Results:
    """The control step of two robots beside the same law in C++ (Pinocchio, Eigen), whose compilation takes minutes."""
    where = states(20 if quick else 500)
    loop, contest = compiled(closed_loop_run()), Contest(len(where.t))
    row = in_place(loop, loop.control_kernel, 1, where)
    contest.enter(FROM_PYTHON, lambda k: row(k)[0][:6])
    contest.enter_inside(INSIDE, Inside(loop.control_kernel, where.t, where.x, loop.parameters), slice(6))
    contest.enter_inside(CPP, LawInCpp(where.t, ROBOTS.joint_angles(where.q), ROBOTS.joint_angles(where.v)))
    book = TextbookRobots()
    exact = np.array([book.command(*state) for state in zip(where.t.tolist(), where.q, where.v, strict=True)])
    entries = contest.entries(exact, TOLERANCE, quick)
    yield line("control step of two robots, inside C", entries, INSIDE, CPP)
    yield line("control step of two robots, from Python", entries, FROM_PYTHON, CPP)


def dynamics(quick: bool) -> Results:
    """The forward dynamics of two robots under constant torques: 5 links closed by 2 rows."""
    where = states(20 if quick else 500)
    contest = Contest(len(where.t))
    book, loop = TextbookRobots(), compiled(open_loop_run())
    t, x = where.t.tolist(), where.x
    try:
        rates = in_place(loop, loop.rates_kernel, None, where)
        contest.enter(FROM_PYTHON, lambda k: rates(k)[0][5:])
    except CompileError:
        contest.enter(VM, lambda k: loop.rates(t[k], x[k])[0][5:])
    contest.enter(TEXTBOOK, lambda k: book.acceleration(where.q[k], where.v[k], TORQUES))
    q, v = ROBOTS.joint_angles(where.q), ROBOTS.joint_angles(where.v)
    force = ROBOTS.joint_forces(actuation() @ TORQUES)
    for peer in _simulators():

        def motion(k: int, peer: Any = peer) -> Array:
            return peer.acceleration(q[k], v[k], force)

        contest.enter(peer.name, motion, lambda k, motion=motion: ROBOTS.angles(motion(k)))
    exact = np.array([contest.results[TEXTBOOK](k) for k in range(len(t))])
    tolerances = {name: SOFT_TOLERANCE if name == "MuJoCo" else TOLERANCE for name in contest.results}
    entries = contest.entries(exact, tolerances, quick)
    ours = next(iter(entries))
    yield line("forward dynamics of two robots, from Python", entries, ours, "Pinocchio", "MuJoCo", TEXTBOOK,
               note=f"MuJoCo's loops are soft: equal within {SOFT_TOLERANCE:g} rad/s^2")  # fmt: skip


def _simulators() -> list[Any]:
    installed = peers.installed()
    found: list[Any] = []
    if installed["pinocchio"]:
        from tests.benchmarks.peers.pinocchio import PinocchioTree

        found.append(PinocchioTree(ROBOTS, LOOP_GAIN))
    if installed["mujoco"]:
        from tests.benchmarks.peers.mujoco import MujocoTree

        found.append(MujocoTree(ROBOTS, 0.001, 1.0 / LOOP_GAIN))
    return found


STEP, DURATION = 0.001, 2 * np.pi  # [s]
PART = 100
"""Steps that a peer takes; the full run is extrapolated from them."""

Peer = TextbookRobots | LawOnTerms


def peer_run(law: Peer, q: Array, steps: int) -> Callable[[], Array]:
    """A function that runs a peer's own loop from rest at q; it returns q and v at the end."""
    n = len(q)

    def rates(t: float, x: Array) -> Array:
        return np.concatenate([x[n:], law.motion(t, x[:n], x[n:])])

    def go() -> Array:
        x = np.concatenate([q, np.zeros(n)])
        for k in range(steps):
            x = rk4(rates, k * STEP, x, STEP)
        return x

    return go


def run_rows(loop: Loop, x: Array, duration: float, output_step: float | None) -> Array:
    """States of a run by RK4, shape (rows, size)."""
    chunks = integrate(loop, x, 0.0, Settings(duration, integrator=Integrator("rk4", STEP), output_step=output_step))
    return np.concatenate([chunk.x for chunk in chunks])


def closed_loop(quick: bool) -> Results:
    """A closed-loop run of two robots: 2 pi s by RK4 at 1 ms, peers in a loop of their own."""
    duration, part = (0.1, 10) if quick else (DURATION, PART)
    run = closed_loop_run()
    loop, ours = compiled(run), VM
    try:
        loop.run_on(loop.program(None).load(), None)
        ours = "servoctl C"
    except CompileError:
        pass
    x = np.concatenate([run.start.q, run.start.v])
    works: dict[str, Callable[[], Array]] = {ours: lambda: run_rows(loop, x, duration, 0.01)}
    ends = {ours: run_rows(loop, x, part * STEP, None)[-1]}
    for law in laws():
        start = law.tree.joint_angles(run.start.q) if law.tree.bars else run.start.q
        works[law.name] = peer_run(law, start, part)
        q, v = np.split(works[law.name](), 2)
        ends[law.name] = np.concatenate([law.tree.angles(a) for a in (q, v)] if law.tree.bars else [q, v])
    contestants = {name: timed(lambda _, work=work: work(), time.process_time) for name, work in works.items()}
    times = medians(contestants, 2 if quick else 7)
    entries = {}
    for name, seconds in times.items():
        entry = Entry(name, seconds, float(np.abs(ends[name] - ends[TEXTBOOK]).max()), TOLERANCE)
        entries[name] = entry if name == ours else scaled(entry, duration / (part * STEP))
    yield line(f"closed loop of two robots, {duration:.3g} s, RK4 at 1 ms", entries, ours, PINOCCHIO, TEXTBOOK,
               note=f"peers: {part} steps are timed and multiplied; processor time")  # fmt: skip


OPEN_TOLERANCE = 1e-6  # [rad]
CHOICES = Choices(
    (1.0, 5.0, 10.0), tuple(1.0 / rate for rate in (20, 25, 32, 40, 50, 64, 80, 100, 125, 160, 200)),
    (1e-6, 1e-7, 1e-8, 1e-9), tuple(1.0 / rate for rate in (100, 200, 500, 1000, 2000)), (2.0, 4.0),
)  # fmt: skip


def reference() -> Callable[[Array], Array]:
    """Times -> absolute angles, from the saddle-point system in NumPy, integrated to 1e-12."""
    book = TextbookRobots()

    def rates(_: float, x: Array) -> Array:
        return np.concatenate([x[5:], book.acceleration(x[:5], x[5:], TORQUES)])

    start = np.concatenate([START, np.zeros(5)])
    dense: Any = solve_ivp(rates, (0.0, 1.0), start, "DOP853", dense_output=True, rtol=1e-12, atol=1e-12).sol
    return lambda t: np.asarray(dense(t)).T[:, :5]


def open_loop(quick: bool) -> Results:
    """Two robots for 1 s under constant torques to 1e-6 rad, each program with its best method and step."""
    choices = CHOICES.quick() if quick else CHOICES
    x = np.concatenate([START, np.zeros(5)])
    motion = PeerMotion(ROBOTS, ROBOTS.joint_angles(START), np.zeros(5),
                        ROBOTS.joint_forces(actuation() @ TORQUES), 1.0, list(range(5)))  # fmt: skip
    ours = our_candidates(lambda alpha: compiled(open_loop_run(alpha)), x, 1.0, list(range(5)), choices)
    best = fastest([*ours, *peer_candidates(motion, choices)], reference(), OPEN_TOLERANCE, quick)
    yield race("two robots, open loop, 1 s to 1e-6 rad", best, OPEN_TOLERANCE, quick)


COUNT, ROUNDS = 256, 3
GAIN = "law.correction.baumgarte"
LOW, HIGH = 5.0, 20.0  # [1/s]
CHECKED = 3
"""Runs of the batch that are repeated one by one."""

Metrics = Mapping[str, Sequence[Any]]


def sweep(quick: bool) -> Results:
    """256 gain sets of the closed loop of two robots, 2 pi s each, on one core and on two."""
    count, rounds = (4, 1) if quick else (COUNT, ROUNDS)
    run, gains = swept_run(quick), gain_sets(count)
    cores = [jobs for jobs in ((1,) if quick else (1, 2)) if jobs <= (os.cpu_count() or 1)]
    pinocchio = None if quick else next((law for law in laws() if law.name == PINOCCHIO), None)
    part = None
    if pinocchio is not None:
        go = peer_run(pinocchio, pinocchio.tree.joint_angles(closed_loop_run().start.q), PART)
        part = timed(lambda _: go(), time.process_time)
    batch(run, {path: values[:1] for path, values in gains.items()})  # compiles and fills the cache
    times: dict[int, list[float]] = {jobs: [] for jobs in cores}
    parts: list[float] = []
    metrics: dict[int, Metrics] = {}
    for _ in range(rounds):
        for jobs in cores:
            with on_cores(jobs):
                began = time.perf_counter()
                metrics[jobs] = batch(run, gains, jobs)
                times[jobs].append(time.perf_counter() - began)
        parts += [] if part is None else part(5).tolist()
    off = max(difference(metrics[1], metrics[jobs], k, k) for jobs in cores for k in range(count))
    for k in np.linspace(0, count - 1, CHECKED).astype(int).tolist():
        off = max(off, difference(metrics[1], alone(gains, k, quick), k, 0))
    entries = {f"servoctl, {n} core{'s' * (n > 1)}": float(np.median(times[n])) for n in reversed(cores)}
    found = [Entry(name, seconds, off, TOLERANCE) for name, seconds in entries.items()]
    if parts:
        found.append(scaled(Entry(PINOCCHIO, float(np.median(parts)), 0.0), count * DURATION / (PART * STEP)))
    named = {entry.name: entry for entry in found}
    yield line(f"{count} closed-loop runs of two robots", named, *named,
               note=f"difference: of the metrics, from one core and from {CHECKED} single runs")  # fmt: skip


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Binds the process to some of its cores: the thread that prepares runs would take part of another one."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def swept_run(quick: bool, overrides: Sequence[str] = ()) -> Run:
    """The closed loop with the object 9 cm too high at the start, so that the gains matter."""
    outer = np.radians(65.0)
    inner = np.arccos(1.0 - np.cos(outer))  # the loop stays closed
    q = [float(angle) for angle in (outer, -inner, 0.0, inner, -outer)]
    settings = [f"initial.q={q!r}", "initial.max_violation=1", *(["run.duration=0.1"] if quick else [])]
    return load(CONFIG, [*settings, *overrides])


def gain_sets(count: int) -> dict[str, list[float]]:
    """Evenly spread pairs of alpha and beta [1/s]; the same for each call."""
    k = np.arange(count)
    spread = [(k + 0.5) / count, ((k + 0.5) * 0.6180339887498949) % 1.0]
    return {
        f"{GAIN}.{name}": (LOW + (HIGH - LOW) * part).tolist()
        for name, part in zip(("alpha", "beta"), spread, strict=True)
    }


def alone(gains: Mapping[str, Sequence[float]], k: int, quick: bool) -> Metrics:
    """Metrics of one run of the batch, run alone."""
    values = [f"{path}={each[k]!r}" for path, each in gains.items()]
    summary = swept_run(quick, values).simulate().summary()
    return {name: [value] for name, value in metrics_of(summary).items()}


def difference(one: Metrics, other: Metrics, i: int, j: int) -> float:
    """Largest difference of a number between run `i` of one and run `j` of the other; infinite where one is missing."""
    off = 0.0
    for name, values in one.items():
        if isinstance(values[i], float):
            value = other[name][j] if name in other else None
            off = max(off, abs(values[i] - value) if isinstance(value, float) else np.inf)
    return off
