"""The errors that a run on drives prints are those of rows: metres and radians are not added up."""

from dataclasses import replace
from pathlib import Path

import pytest

from servoctl.cli.hil import say_figures
from tests.faces import on_drives


def test_a_task_of_several_rows_has_each_with_what_the_loop_explains_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = on_drives("two_mass_spring_drive", out=tmp_path / "run", duration=0.2).trajectory
    one = run["violation.distance"]
    own = {name: values for name, values in run.columns.items() if not name.startswith("violation")}
    rows = replace(
        run,
        columns=own | {"violation.mine.0": one, "violation.mine.1": 2.0 * one},
        metadata=run.metadata | {"tasks": {"mine": ["mine.0", "mine.1"]}},
    )
    say_figures(rows, rows.summary(), {"mine.0": 0.001, "mine.1": 0.002}, {})
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    first, second = (next(line for line in table if line[:1] == [f"mine.{i}"]) for i in (0, 1))
    assert (first[4], second[4]) == ("0.001", "0.002")
    assert float(second[2]) == pytest.approx(2.0 * float(first[2]), rel=1e-3)
