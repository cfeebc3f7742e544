"""Threads that share a plant never see each other's numbers, and have the stack that large machines need."""

import os
import resource
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass

import numpy as np
import pytest

import servoctl as sc
from servoctl.engine.kernel import Kernel, inputs
from servoctl.study.batch import STACK, _deep_threads


@dataclass(frozen=True)
class Pendulum(sc.LagrangianPlant):
    """Two coupled angles."""

    m: float = 1.0
    coordinates = {"a": "rad", "b": "rad"}  # noqa: RUF012
    actuators = {}  # noqa: RUF012

    def kinetic_energy(self, q, v, t):  # type: ignore[no-untyped-def]
        return 0.5 * self.m * (v[0] ** 2 * (1.5 + np.cos(q[1])) + v[1] ** 2 * 0.5 + v[0] * v[1] * 0.5 * np.cos(q[1]))


@pytest.fixture
def often() -> object:
    """Threads change places every microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


CALLS = int(os.environ.get("SERVOCTL_CALLS", "6000"))  # in all threads together


def wrong(calls: list, count: int = 30_000) -> list[int]:  # type: ignore[type-arg]
    """How many of so many calls in each of several threads differ from the first one of its own."""
    expected, found = [call() for call in calls], [0] * len(calls)

    def work(i: int) -> None:
        for _ in range(count):
            found[i] += not np.array_equal(calls[i](), expected[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_two_threads_get_the_mass_matrices_of_their_own_poses(often: object) -> None:
    plant = Pendulum()
    poses = [np.array([0.1, 0.2]), np.array([0.1, 1.4])]
    assert wrong([lambda q=q: plant.mass_matrix(q, 0.0) for q in poses]) == [0, 0]


def test_two_threads_share_a_kernel_that_was_called_by_neither(often: object) -> None:
    symbols = inputs({"x": (2,)})
    kernel = Kernel.compile("square", symbols, {"y": symbols["x"] ** 2})
    values = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    assert wrong([lambda x=x: kernel(x)[0] for x in values]) == [0, 0]


@pytest.mark.parametrize(
    "engine", ["vm", pytest.param("c", marks=pytest.mark.skipif(not shutil.which("cc"), reason="no compiler"))]
)
def test_four_threads_share_a_law_with_memory_and_limits(often: object, engine: str) -> None:
    """Each in a state of its own; the answers are those of one thread alone."""
    run = sc.load("coordinated_robots_limited", ["law.observer=auto", "run.period=0.005"], engine=engine)
    loop, random = run.loop, np.random.default_rng(0)
    x = np.concatenate([run.start.q, run.start.v, loop.memory_start])
    states = [x + 0.1 * random.standard_normal(len(x)) for _ in range(4)]
    assert wrong([lambda x=x: loop.control(0.3, x) for x in states], CALLS // 4) == [0] * 4
    assert wrong([lambda x=x: loop.rates(0.3, x)[1] for x in states], CALLS // 4) == [0] * 4


def test_four_threads_share_a_constraint_and_every_term_by_name(often: object) -> None:
    run = sc.load("coordinated_robots", engine="vm")
    states = [sc.State(0.2, run.start.q + 0.1 * k, run.start.v + 0.2 * k) for k in range(4)]
    assert wrong([lambda s=s: run.system.model.rows(s)[1].b for s in states], CALLS // 4) == [0] * 4
    assert wrong([lambda s=s: sc.evaluate(run, *s)["u"] for s in states], CALLS // 40) == [0] * 4


SMALL = 256 * 1024


def small_stack() -> None:
    resource.setrlimit(resource.RLIMIT_STACK, (SMALL, resource.getrlimit(resource.RLIMIT_STACK)[1]))


def test_the_command_line_raises_a_small_limit_of_its_stack() -> None:
    """With 256 kB, `sweep two_arms_box` dies of a segmentation fault while it traces."""
    code = (
        "import resource\nfrom servoctl.cli import main\n"
        "try:\n    main(['list', 'plants'])\nexcept SystemExit:\n    pass\n"
        "print(resource.getrlimit(resource.RLIMIT_STACK)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], preexec_fn=small_stack, capture_output=True, text=True)
    assert int(done.stdout.split()[-1]) == 8 * 2**20, done.stderr


def test_threads_of_generated_code_have_a_stack_of_their_own_size() -> None:
    before, depths = threading.stack_size(SMALL), []
    try:
        with _deep_threads():
            depths.append(threading.stack_size())
        depths.append(threading.stack_size())
    finally:
        threading.stack_size(before)
    assert depths == [STACK, SMALL]
