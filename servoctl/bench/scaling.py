"""Time and memory of an evaluation as machines grow, on each engine, and the least time that its operations need."""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.assembly.classes import load_class
from servoctl.assembly.system import make_system
from servoctl.bench import costs, peers
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable, at_most
from servoctl.bench.robots_case import on_c
from servoctl.bench.spatial_chain import in_pinocchio, target, tree
from servoctl.bench.timing import children_time
from servoctl.engine.compiler import compiler
from servoctl.engine.cost import operations
from servoctl.engine.pairwise import pairwise
from servoctl.engine.select_engine import affordable
from servoctl.laws.constraint_following import ConstraintFollowing
from servoctl.laws.corrections import Baumgarte, PFeedback
from servoctl.mechanics.constraint import Constraint, Holonomic, Nonholonomic
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.task.pose import Position
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.divided import division
from servoctl.simulation.engine_choice import make_loop
from servoctl.types import Array, State

SWARMS = (2, 5, 7, 10, 20, 50, 100, 200, 1000)
PAIRWISE = (5, 50, 200, 1000)
CHAINS = (2, 4, 6, 8, 10, 12, 15, 20, 30)
ARMS = (3, 4, 6, 8, 11, 15)
"""Links per arm of two robots that hold one object; the object counts for both."""

SPATIAL = (7, 30, 100)
"""Joints of a spatial chain."""

TREES = (10, 20, 30, 50)
"""Joints of a robot with arms of `BRANCH` joints on one link."""

BRANCH = 5
"""Joints of an arm of a tree."""

DENSE = 400
"""Coordinates beyond which dense algebra in NumPy is not tried: an evaluation takes seconds."""

UNROLLED = 30
"""Coordinates beyond which the unrolled engine is not tried: tracing alone takes minutes."""

LIMITS = {
    "swarm of 200": 4e-3, "swarm of 1000": 140e-3, "swarm of 200, pairwise": 0.1e-3, "swarm of 1000, pairwise": 3e-3,
}  # fmt: skip
"""Machine -> target of one evaluation, of law and motion, on its fastest engine [s]."""

HEADER = (
    "machine", "coordinates", "task rows", "parts", "auto", "make [s]", "auto [us]", "vm [us]", "cc CPU [s]", "c [us]",
    "numpy [us]", "floor [us]", "memory [MB]", "pinocchio [us]",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One machine of one size.

    Attributes:
        name: Name in the table.
        plant: The plant.
        task: Name -> constraint.
        law: The law.
        q: Coordinates at which it is evaluated, shape (n,).
        theirs: Makes the law of the same machine on Pinocchio's terms, if Pinocchio is there; None: it has none.
    """

    name: str
    plant: Plant
    task: dict[str, Constraint]
    law: ConstraintFollowing
    q: Array
    theirs: Callable[[], Any] | None = None


def scaling_study(effort: Effort, progress: Progress) -> BenchReport:
    """Cost of one closed-loop evaluation: swarms to 1,000, chains to 30 links, closed or not, spatial chains and trees.

    Args:
        effort: Quick takes only the small machines.
        progress: Called with the share of cases that are done.
    """
    cases = list(_swarms(SWARMS[:3] if effort.quick else SWARMS))
    cases += list(_pairwise_swarms(PAIRWISE[:1] if effort.quick else PAIRWISE))
    cases += list(_chains(CHAINS[:3] if effort.quick else CHAINS))
    cases += list(_robots(ARMS[:1] if effort.quick else ARMS))
    cases += list(_trees([(n, n) for n in SPATIAL[: 1 if effort.quick else None]], "spatial chain"))
    cases += list(_trees([(n, BRANCH) for n in TREES[: 1 if effort.quick else None]], "tree"))
    arithmetic, rows = None if compiler() is None else costs.measure().arithmetic, []
    for i, case in enumerate(cases):
        rows.append(_alone(case, not effort.quick, arithmetic))
        progress(i / len(cases))
    shown = [[_shown(row[key]) for key in HEADER] for row in rows]
    notes = [
        "auto: the engine that `--engine auto` chooses; make: tracing; cc CPU: processor time of the C "
        "compiler, 0 where the cache has the library; -: the compiler would take more than 5 s; "
        "parts: laws of their own; pairwise: the swarm's rule written with sc.pairwise",
        "floor: the operations of law and motion as traced, each in the time of an addition in scalar C; "
        "memory: peak of a process that makes and evaluates the machine, beyond what it began with",
        "pinocchio: terms of Pinocchio and algebra in NumPy; the law alone",
    ]
    table = TextTable("Cost of one evaluation of law and plant", HEADER, shown, left=1)
    return BenchReport(
        "Scaling: swarms, chains, closed chains and trees", [table], {"rows": rows}, notes, _findings(rows)
    )


def _findings(rows: list[dict[str, Any]]) -> list[Comparison]:
    """The fastest engine of each machine that has a target."""
    found = []
    for row in rows:
        if row["machine"] in LIMITS:
            times = [row[key] for key in ("auto [us]", "vm [us]", "c [us]", "numpy [us]") if row[key] is not None]
            found.append(at_most(f"law of a {row['machine']}", min(times) * 1e-6, LIMITS[row["machine"]]))
    return found


def _swarms(sizes: tuple[int, ...]) -> Iterator[Case]:
    swarm, gathering = (load_class(f"plants.swarm:{name}", Path(), object) for name in ("Swarm", "Aggregation"))
    for N in sizes:
        law = ConstraintFollowing(correction=PFeedback(0.2))
        yield Case(f"swarm of {N}", swarm(N=N), {"aggregation": gathering()}, law, _sunflower(N))


def _pairwise_swarms(sizes: tuple[int, ...]) -> Iterator[Case]:
    swarm = load_class("plants.swarm:Swarm", Path(), object)
    for N in sizes:
        law = ConstraintFollowing(correction=PFeedback(0.2))
        yield Case(f"swarm of {N}, pairwise", swarm(N=N), {"aggregation": Nonholonomic(_gather)}, law, _sunflower(N))


def _gather(q: Array, v: Array, t: float) -> Array:
    """The rule of the swarm, with a = 1 and b = 0.5."""

    def pull(position: Array, other: Array) -> Array:
        d = position - other
        force: Array = d * (1.0 - 0.5 / np.sqrt(np.sum(d * d, axis=0)))
        return force

    psi: Array = v + pairwise(pull, q.reshape(-1, 2), antisymmetric=True).reshape(-1)
    return psi


def _sunflower(N: int) -> Array:
    """Positions of N robots, shape (2 N,)."""
    i = np.arange(N)
    radius, angle = 2.0 * np.sqrt(i + 0.5), i * np.pi * (3.0 - np.sqrt(5.0))
    positions: Array = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)
    return positions


def _chains(sizes: tuple[int, ...]) -> Iterator[Case]:
    chain = load_class("plants.chain:Chain", Path(), Plant)
    for N in sizes:
        links = [f"(theta{i})" for i in range(1, N + 1)]
        tip: dict[str, Constraint] = {
            f"tip_{axis}": Holonomic(f"reach/{N}*({' + '.join(word + link for link in links)}) - 1")
            for axis, word in (("x", "cos"), ("y", "sin"))
        }
        law = ConstraintFollowing(correction=Baumgarte(10.0, 10.0))
        yield Case(f"chain of {N}", chain(N=N), tip, law, np.linspace(1.5, -0.5, N))


def _robots(sizes: tuple[int, ...]) -> Iterator[Case]:
    pair = load_class("plants.coordinated_robots:CoordinatedRobots", Path(), object)
    for s in sizes:
        arm = np.linspace(1.2, 0.3, s - 1)
        q = np.concatenate([arm, [0.0], -arm[::-1]])
        reach = {f"hand_{axis}": " + ".join(f"{word}(theta{i})" for i in range(1, s)) + f" + {word}(theta{s})/2 - 1"
                 for axis, word in (("x", "cos"), ("y", "sin"))}  # fmt: skip
        task: dict[str, Constraint] = {name: Holonomic(text) for name, text in reach.items()}
        task["level"] = Holonomic(f"theta{s}")
        law = ConstraintFollowing(correction=Baumgarte(10.0, 10.0))
        yield Case(f"robots of {2 * s - 1}", pair(s=s, L=float(np.cos(q).sum())), task, law, q)


def _trees(sizes: list[tuple[int, int]], name: str) -> Iterator[Case]:
    for joints, branch in sizes:
        law = ConstraintFollowing(correction=Baumgarte(10.0, 10.0))
        q = 0.4 * np.sin(1.0 + np.arange(joints))
        task: dict[str, Constraint] = {"tip": Position(f"link{joints}", target(branch))}
        theirs = partial(in_pinocchio, joints, branch)
        yield Case(f"{name} of {joints}", tree(joints, branch), task, law, q, theirs)


def _alone(case: Case, in_c: bool, arithmetic: float | None) -> dict[str, Any]:
    """A row of the table from a process of its own, whose peak of memory is that of this case."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return _measured(case, in_c, arithmetic)
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), _keep, (case,)) as process:
        return process.submit(_measured, None, in_c, arithmetic).result()


_kept: list[Case] = []  # the case of this process: plants of a user's class need not be written and read


def _keep(case: Case) -> None:
    _kept.append(case)


def _memory(field: str) -> float | None:
    """A field of this process's memory in /proc [MB]; None where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1.024e-3 for line in lines if line.startswith(field)), None)


def _measured(case: Case | None, in_c: bool, arithmetic: float | None) -> dict[str, Any]:
    """A row of the table, with C or without.

    Args:
        case: The machine; None: the one that this process keeps.
        in_c: Whether C is measured too.
        arithmetic: Time of an addition in C [s]; None: it is not known.
    """
    case, before = case or _kept[-1], _memory("VmRSS")
    n = len(case.q)
    start = State(0.0, case.q, np.zeros(n))
    system = make_system(case.plant, case.task, case.law, {}, start, None, 1e-6)
    began = time.perf_counter()
    auto = make_loop(system)
    x = np.concatenate([case.q, np.zeros(n)])
    auto.rates(0.0, x)
    made = time.perf_counter() - began
    cost = _cost(auto, x)
    unrolled: float | None = cost
    parts = max(1, len(division(system)))
    if auto.engine != "vm":
        unrolled = _cost(make_loop(system, "vm"), x) if n <= UNROLLED else None
    numeric = _cost(make_loop(system, "numpy"), x) if n <= DENSE else None
    rows, engine = len(system.model.task_rows), auto.engine
    compiling, in_machine_code = _in_c(auto, x) if in_c else (None, None)
    peak, floor = _memory("VmHWM"), None
    if isinstance(auto, CompiledLoop) and arithmetic is not None:
        floor = operations(auto.rates_kernel.function) * arithmetic * 1e6
    used = None if before is None or peak is None else peak - before
    theirs = None
    if case.theirs is not None and peers.installed()["pinocchio"]:
        law = case.theirs()
        theirs = _time(lambda: law.command(case.q, np.zeros(n)))
    figures = (
        case.name, n, rows, parts, engine, made, cost, unrolled, compiling, in_machine_code, numeric, floor, used,
        theirs,
    )  # fmt: skip
    return dict(zip(HEADER, figures, strict=True))


def _in_c(loop: Loop, x: Array) -> tuple[float | None, float | None]:
    """Processor time of the compiler [s] and time of one evaluation in C [us]; None where `auto` would not take it."""
    if not isinstance(loop, CompiledLoop) or compiler() is None or affordable(loop.program(None))[1]:
        return None, None
    began = children_time()
    if on_c(loop, None) is not None:
        return None, None
    return children_time() - began, _cost(loop, x)


def _cost(loop: Loop, x: Array) -> float:
    """Median time of one evaluation [us], over at least five and about a fifth of a second."""
    return _time(lambda: loop.rates(0.0, x))


def _time(evaluate: Callable[[], object]) -> float:
    """Median time of a call [us], as of `_cost`."""
    evaluate()
    times: list[float] = []
    while len(times) < 5 or (sum(times) < 0.2 and len(times) < 2000):
        began = time.perf_counter()
        evaluate()
        times.append(time.perf_counter() - began)
    return float(np.median(times)) * 1e6


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.3g}" if isinstance(value, float) else str(value)
