import builtins
import json
import math

import numpy as np
import pytest

import servoctl as sc
from servoctl.errors import RunFolderError, ServoctlError
from servoctl.run_folder import load_run
from servoctl.run_folder.metrics import plain, rms
from servoctl.run_folder.missed import sparse_rows
from servoctl.run_folder.trajectory import ColumnError, MissingPackageError, Trajectory
from servoctl.types import Status

T = np.array([0.0, 1.0, 3.0])  # not equidistant


def small(**more):
    columns = {
        "t": T,
        "q.x": np.array([0.0, 1.0, 2.0]),
        "q.angle": np.array([3.0, 4.0, 5.0]),
        "v.x": np.array([1.0, 1.0, 0.5]),
        "v.angle": np.array([0.0, 0.0, 0.0]),
        "u.F": np.array([0.0, 2.0, -2.0]),
        "violation.mine.0": np.array([3.0, 0.0, -1.0]),
        "violation.mine.1": np.array([-4.0, 2.0, 0.0]),
        "violation.free": np.full(3, np.nan),
        "passive.loop": np.array([0.0, -1e-3, 2e-3]),
        "rank": np.array([2, 1, 2]),
        "residual": np.array([0.0, 0.5, 0.0]),
        "pivot_min": np.array([0.2, 0.1, 0.3]),
        "status": np.array([0, Status.INFEASIBLE.code, 0]),
    }
    metadata = {"config": "small", "servoctl": "0.1", "engine": "numpy", "status": "completed", "duration": 3.0}
    metadata |= {"steps": 2, "evaluations": 8, "wall_time": 0.5, "realtime_factor": 6.0}
    metadata |= {
        "events": [{"t": 1.0, "event": "rank 2 -> 1"}],
        "tasks": {"mine": ["mine.0", "mine.1"], "free": ["free"]},
    }
    return Trajectory(columns | more, {"t": "s", "q.x": "m"}, metadata)


@pytest.mark.parametrize(("band", "settled"), [(0.5, None), (1.0, 3.0), (2.0, 1.0), (5.0, 0.0)])
def test_a_violation_has_settled_from_the_row_after_the_last_outside_its_band(band, settled):
    run = small()  # sizes 5, 2, 1 at 0, 1, 3 s
    summary = Trajectory(run.columns, run.units, run.metadata | {"settling_band": band}).summary()
    assert summary["tasks"]["mine"]["settling_time"] == settled
    assert summary["settling_band"] == band


def test_names_and_matrices_follow_the_order_of_the_columns():
    run = small()
    assert run.coordinates == ["x", "angle"]
    assert run.actuators == ["F"]
    assert run.rows == ["mine.0", "mine.1", "free"]
    assert run.passive_rows == ["loop"]
    assert np.array_equal(run.q, [[0, 3], [1, 4], [2, 5]])
    assert run.v.shape == (3, 2)
    assert np.array_equal(run.u[:, 0], run["u.F"])
    assert len(run) == 3


def test_a_matrix_cannot_be_written_by_accident():
    with pytest.raises(ValueError, match="read-only"):
        small().q[0, 0] = 1.0


def test_a_run_without_inputs_has_an_input_matrix_of_no_columns():
    assert Trajectory({"t": T, "q.x": T, "v.x": T}).u.shape == (3, 0)


def test_an_empty_trajectory_has_empty_results():
    run = Trajectory({})
    assert len(run) == 0
    assert run.t.shape == (0,)
    assert run.q.shape == (0, 0)
    assert run.summary()["tasks"] == {}
    assert "unnamed: 0 rows" in repr(run)


def test_repr_shows_name_size_time_and_status():
    assert repr(small()) == "<Trajectory of small: 3 rows, 14 columns, t = 0 .. 3 s, completed>"


def test_an_unknown_column_is_a_key_error_with_the_nearest_name():
    with pytest.raises(KeyError) as error:
        small()["q.angel"]
    assert isinstance(error.value, ServoctlError)
    assert str(error.value) == "trajectory: q.angel: no such name (did you mean 'q.angle'?)"


def test_an_unknown_row_without_a_similar_name_lists_all_names():
    with pytest.raises(ColumnError, match=r"there are: mine, free, mine\.0, mine\.1, loop"):
        small().violation("zzz")


def test_the_violation_of_a_task_is_the_norm_over_its_rows():
    run = small()
    assert np.allclose(run.violation("mine"), [5.0, 2.0, 1.0], rtol=1e-15)
    assert np.array_equal(run.violation("mine.0"), [3.0, 0.0, 1.0])
    assert np.array_equal(run.violation("loop"), [0.0, 1e-3, 2e-3])


def test_a_row_without_violation_does_not_hide_the_others_of_its_task():
    run = small(**{"violation.mine.1": np.full(3, np.nan)})
    assert np.array_equal(run.violation("mine"), [3.0, 0.0, 1.0])


def test_rows_are_grouped_by_their_first_name_without_metadata():
    assert Trajectory(small().columns).tasks == {"mine": ["mine.0", "mine.1"], "free": ["free"]}


def test_drift_is_the_growth_of_the_size_of_the_violation():
    run = small()
    assert run.violation_metrics("mine")["drift"] == pytest.approx(1.0 - 5.0, rel=1e-15)
    assert run.violation_metrics("mine.0")["drift"] == -2.0
    assert run.violation_metrics("loop")["drift"] == 2e-3
    assert run.violation_metrics("free")["drift"] is None


def test_saturation_is_counted_by_time_and_drift_over_the_time_of_the_task():
    """Rows at t = 0, 1, 3 s: the second is at a limit for 2 of 3 s, not for one of three rows."""
    saturated = np.array([0, Status.SATURATED.code, 0])
    run = small(status=saturated)
    assert run.summary()["saturation_time"] == 2.0
    late = Trajectory(run.columns, metadata={"tasks": run.tasks, "task_span": [1.0, 3.0]})
    assert late.summary()["tasks"]["mine"]["drift"] == pytest.approx(1.0 - 2.0, rel=1e-15)
    assert late.violation_metrics("loop")["drift"] == 2e-3  # a passive row has no span


def test_rms_weighs_by_time():
    # squares 0, 4, 4 at t = 0, 1, 3: areas 2 and 8 over 3 s
    assert rms(T, np.array([0.0, 2.0, -2.0])) == pytest.approx(math.sqrt(10 / 3), rel=1e-15)


def test_rms_leaves_out_intervals_with_nan():
    assert rms(T, np.array([np.nan, 2.0, 2.0])) == 2.0
    assert math.isnan(rms(T, np.full(3, np.nan)))


def test_rms_of_a_single_instant_is_the_size_of_the_value():
    assert rms(T[:1], np.array([-3.0])) == 3.0
    assert math.isnan(rms(T[:0], T[:0]))


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_rms_neither_vanishes_nor_overflows(scale):
    assert rms(T, np.full(3, scale)) == pytest.approx(scale, rel=1e-15)


def test_the_summary_holds_the_numbers_worked_out_by_hand():
    summary = small().summary()
    assert summary["schema"] == 1
    assert {key: summary[key] for key in ("config", "steps", "evaluations", "realtime_factor")} == {
        "config": "small",
        "steps": 2,
        "evaluations": 8,
        "realtime_factor": 6.0,
    }
    mine = summary["tasks"]["mine"]  # sizes 5, 2, 1: squares 25, 4, 1, areas 14.5 and 5 over 3 s
    assert mine.pop("settling_time") is None
    assert mine == pytest.approx(
        {"max_violation": 5, "rms_violation": math.sqrt(19.5 / 3), "final_violation": 1, "drift": -4}, rel=1e-14
    )
    assert summary["tasks"]["free"] == dict.fromkeys([*mine, "settling_time"])
    assert summary["passive"]["loop"]["max_violation"] == 2e-3
    assert summary["inputs"]["F"] == pytest.approx({"min": -2, "max": 2, "rms": math.sqrt(10 / 3)}, rel=1e-15)
    assert [summary[key] for key in ("rank_min", "rank_max", "residual_max", "pivot_min")] == [1, 2, 0.5, 0.1]
    assert summary["final"] == {"t": 3.0, "q": {"x": 2.0, "angle": 5.0}, "v": {"x": 0.5, "angle": 0.0}}
    assert summary["status_counts"] == {"OK": 2, "INFEASIBLE": 1}
    assert summary["events"] == [{"t": 1.0, "event": "rank 2 -> 1"}]
    assert "energy_drift" not in summary


def test_a_summary_is_strict_json_for_all_numbers():
    run = small(**{"u.F": np.array([np.inf, np.nan, 1.0]), "q.x": np.array([0, 1, -np.inf]), "residual": T * np.nan})
    summary = json.loads(json.dumps(run.summary(), allow_nan=False))
    assert summary["inputs"]["F"] == {"min": 1.0, "max": None, "rms": None}
    assert summary["final"]["q"]["x"] is None
    assert summary["residual_max"] is None
    assert json.dumps(plain({1: (np.float32(0.5), np.int64(2), np.bool_(True), Status.OK, math.nan, np.zeros(1))}))


def test_missing_quantities_are_left_out_of_the_summary():
    summary = Trajectory({"t": T, "q.x": T, "v.x": T}, metadata={"energy_drift": 1e-9}).summary()
    assert not {"rank_min", "rank_max", "residual_max", "pivot_min", "status_counts"} & summary.keys()
    assert summary["inputs"] == {}
    assert summary["energy_drift"] == 1e-9
    assert summary["engine"] is None


def test_a_data_frame_has_the_columns_and_their_units():
    pytest.importorskip("pandas")
    frame = small().to_pandas()
    assert list(frame.columns) == list(small().columns)
    assert frame.attrs["units"]["q.x"] == "m"
    assert frame["u.F"].tolist() == [0.0, 2.0, -2.0]


def test_without_pandas_the_error_tells_how_to_install_it(monkeypatch):
    original = builtins.__import__

    def no_pandas(name, *rest, **named):
        if name == "pandas":
            raise ImportError(name)
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", no_pandas)
    with pytest.raises(MissingPackageError, match="pip install pandas") as error:
        small().to_pandas()
    assert isinstance(error.value, ImportError)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(RunFolderError, match="nowhere: no such folder"):
        load_run(tmp_path / "nowhere")


def test_rows_too_sparse_for_maximum_and_rms_are_said() -> None:
    """The violation is (0.2 + t) e^-4t: its maximum and its root mean square lie between rows 0.5 s apart."""
    said = [
        sc.load("two_mass_spring_off", [f"run.output_step={spacing}"], "vm").simulate().summary().get("sparse_rows")
        for spacing in (0.01, 0.5)
    ]
    assert said[0] is None
    assert said[1].startswith("run.output_step 0.5 s gives 11 rows, too few for maximum and rms")
    assert "rms of task error of distance" in said[1]


@pytest.mark.parametrize(("size", "said"), [(1e-12, False), (1.0, True)])
def test_rounding_of_an_input_makes_no_rows_too_sparse(size: float, said: bool) -> None:
    t = np.linspace(0.0, 1.0, 21)
    columns = {"t": t, "u.F": np.full(21, 5.0), "u.G": size * (np.arange(21) % 2)}  # G is 0 in every second row
    found = sparse_rows(Trajectory(columns, {}, {"status": "done", "tasks": {}}), 0.05)
    assert (found is not None and "rms of input G would differ by 100 %" in found) is said
