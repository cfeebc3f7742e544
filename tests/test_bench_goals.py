"""Benchmarks that stand beside a goal: laws inside C, compilers, fresh processes, and a long run."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from servoctl.bench import bounds, peers, pendulum, spatial_chain
from servoctl.bench.fresh import cost
from servoctl.bench.report import Effort, at_most
from servoctl.bench.spatial_chain import GAIN, chain, target
from servoctl.bench.timing import children_time
from servoctl.engine import compiler

QUICK = Effort(quick=True)
NESTED = """
import subprocess, sys
work = "import time\\nwhile time.process_time() < 0.3: pass"
subprocess.run([sys.executable, "-c", work], check=True)
print("done")
"""


def test_a_goal_is_a_limit_and_reached_where_the_ratio_is_above_one() -> None:
    met, missed = at_most("law", 2e-6, 2.5e-6), at_most("law", 5e-6, 2.5e-6)
    assert (met.peer, met.aim) == ("at most 2.5 us", 1.0)
    assert (met.ratio, missed.ratio) == pytest.approx((1.25, 0.5))


@pytest.mark.skipif(os.name == "nt", reason="Windows does not count child processes")
def test_the_cost_of_a_process_counts_the_processes_that_it_starts(tmp_path: Path) -> None:
    before = children_time()
    spent = cost(["-c", NESTED], tmp_path)
    assert spent.output == "done\n"
    assert 0.28 < spent.processor <= children_time() - before + 1e-9  # the clock counts hundredths
    assert spent.wall > 0.28


def test_the_law_of_a_spatial_chain_equals_lapack_and_peers() -> None:
    shares: list[float] = []
    report = spatial_chain.spatial_chain(QUICK, shares.append)
    (values,) = report.values["chains"]
    rows = {row["name"]: row for row in values["rows"]}
    expected = {"servoctl VM, from Python"}
    expected |= {"servoctl C, inside C"} if compiler.compiler() is not None else set()
    expected |= {"Pinocchio + pinv"} if peers.installed()["pinocchio"] else set()
    assert set(rows) == expected and all(row["equal"] for row in rows.values())
    assert values["joints"] == 3 and shares == [1.0]
    if compiler.compiler() is not None:
        assert values["engine"] == "c" and values["compiling"] > 0.0
        goals = [each for each in report.findings if each.peer == "at most 5 s"]
        assert [each.ours for each in goals] == [values["compiling"]]


def test_the_command_of_a_spatial_chain_moves_its_tip_as_asked() -> None:
    """Independent of Jacobians: the tip's position along a parabola of the motion that M and Q of the plant give."""
    joints, h = 5, 1e-5
    robot, source = chain(joints), np.random.default_rng(3)
    q, v = source.uniform(-1.0, 1.0, (2, joints))
    loop = spatial_chain.loop_of(joints, q, v)
    u = loop.control(0.0, np.concatenate([q, v]))[:joints]
    a = np.linalg.solve(robot.mass_matrix(q, 0.0), robot.force(q, v, 0.0) + robot.actuation(q, 0.0) @ u)
    name = f"link{joints}"
    before, now, after = (
        robot.frame_motions([name], q + s * v + s**2 / 2 * a, v)[name].position - target(joints) for s in (-h, 0.0, h)
    )
    residual = (after - 2.0 * now + before) / h**2 + 2.0 * GAIN * (after - before) / (2.0 * h) + GAIN**2 * now
    assert np.abs(residual).max() < 5e-5  # of 50: h^2 times a fourth derivative, and rounding / h^2


def test_the_pendulum_in_cartesian_coordinates_swings_as_its_closed_solution() -> None:
    t = np.linspace(0.0, 20.0, 41)
    swing = solve_ivp(
        lambda t, y: [y[1], -pendulum.GRAVITY * np.sin(y[0])], (0.0, 20.0), [-np.pi / 2, 0.0], "DOP853", t,
        rtol=1e-13, atol=1e-13,
    )  # fmt: skip
    assert np.abs(pendulum.exact(t) - swing.y[0]).max() < 1e-10
    facts = pendulum.process(3.0)
    assert facts["engine"] == "vm" and facts["choice"].endswith("not compiled")
    assert facts["angle_error"] < 1e-9 and facts["energy_error"] < 1e-8


@pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path")
def test_the_benchmark_of_bounds_times_the_same_law_with_none_free_and_binding_rows() -> None:
    report = bounds.bounds(QUICK, lambda share: None)
    (entries,) = report.values.values()
    assert [entry["name"] for entry in entries] == [bounds.NONE, bounds.FREE, bounds.BINDING]
    assert all(entry["equal"] for entry in entries)
    without, free, binding = report.tables[1].rows
    assert without[1:4] == ["-", "-", "0.0e+00"]
    assert free[1:4] == ["0.00 of 3", "0.0e+00", "0.0e+00"]  # to the bit
    assert binding[1:3] == ["3.00 of 3", "0.0e+00"] and float(binding[3]) > 1.0
    goals = {finding.peer: finding.theirs / entries[0]["median"] for finding in report.findings}
    assert goals == pytest.approx({"at most 1.3 times the law without": 1.3, "at most 2.5 times the law without": 2.5})
