"""Sweeps and searches on a Dask cluster: the rows of this machine, also when workers die; and missing clusters."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import servoctl as sc
from servoctl.cli import main
from servoctl.errors import ConfigError
from servoctl.study import cluster as clusters
from servoctl.study.batch import batch, run_all
from servoctl.study.cluster import Cluster, pack, unpack
from servoctl.study.points import points_of, read_varies
from servoctl.study.search import tune
from servoctl.study.sweep import sweep
from tests.config_texts import plant_text
from tests.test_tune import CONFIG as SEARCH
from tests.test_tune import problem, table

distributed = pytest.importorskip("distributed")

BALL = "import os\nfrom contextlib import suppress\nimport distributed\n" + plant_text(
    "Ball", "m: float = 1.0", "z", "F", "np.array([[self.m]])", "np.array([-9.8 * self.m])", more="""
    def __post_init__(self):
        try:
            distributed.get_worker()
        except ValueError:
            return  # not on a cluster
        if self.m == 13.0:
            os._exit(1)
        if self.m == 7.0:  # the first worker that takes it dies
            with suppress(FileExistsError):
                open(os.environ["BALL_DIED"], "x").close()
                os._exit(1)
""",
)  # fmt: skip
CONFIG = """
plant: {class: "../plants/ball.py:Ball"}
initial: {q: 1}
law: none
inputs: {F: "sin(t)"}
run: {duration: 0.1}
"""
MASS = "plant.parameters.m"


@pytest.fixture
def ball(tmp_path: Path) -> Path:
    for folder, name, text in (("plants", "ball.py", BALL), ("configs", "ball.yaml", CONFIG)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    return tmp_path / "configs/ball.yaml"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two worker processes."""
    import dask

    patch = pytest.MonkeyPatch()
    patch.setenv("BALL_DIED", str(tmp_path_factory.mktemp("ball") / "died"))
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as started,
    ):
        yield started
    patch.undo()


def points(values: list[float]) -> list[dict[str, float]]:
    return [{MASS: value} for value in values]


# With a cluster -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vm", "c"])
def test_a_cluster_gives_the_table_of_this_machine(engine: str, local: Any) -> None:
    settings = ["run.duration=0.3", "initial.max_violation=1", "initial.q.x2=1.1"]
    run = sc.load("two_mass_spring", settings, engine=engine)
    varies = read_varies(["law.correction.baumgarte.alpha=-1:20:7", "plant.parameters.k=5:15:3"], run)
    grid = points_of(varies)
    here = sweep(run, varies, grid)
    with Cluster(local.scheduler_address) as cluster:
        there = sweep(run, varies, grid, workers=cluster)
    assert there.columns == here.columns and set(there.columns["status"]) == {"refused", "done"}
    assert {engine} == set(there.columns["engine"]) - {None}


@pytest.mark.slow
def test_a_search_on_a_cluster_ends_with_the_trials_of_this_machine(tmp_path: Path, local: Any) -> None:
    (tmp_path / "masses.yaml").write_text(SEARCH)
    given = problem(tmp_path / "masses.yaml")
    here = tune(given, tmp_path / "here")
    with Cluster(local.scheduler_address) as cluster:
        assert table(tune(given, tmp_path / "there", cluster)) == table(here)


@pytest.mark.slow
def test_a_worker_that_dies_costs_nothing(ball: Path, local: Any) -> None:
    run, masses = sc.load(ball, engine="vm"), [1.0 + i for i in range(12)]
    here, before = list(run_all(run, points(masses))), set(local.scheduler.workers)
    with Cluster(local.scheduler_address) as cluster:
        assert list(run_all(run, points(masses), cluster)) == here
    assert set(local.scheduler.workers) != before  # the one that took 7 is gone


@pytest.mark.slow
def test_a_run_that_kills_its_workers_loses_only_itself(
    ball: Path, local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "GONE", 90.0)  # a busy machine needs its time to begin a worker anew
    run, masses = sc.load(ball, engine="vm"), [2.0, 13.0, 3.0]
    with Cluster(local.scheduler_address) as cluster:
        rows = batch(run, {MASS: masses}, cluster=cluster)
    assert rows["status"] == ["done", "crashed", "done"]
    assert rows["error"][1].startswith("each worker that made these 1 runs died")


@contextmanager
def own_scheduler(folder: Path) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """A scheduler and a worker in processes of their own, begun as a person does."""
    dask = [sys.executable, "-m", "dask"]
    begun = [subprocess.Popen([*dask, "scheduler", "--port", "0", "--host", "127.0.0.1", "--scheduler-file", "at.json",
                               "--no-dashboard"], cwd=folder, stderr=subprocess.DEVNULL)]  # fmt: skip
    try:
        while not (folder / "at.json").exists() or not (folder / "at.json").read_text():
            time.sleep(0.05)
        address = json.loads((folder / "at.json").read_text())["address"]
        worker = [*dask, "worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
        begun.append(subprocess.Popen(worker, cwd=folder, stderr=subprocess.DEVNULL))
        yield address, begun
    finally:
        for process in begun:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_lost_cluster_keeps_the_finished_rows(ball: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "GONE", 1.0)
    run = sc.load(ball, ["run.duration=1"], engine="vm")
    varies = read_varies([f"{MASS}=1:6:600"], run)
    with own_scheduler(tmp_path) as (address, processes), Cluster(address) as cluster:
        study = sweep(run, varies, points_of(varies), progress=lambda _: processes[0].kill(), workers=cluster)
    assert study.broken is not None and "the scheduler, or its last worker, is gone" in study.broken
    count = len(study.columns["run"])
    assert 0 < count < 600 and set(study.columns["status"]) == {"done"}
    assert (study.summary()["status"], study.summary()["planned"]) == ("failed", 600)


# Without one ----------------------------------------------------------------------------------------------------------


def test_a_config_and_its_plant_are_sent_as_text(ball: Path, tmp_path: Path) -> None:
    run = sc.load(ball, [f"{MASS}=2"], engine="vm")
    parcel = pack(run, "vm")
    assert parcel.key == pack(sc.load(ball, [f"{MASS}=2"], engine="vm"), "vm").key
    assert parcel.key != pack(sc.load(ball, [f"{MASS}=3"], engine="vm"), "vm").key
    (tmp_path / "plants/ball.py").unlink()
    other = unpack(parcel, tmp_path / "elsewhere")
    assert other.simulate().summary()["final"] == run.simulate().summary()["final"]
    assert other.loaded is not None and run.loaded is not None
    assert other.loaded.document == run.loaded.document
    here = [path.relative_to(tmp_path / "elsewhere").name for path in (tmp_path / "elsewhere").rglob("*.py")]
    assert here == ["ball.py"]


def test_a_file_outside_the_parcels_root_is_not_written(ball: Path, tmp_path: Path) -> None:
    parcel = pack(sc.load(ball, engine="vm"), "vm")
    outside = replace(parcel, files=(("../" * 40 + "stray.py", b""), (str(tmp_path / "stray.py"), b"")))
    with pytest.raises(ConfigError, match="no such file"):
        unpack(outside, tmp_path / "elsewhere")
    assert not list(tmp_path.rglob("stray.py"))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "tcp://127.0.0.1:1",
            "no scheduler answers (start one with `dask scheduler`, which prints its address, and on ",
        ),
        ("127.0.0.1", "expected tcp://host:port, as `dask scheduler` prints it"),
        ("http://127.0.0.1:8786", "expected tcp://host:port"),
    ],
)
def test_a_cluster_that_does_not_answer_is_an_error_and_nothing_is_written(
    address: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "CONNECT", 0.5)
    line = ["sweep", "two_mass_spring", "--vary", "run.duration=1:2:3", "--cluster", address]
    assert main([*line, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith(f"--cluster {address}: {said}")
    assert not (tmp_path / "out").exists()


def test_jobs_cannot_be_combined_with_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["sweep", "two_mass_spring", "--vary", "run.duration=1:2:3", "--cluster", "tcp://127.0.0.1:1"]
    assert main([*line, "--jobs", "2"]) == 2
    assert capsys.readouterr().err.startswith(
        "--jobs 2: given with --cluster, which has as many workers as were started (leave"
    )


def test_a_scheduler_without_workers_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "CONNECT", 1.0)
    with (
        distributed.LocalCluster(n_workers=0, protocol="tcp", dashboard_address=":0") as started,
        pytest.raises(ConfigError, match=r"has no workers \(start some: `dask worker tcp://"),
    ):
        Cluster(started.scheduler_address)
