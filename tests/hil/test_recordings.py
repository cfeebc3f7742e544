"""The net under a rebuilding: a run that repeats is equal; one that does not differs in frames, rows and events."""

import sys
from pathlib import Path

import pytest
from recordings import Case, differences, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    run(Case("L", "full", "no_torque"), folder, sys.executable)
    return folder


def test_a_run_that_repeats_is_equal(recorded: Path, tmp_path: Path) -> None:
    assert not (recorded / "refused.txt").exists()
    run(Case("L", "full", "no_torque"), tmp_path / "again", sys.executable)
    assert differences(recorded, tmp_path / "again") == []


def test_another_run_differs_in_events_frames_and_rows(recorded: Path, tmp_path: Path) -> None:
    run(Case("L", "full"), tmp_path / "other", sys.executable)
    found = differences(recorded, tmp_path / "other")
    assert any(each.startswith("event ") for each in found)
    assert any(each.startswith("frame ") for each in found)
    assert any("rows, now" in each or "different" in each for each in found)


def test_a_refusal_is_told_from_a_run(recorded: Path, tmp_path: Path) -> None:
    run(Case("L", "full", "unheard_of"), tmp_path / "refused", sys.executable)
    (sentence,) = differences(recorded, tmp_path / "refused")
    assert sentence.startswith("refused: 'it ran', now ") and "unheard_of" in sentence
