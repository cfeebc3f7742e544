"""Benchmarks beside peers: everybody does the same work, against references that none of them has made."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.benchmarks import cases, peers
from tests.benchmarks.cases import CASES, ONLY_BY_NAME, main
from tests.benchmarks.contest import Entry, Line, Results, Table, printed
from tests.benchmarks.fresh import ProcessError, cost
from tests.benchmarks.parallelogram import exact_angle, pendulum, rotating_angle
from tests.benchmarks.peers.algebra import LOOP_GAIN
from tests.benchmarks.peers.tree import PARALLELOGRAM, parallelogram_angles
from tests.benchmarks.search import Candidate, fastest


def needs(module: str) -> Any:
    """Skips where a peer is missing, with the words that a benchmark prints."""
    missing = peers.missing(module)
    return pytest.mark.skipif(missing is not None, reason=missing or "")


def test_the_closed_motions_of_the_linkage_are_the_pendulums() -> None:
    times = np.linspace(0.0, 20.0, 101)
    for start in (-np.pi / 4, np.pi / 4):
        assert np.abs(exact_angle(times, start) - pendulum(start, 0.0)(times)[0]).max() < 1e-9
    assert np.abs(rotating_angle(times, 1.0) - pendulum(np.pi / 2, 1.0)(times)[0]).max() < 1e-9
    assert rotating_angle(np.array(20.0), 1.0) > 4 * np.pi


BOTH = [pytest.param("pinocchio", marks=needs("pinocchio")), pytest.param("mujoco", marks=needs("mujoco"))]


def tree_of(module: str, tree: Any, h: float) -> Any:
    if module == "pinocchio":
        from tests.benchmarks.peers.pinocchio import PinocchioTree

        return PinocchioTree(tree, LOOP_GAIN)
    from tests.benchmarks.peers.mujoco import MujocoTree

    return MujocoTree(tree, h, 1.0 / LOOP_GAIN)


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


def test_a_missing_peer_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pinocchio", None)  # import of None fails as if nothing were there
    assert peers.missing("pinocchio") == ("pinocchio is not installed: left out (pip install 'servoctl[bench]')")
    assert peers.installed()["pinocchio"] is False


def test_the_fastest_accurate_candidate_is_chosen_and_a_lost_motion_is_not() -> None:
    t = np.array([0.0, 1.0])

    def way(name: str, how: str, error: float) -> Candidate:
        return Candidate(name, how, lambda: (t, np.array([[0.0], [error]])), how)

    ways = [way("one", "lost", np.nan), way("one", "fine", 1e-9), way("two", "coarse", 0.1), way("two", "less", 0.01)]
    best = fastest(ways, lambda s: np.zeros((len(s), 1)), 1e-6)
    # who never gets there is shown with the most accurate way
    assert {name: trial.candidate.how for name, trial in best.items()} == {"one": "fine", "two": "less"}


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
