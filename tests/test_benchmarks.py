"""Benchmarks beside peers: everybody does the same work, against references that none of them has made."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from plants.coordinated_robots import CoordinatedRobots
from servoctl.engine import compiler
from servoctl.simulation.engine_choice import make_loop
from servoctl.study.batch import batch
from servoctl.types import Array
from tests.benchmarks import cases, laws, linkages, peers
from tests.benchmarks.cases import CASES, ONLY_BY_NAME, main
from tests.benchmarks.contest import Entry, Line, Results, Table, medians, printed, shown, timed
from tests.benchmarks.fresh import ProcessError, cost
from tests.benchmarks.inside import Inside
from tests.benchmarks.parallelogram import INERTIA, MOMENT, exact_angle, pendulum, rotating_angle
from tests.benchmarks.peers.algebra import LOOP_GAIN, LawOnTerms, actuation
from tests.benchmarks.peers.textbook import TextbookRobots
from tests.benchmarks.peers.tree import PARALLELOGRAM, ROBOTS, parallelogram_angles
from tests.benchmarks.search import Candidate, fastest
from tests.benchmarks.two_robots import (
    START,
    TORQUES,
    alone,
    closed_loop_run,
    compiled,
    difference,
    gain_sets,
    in_place,
    open_loop_run,
    reference,
    states,
    swept_run,
)

needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="there is no C compiler")
STATES = states(7)
PLANT = CoordinatedRobots(g=ROBOTS.g)


def needs(module: str) -> Any:
    """Skips where a peer is missing, with the words that a benchmark prints."""
    missing = peers.missing(module)
    return pytest.mark.skipif(missing is not None, reason=missing or "")


def saddle_point(q: Array, v: Array, u: Array, gain: float = LOOP_GAIN) -> Array:
    """Accelerations of the robots from the plant's own matrices, the loop stabilised; rows of the loop written out."""
    M, Q = PLANT.mass_matrix(q, 0.0), PLANT.force(q, v, 0.0) + PLANT.actuation(q, 0.0) @ u
    A = np.array([-np.sin(q), np.cos(q)])
    drift = np.array([-np.cos(q) @ v**2, -np.sin(q) @ v**2])
    gap = PLANT.passive_constraints(q, 0.0)["loop"]
    b = -drift - 2.0 * gain * A @ v - gain**2 * gap
    system = np.block([[M, A.T], [A, np.zeros((2, 2))]])
    return np.asarray(np.linalg.solve(system, np.concatenate([Q, b]))[:5])


def object_error(t: float, q: Array) -> Array:
    """How far the object is off its place and its level."""
    share = np.array([1.0, 1.0, 0.5, 0.0, 0.0])
    return np.array([share @ np.cos(q) - 1.5, share @ np.sin(q) - (1.0 - np.cos(t)) / 2, q[2]])


def test_textbook_dynamics_are_those_of_the_saddle_point_system() -> None:
    book = TextbookRobots()
    assert np.array_equal(actuation(), PLANT.actuation(STATES.q[0], 0.0))
    for q, v in zip(STATES.q, STATES.v, strict=True):
        assert book.acceleration(q, v, TORQUES) == pytest.approx(saddle_point(q, v, TORQUES), abs=1e-12)


def test_textbook_law_makes_the_error_of_the_object_decay_as_it_should() -> None:
    book = TextbookRobots()
    h = 1e-4
    for t, q, v in zip(STATES.t, STATES.q, STATES.v, strict=True):
        a = saddle_point(q, v, book.command(t, q, v), gain=0.0)  # the law does not know of the stabilisation
        # e'' + 20 e' + 100 e = 0, by differences along the parabola with this acceleration
        before, now, after = (object_error(t + s, q + s * v + s**2 / 2 * a) for s in (-h, 0.0, h))
        residual = (after - 2.0 * now + before) / h**2 + 20.0 * (after - before) / (2.0 * h) + 100.0 * now
        assert np.abs(residual).max() < 1e-6  # h^2 times a fourth derivative, and rounding / h^2


def test_textbook_command_is_the_one_that_moves_and_the_smallest() -> None:
    book = TextbookRobots()
    for t, q, v in zip(STATES.t, STATES.q, STATES.v, strict=True):
        u = book.command(t, q, v)
        a = book.motion(t, q, v)
        assert a == pytest.approx(saddle_point(q, v, u), abs=1e-10)
        # u is the smallest: it has no part along what the object does not feel
        columns = np.array([saddle_point(q, v, u + e) - a for e in np.eye(6)]).T
        unfelt = np.linalg.svd(columns)[2][3:]
        assert np.abs(unfelt @ u).max() < 1e-9 * np.abs(u).max()


@pytest.mark.parametrize("engine", ["numpy", "vm"])
def test_ours_is_the_textbooks_law(engine: str) -> None:
    book, system = TextbookRobots(), closed_loop_run().system
    loop = make_loop(system, engine)
    for t, q, v, x in zip(STATES.t, STATES.q, STATES.v, STATES.x, strict=True):
        assert loop.control(t, x)[:6] == pytest.approx(book.command(t, q, v), abs=1e-10)
        assert loop.rates(t, x)[0][5:] == pytest.approx(book.motion(t, q, v), abs=1e-10)


def test_the_reference_motion_closes_the_loop_and_gains_what_the_motors_give() -> None:
    angles, h = reference(), 1e-4
    q = angles(np.array([0.0, 1.0 - 2 * h, 1.0 - h, 1.0]))
    assert q[0] == pytest.approx(START, abs=1e-15)
    assert [np.cos(q[-1]).sum(), np.sin(q[-1]).sum()] == pytest.approx([3.0, 0.0], abs=1e-9)
    v = (3.0 * q[3] - 4.0 * q[2] + q[1]) / (2.0 * h)
    gained = PLANT.energy(q[3], v, 1.0) - PLANT.energy(q[0], np.zeros(5), 0.0)
    given = TORQUES @ actuation().T @ (q[3] - q[0])  # constant torques: power is a total derivative
    assert gained == pytest.approx(given, rel=1e-5)


def test_the_turning_linkage_is_the_pendulums() -> None:
    times = np.linspace(0.0, 20.0, 101)
    assert np.abs(rotating_angle(times, 1.0) - pendulum(np.pi / 2, 1.0)(times)[0]).max() < 1e-9
    assert rotating_angle(np.array(20.0), 1.0) > 4 * np.pi


def test_joint_angles_are_differences_of_absolute_ones() -> None:
    theta = np.array([0.3, -0.2, 0.5, 0.1, -0.7])
    assert ROBOTS.joint_angles(theta) == pytest.approx(np.diff(theta, prepend=0.0))
    assert ROBOTS.angles(ROBOTS.joint_angles(STATES.q)) == pytest.approx(STATES.q)
    assert PARALLELOGRAM.joint_angles(parallelogram_angles(0.4)) == pytest.approx([0.4, -0.4, 0.4, 0.4])
    # power is the same in both
    v, force = STATES.v[0], np.arange(5.0)
    assert ROBOTS.joint_forces(force) @ ROBOTS.joint_angles(v) == pytest.approx(force @ v)


BOTH = [pytest.param("pinocchio", marks=needs("pinocchio")), pytest.param("mujoco", marks=needs("mujoco"))]


@needs("pinocchio")
def test_the_law_on_a_peers_terms_is_the_textbooks() -> None:
    from tests.benchmarks.peers.pinocchio import PinocchioTerms

    law, book = LawOnTerms("pinocchio", PinocchioTerms(ROBOTS), ROBOTS), TextbookRobots()
    for t, q, v in zip(STATES.t, STATES.q, STATES.v, strict=True):
        joints = ROBOTS.joint_angles(q), ROBOTS.joint_angles(v)
        assert law.command(t, *joints) == pytest.approx(book.command(t, q, v), abs=1e-9)
        assert ROBOTS.angles(law.motion(t, *joints)) == pytest.approx(book.motion(t, q, v), abs=1e-9)


def tree_of(module: str, tree: Any, h: float) -> Any:
    if module == "pinocchio":
        from tests.benchmarks.peers.pinocchio import PinocchioTree

        return PinocchioTree(tree, LOOP_GAIN)
    from tests.benchmarks.peers.mujoco import MujocoTree

    return MujocoTree(tree, h, 1.0 / LOOP_GAIN)


@pytest.mark.parametrize("module", BOTH)
def test_a_peers_dynamics_are_those_of_the_saddle_point_system(module: str) -> None:
    peer, force = tree_of(module, ROBOTS, 0.001), ROBOTS.joint_forces(actuation() @ TORQUES)
    close = 1e-10 if module == "pinocchio" else 1e-2  # MuJoCo's loops are soft
    for q, v in zip(STATES.q, STATES.v, strict=True):
        found = peer.acceleration(ROBOTS.joint_angles(q), ROBOTS.joint_angles(v), force)
        assert ROBOTS.angles(found) == pytest.approx(saddle_point(q, v, TORQUES), abs=close)


@pytest.mark.parametrize("module", BOTH)
def test_a_peers_linkage_swings_as_the_pendulum(module: str) -> None:
    start, h, steps = -np.pi / 6, 0.005, 200
    peer, force = tree_of(module, PARALLELOGRAM, h), np.zeros(4)
    q = PARALLELOGRAM.joint_angles(parallelogram_angles(start))
    given = (q, np.zeros(4), force, h, steps) if module == "pinocchio" else (q, np.zeros(4), force, steps)
    angles = PARALLELOGRAM.angles(peer.rk4(*given)[:, :4])
    exact = exact_angle(h * np.arange(steps + 1), start)
    close = 1e-7 if module == "pinocchio" else 1e-4  # MuJoCo's loops are soft
    assert np.abs(angles[:, [0, 2, 3]] - exact[:, None]).max() < close
    assert np.abs(angles[:, 1]).max() < close  # the coupler stays level


@needs("pinocchio")
def test_pinocchios_loop_has_the_order_of_its_method() -> None:
    peer, force = tree_of("pinocchio", ROBOTS, 0.0), ROBOTS.joint_forces(actuation() @ TORQUES)
    exact = reference()
    errors = []
    for steps in (50, 100):
        found = ROBOTS.angles(peer.rk4(ROBOTS.joint_angles(START), np.zeros(5), force, 1.0 / steps, steps)[:, :5])
        errors.append(np.abs(found - exact(np.arange(steps + 1) / steps)).max())
    assert 3.5 < np.log2(errors[0] / errors[1]) < 4.5


def test_a_missing_peer_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pinocchio", None)  # import of None fails as if nothing were there
    assert peers.missing("pinocchio") == ("pinocchio is not installed: left out (pip install 'servoctl[bench]')")
    assert peers.installed()["pinocchio"] is False


@needs_compiler
def test_a_call_in_c_gives_what_the_loop_gives() -> None:
    loop = compiled(open_loop_run())
    inside = Inside(loop.rates_kernel.function, STATES.t, STATES.x, loop.parameters)
    times = inside(20)
    rates = in_place(loop, loop.rates_kernel, None, STATES)
    for k, x in enumerate(STATES.x):
        expected = saddle_point(x[:5], x[5:], TORQUES)
        assert inside.results[k, 5:10] == pytest.approx(expected, abs=1e-10)
        assert rates(k)[0][5:] == pytest.approx(expected, abs=1e-10)
    assert times.shape == (20,) and (times >= 0.0).all()


def test_contestants_take_turns_after_one_that_does_not_count() -> None:
    order: list[str] = []

    def contestant(name: str, time: float) -> Callable[[int], Array]:
        def calls(count: int) -> Array:
            order.append(name)
            return np.full(count, time)

        return calls

    found = medians({"a": contestant("a", 1.0), "b": contestant("b", 2.0)}, rounds=2, calls=3)
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert found == {"a": 1.0, "b": 2.0}
    numbers: list[int] = []
    calls = timed(numbers.append)
    assert len(calls(2)) == 2 and len(calls(3)) == 3
    assert numbers == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("value", "text"), [(2.5, "2.5 s"), (0.0312, "31.2 ms"), (4e-6, "4 us"), (8.51e-7, "851 ns")])
def test_a_time_has_its_unit(value: float, text: str) -> None:
    assert shown(value) == text


def test_the_fastest_accurate_candidate_is_chosen_and_a_lost_motion_is_not() -> None:
    t = np.array([0.0, 1.0])

    def way(name: str, how: str, error: float) -> Candidate:
        return Candidate(name, how, lambda: (t, np.array([[0.0], [error]])), how)

    ways = [way("one", "lost", np.nan), way("one", "fine", 1e-9), way("two", "coarse", 0.1), way("two", "less", 0.01)]
    best = fastest(ways, lambda s: np.zeros((len(s), 1)), 1e-6)
    # who never gets there is shown with the most accurate way
    assert {name: trial.candidate.how for name, trial in best.items()} == {"one": "fine", "two": "less"}


def test_a_series_ends_when_it_has_become_slower_than_what_is_accurate() -> None:
    trials: list[str] = []

    def way(how: str, seconds: float) -> Candidate:
        def run() -> tuple[Array, Array]:
            import time

            trials.append(how)
            until = time.process_time() + seconds
            while time.process_time() < until:
                pass
            return np.zeros(1), np.zeros((1, 1))

        return Candidate("one", how, run, "series")

    fastest([way("first", 0.0), way("slow", 0.05), way("slower", 0.1)], lambda s: np.zeros((1, 1)), 1e-6)
    assert set(trials) == {"first", "slow"}


def test_unequal_work_has_no_ratio() -> None:
    entries = Entry("ours", 1.0, 0.0, 1e-9), Entry("equal", 5.0, 1e-10, 1e-9), Entry("other", 9.0, 1e-3, 1e-9)
    line = Line("work", (*entries, Entry("lost", 1.0, np.nan, 1e-9)), "a note")
    assert [row["ratio"] for row in line.values["entries"]] == [1.0, 5.0, None, None]
    assert [row["equal"] for row in line.values["entries"]] == [True, True, False, False]
    rows = [row.split() for row in printed([line]).splitlines()]
    assert rows[2:6] == [
        ["work", "ours", "1", "s", "0.0e+00"], ["equal", "5", "s", "5", "1.0e-10"],
        ["other", "9", "s", "not", "equal", "1.0e-03"], ["lost", "1", "s", "not", "equal", "nan"],
    ]  # fmt: skip
    assert printed([line]).endswith("work: a note")


def weighing(quick: bool) -> Results:
    """A benchmark that costs nothing."""
    yield Line("feather", (Entry("scales", 0.5 if quick else 2.0),))
    yield Table("On scales", ("what", "grams"), [["feather", "1.5?"]])


@pytest.fixture
def only_weighing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "CASES", {"weighing": weighing})


@pytest.mark.usefixtures("only_weighing")
def test_without_a_name_all_benchmarks_print_their_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert err == "weighing: A benchmark that costs nothing.\n"
    lines = [line.split() for line in out.splitlines() if line.strip(" -")]
    assert lines[1:5] == [["feather", "scales", "2", "s", "0.0e+00"], ["On", "scales"], ["what", "grams"],
                          ["feather", "1.5?"]]  # fmt: skip


@pytest.mark.usefixtures("only_weighing")
def test_json_has_every_benchmark_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weighing", "--quick", "--json"]) == 0
    (row, table), versions = json.loads(capsys.readouterr().out).values()
    assert row["entries"][0]["seconds"] == 0.5 and row["entries"][0]["tolerance"] is None
    assert table["rows"] == [{"what": "feather", "grams": "1.5?"}]
    assert versions["numpy"] == np.__version__


def test_an_unknown_benchmark_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["tick", "tack"])
    out, err = capsys.readouterr()
    assert out == "" and "there is no benchmark 'tack' (there are: tick, dynamics, " in err


def test_a_batch_is_its_runs_done_alone() -> None:
    gains = gain_sets(2)
    found = batch(swept_run(quick=True), gains)
    assert difference(found, alone(gains, 1, quick=True), 1, 0) < 1e-12
    assert difference(found, found, 0, 1) > 1e-6  # other gains, other numbers
    assert difference({"a": [1.0]}, {"a": [None]}, 0, 0) == np.inf


def test_the_linkage_starts_where_the_exact_motion_does() -> None:
    for start in (linkages.REGULAR, linkages.FLAT):
        assert start.exact(np.zeros(1))[0] == pytest.approx(start.theta, abs=1e-12)
        loop, x = start.loop(10.0), start.ours()
        assert x[linkages.OURS] == pytest.approx(3 * [start.theta])
        rates, row = loop.rates(0.0, x)
        assert np.abs(row[loop.layout.slices["passive"]]).max() < 1e-15
        expected = -MOMENT / INERTIA * np.cos(start.theta)
        assert rates[[14, 17, 20]] == pytest.approx(3 * [expected], abs=1e-9)


def test_the_command_of_a_spatial_chain_moves_its_tip_as_asked() -> None:
    """Independent of Jacobians: the tip's position along a parabola of the motion that M and Q of the plant give."""
    joints, h = 5, 1e-5
    robot, source = laws.chain(joints), np.random.default_rng(3)
    q, v = source.uniform(-1.0, 1.0, (2, joints))
    u = laws.chain_loop(joints, q, v).control(0.0, np.concatenate([q, v]))[:joints]
    a = np.linalg.solve(robot.mass_matrix(q, 0.0), robot.force(q, v, 0.0) + robot.actuation(q, 0.0) @ u)
    name, place = f"link{joints}", laws.target(joints)
    before, now, after = (
        robot.frame_motions([name], q + s * v + s**2 / 2 * a, v)[name].position - place for s in (-h, 0.0, h)
    )
    gain = laws.GAIN
    residual = (after - 2.0 * now + before) / h**2 + 2.0 * gain * (after - before) / (2.0 * h) + gain**2 * now
    assert np.abs(residual).max() < 5e-5  # of 50: h^2 times a fourth derivative, and rounding / h^2


def test_a_failing_process_is_named(tmp_path: Any) -> None:
    assert cost(["-c", "pass"], tmp_path).wall > 0.0
    with pytest.raises(ProcessError, match=r"python -c raise SystemExit.*: ends with exit code 3: no message"):
        cost(["-c", "raise SystemExit(3)"], tmp_path)


@pytest.mark.slow
def test_every_benchmark_runs_in_small_and_programs_agree() -> None:
    names = [name for name in CASES if name not in ONLY_BY_NAME]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--quick", "--json"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert list(values) == [*names, "versions"]
    lines = [(name, line) for name in names for line in values[name] if "entries" in line]
    assert {name for name, _ in lines} == set(names) - {"wrong_model"}
    one_setting = {"open_loop", "parallelogram"}  # a quick run does not search for one that is accurate
    for name, line in lines:
        assert all(entry["equal"] and entry["seconds"] > 0.0 for entry in line["entries"]) or name in one_setting, line
    for module, known in (("pinocchio", "Pinocchio"), ("mujoco", "MuJoCo")):
        for name in ("dynamics", "open_loop", "robots_from_files"):
            programs = " ".join(entry["name"] for entry in values[name][0]["entries"])
            assert (known in programs) == peers.installed()[module]
