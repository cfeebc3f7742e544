"""Searches that are refused or fail: each problem is named, and no finished trial is lost."""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from servoctl.study.trials import TrialStore
from tests.config_texts import TWO_MASSES
from tests.faces import answer
from tests.refused import Base, Case, assert_refused, cases

ALPHA, BETA = "law.correction.baumgarte.alpha", "law.correction.baumgarte.beta"
CONFIG = f"""{TWO_MASSES}run: {{duration: 0.2, period: 0.01}}
tune:
  search: {{{ALPHA}: {{low: 2, high: 20}}, {BETA}: {{low: 2, high: 20}}}}
  generation: 4
  trials: 8
"""
TUNE = CONFIG[CONFIG.index("tune:") :]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "masses.yaml"
    path.write_text(CONFIG)
    return path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `servoctl tune masses.yaml`."""
    return answer(capsys, "tune", "masses.yaml", "--engine", "vm", *words)


@pytest.mark.parametrize("case", cases("tune"))
def test_an_invalid_tune_section_is_refused(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = Base(CONFIG.replace(TUNE, "TUNE"), "masses.yaml", command=("tune", "--engine", "vm"))
    assert_refused(case, base, tmp_path, capsys)


def test_check_says_field_and_place_of_what_a_search_would_refuse(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(CONFIG.replace(f"{ALPHA}:", "law.alpha:"))
    code, out, _ = answer(capsys, "check", "masses.yaml", "--json")
    (found,) = [each for each in json.loads(out)["findings"] if each["severity"] == "error"]
    assert (code, found["path"], found["place"]) == (2, "tune.search.law.alpha", "masses.yaml:7")
    assert found["text"].startswith("masses.yaml:7: tune.search.law.alpha: the config has no such number")


def test_without_a_feasible_trial_the_nearest_miss_is_printed(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--set", "tune.constraints={input_max.F: 5}", "--out", "study")
    assert code == 4
    summary = json.loads((config.parent / "study/summary.json").read_text())
    table = pq.read_table(config.parent / "study/trials.parquet").to_pydict()
    least = min(x for x in table["excess.input_max.F"] if x is not None)
    miss = summary["nearest_miss"]
    assert miss["excess"]["input_max.F"] == least > 0.0
    assert "no trial is feasible" in out
    assert f"nearest miss: trial {miss['trial']}: input_max.F " in out and " N is above 5 N, at" in out
    assert summary["best"] is None and not (config.parent / "study/best.yaml").exists()


def test_trials_that_never_settle_are_told_beside_the_nearest_miss(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hard = ("tune.constraints={settling_time: 1}", "tune.overshoot=0.01", "run.settling_band=1e-300")
    code, out, _ = said(capsys, *(word for value in hard for word in ("--set", value)), "--out", "study")
    assert code == 4 and "nearest miss: trial " in out
    assert " trials: settling_time has no value: the task error does not stay within run.settling_band" in out


def test_trials_that_all_fail_keep_their_reason(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"tune.search={{{ALPHA}: {{low: 300, high: 400}}, {BETA}: {{low: 300, high: 400}}}}"
    code, out, _ = said(capsys, "--set", words, "--out", "study", "--trials", "4")
    assert code == 4
    assert "unstable at a period of 0.01 s" in out
    table = pq.read_table(config.parent / "study/trials.parquet").to_pydict()
    assert table["status"] == ["failed"] * 4 and all("unstable" in reason for reason in table["reason"])


def test_values_of_two_kinds_are_text_in_the_table(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"tune.search={{{ALPHA}: [5, 2*pi], {BETA}: [5, 7.5]}}"
    assert said(capsys, "--set", words, "--out", "study")[0] == 0
    table = pq.read_table(config.parent / "study/trials.parquet").to_pydict()
    assert (set(table[ALPHA]), set(table[BETA])) == ({"5", "2*pi"}, {5.0, 7.5})


def test_an_existing_study_is_neither_overwritten_nor_mixed(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--out", "study")[0] == 0
    code, _, err = said(capsys, "--out", "study")
    assert code == 2
    assert err.endswith("study.jsonl: holds 8 trials of a study (continue with --resume, or choose another --out)\n")
    config.write_text(CONFIG.replace("alpha: 10", "alpha: 11"))
    code, _, err = said(capsys, "--out", "study", "--resume")
    assert code == 2
    assert f"study.jsonl: is of another study: config.{ALPHA} was 10.0, is 11.0 (give the same arguments" in err
    assert json.loads((config.parent / "study/summary.json").read_text())["trials"] == 8
    config.write_text(CONFIG)
    code, out, _ = said(capsys, "--out", "study", "--resume", "--trials", "9")
    assert code == 0 and out.startswith("masses: 9 trials")


def test_a_config_without_a_search_is_the_place_of_that_error_whatever_the_number_of_trials(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(CONFIG.replace(TUNE, ""))
    code, _, err = said(capsys, "--trials", "3", "--refine", "2")
    assert code == 2 and err.startswith("masses.yaml: tune: missing (say what to search, as in tune: {search: ")


def test_resume_asks_which_study(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "--resume")
    assert (code, err) == (2, "--resume: needs --out (no folder matches runs/masses-tune-*)\n")
    assert said(capsys)[0] == 0
    (folder,) = (config.parent / "runs").iterdir()
    assert said(capsys, "--resume")[2] == f"--resume: needs --out (the newest: --out runs/{folder.name})\n"


def test_without_optuna_the_error_tells_what_to_install(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cmaes", None)
    code, _, err = said(capsys)
    assert code == 2
    assert err == "servoctl tune: cmaes is not installed (pip install 'servoctl[tune]')\n"


EVALUATION = {"status": "done", "reason": None, "values": [0.1], "metrics": {}, "excess": {}, "runs": 1}
ROW = {"status": "done", "at": {ALPHA: 10.0, BETA: 10.0}, "evaluation": EVALUATION, "refined": None, "system": {}}


ALTERED = [
    5,
    {},
    {**ROW, "at": {ALPHA: 10.0}},
    {**ROW, "at": {ALPHA: 500.0, BETA: 10.0}},
    {**ROW, "at": {ALPHA: "fast", BETA: 10.0}},
    {**ROW, "refined": []},
    {**ROW, "evaluation": {"status": "done"} | {"values": ["a"]}},
    {**ROW, "evaluation": EVALUATION | {"values": []}},
    {**ROW, "evaluation": EVALUATION | {"values": [float("nan")]}},
    {**ROW, "evaluation": EVALUATION | {"runs": "x"}},
    {**ROW, "evaluation": EVALUATION | {"metrics": [1]}},
]


def test_an_altered_trial_is_refused_with_its_line_and_left_alone(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "--out", "study", "--trials", "2")[0] in (0, 4)
    file = config.parent / "study" / TrialStore.file
    head, _, last = file.read_text().splitlines()
    for row in ALTERED:
        altered = "\n".join([head, json.dumps({"run": 0, "seconds": 0.0, "row": row}), last, ""])
        file.write_text(altered)
        code, _, err = said(capsys, "--out", "study", "--resume")
        assert (code, len(err.splitlines())) == (2, 1), (row, err)
        assert (
            "study/study.jsonl: line 2 is damaged (restore the file, or run the study again with another --out)" in err
        )
        assert file.read_text() == altered
