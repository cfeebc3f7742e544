"""A required task that is missed over most of a run on emulated drives: the run is not done."""

from pathlib import Path

from hil.safety import EventKind
from hil.session.run import RunResult
from servoctl.config import shipped_configs
from servoctl.run_folder.missed import missed_tasks
from tests.faces import on_drives
from tests.hil.emulation import SHORT

CONFLICT = '  - {name: posture, holonomic: "x1 - 0.05"}\nlaw:\n  on_infeasible: warn'


def ended(folder: Path, required: bool = True) -> RunResult:
    """A run whose two rows ask for different accelerations of one actuator."""
    text = Path(shipped_configs()["two_mass_spring_drive"]).read_text().replace("\nlaw:", f"\n{CONFLICT}")
    if not required:
        text = text.replace("holonomic:", "required: false, holonomic:")
    config = folder / "conflict.yaml"
    config.write_text(text)
    return on_drives(config, "hil.safety.engage_tolerance=0.1", *SHORT, out=folder / "run", duration=0.3)


def test_a_missed_task_has_its_status_its_exit_code_and_a_cause(tmp_path: Path) -> None:
    result = ended(tmp_path)
    summary = result.trajectory.summary()
    assert (result.exit_code, summary["status"]) == (4, "missed")
    assert "the task was missed over most of the run" in summary["error"]
    assert "posture in " in summary["error"]
    assert "rank 1 of 2 rows" in summary["error"]
    assert [event.kind for event in result.events].count(EventKind.UNMET) == 1
    assert summary["error"] in (tmp_path / "run" / "events.jsonl").read_text()
    assert result.unconfirmed == ()


def test_the_count_while_it_runs_agrees_with_the_count_of_the_rows(tmp_path: Path) -> None:
    result = ended(tmp_path)
    shares = missed_tasks(result.trajectory, [])
    assert shares["posture"] > 0.5
    assert f"posture in {shares['posture']:.0%} of the ticks" in result.trajectory.metadata["error"]


def test_tasks_that_may_be_missed_do_not_fail_the_run(tmp_path: Path) -> None:
    result = ended(tmp_path, required=False)
    assert (result.exit_code, result.trajectory.summary()["status"]) == (0, "done")
