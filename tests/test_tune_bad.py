"""Searches that are refused or fail: each problem is named, and no finished trial is lost."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from plants import two_mass_spring
from servoctl.cli import main
from servoctl.tune.tuner import LOCK

ALPHA, BETA = "law.correction.baumgarte.alpha", "law.correction.baumgarte.beta"
CONFIG = f"""plant: {{class: "plants.two_mass_spring:TwoMassSpring"}}
initial: {{q: {{x1: 0, x2: 1.02}}, v: 0}}
task: [{{name: distance, holonomic: "x2 - x1 - 2*l"}}]
law: {{correction: {{baumgarte: {{alpha: 10, beta: 10}}}}}}
run: {{duration: 0.2, period: 0.01}}
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
    capsys.readouterr()
    try:
        code: int = main(["tune", "masses.yaml", "--engine", "vm", "--no-compare", *words])
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("", "masses.yaml: tune: missing (say what to search, as in tune: {search: {"),
        ("tune: {trials: 5}", "masses.yaml:6: tune.search: missing (path in the config -> {low, high, scale, step}"),
        ("tune: {search: {}}", "masses.yaml:6: tune.search: expected a mapping with at least one key, got an empty"),
        (
            "tune: {search: {law.correction.baumgarte.alfa: {low: 1, high: 2}}}",
            "masses.yaml:6: tune.search.law.correction.baumgarte.alfa: the config has "
            "no such number (did you mean 'law.correction.baumgarte.alpha'?)",
        ),
        (
            f"tune: {{search: {{{ALPHA}: {{low: 9, high: 2}}}}}}",
            f"masses.yaml:6: tune.search.{ALPHA}: low 9 is above high 2 (exchange them)",
        ),
        (
            f"tune: {{search: {{{ALPHA}: {{low: 0, high: 2, scale: log}}}}}}",
            f"masses.yaml:6: tune.search.{ALPHA}: scale: log from low 0 (give a positive low, or scale: linear)",
        ),
        (f"tune: {{search: {{{ALPHA}: 3}}}}", f"masses.yaml:6: tune.search.{ALPHA}: expected a mapping, got 3"),
        (
            f"tune: {{search: {{{ALPHA}: {{low: 1, high: 2}}}}, objective: {{minimise: rms_violaton}}}}",
            "masses.yaml:6: tune.objective.minimise: rms_violaton: there is no such metric (did you mean "
            "'rms_violation'?; known: max_violation, ",
        ),
        (
            f"tune: {{search: {{{ALPHA}: {{low: 1, high: 2}}}}, constraints: {{input_max.G: 3}}}}",
            "masses.yaml:6: tune.constraints.input_max.G: input_max.G: there is no such metric (did you mean "
            "'input_max.F'?",
        ),
        (
            f"tune: {{search: {{{ALPHA}: {{low: 1, high: 2}}}}, sampler: cmaes}}",
            "masses.yaml:6: tune.sampler: cmaes with one path in search (use tpe)",
        ),
        (
            f"tune: {{search: {{{ALPHA}: {{low: 1, high: 2}}}}, uncertainty: {{plant.parameters.m2: []}}}}",
            "masses.yaml:6: tune.uncertainty.plant.parameters.m2: expected a list with at least one value, got []",
        ),
        (
            f"tune: {{search: {{{ALPHA}: {{low: 1, high: 2}}}}, uncertainty: {{{ALPHA}: [1]}}}}",
            f"masses.yaml:6: tune.uncertainty.{ALPHA}: is in search already (leave one out)",
        ),
    ],
)
def test_an_invalid_tune_section_is_refused(
    config: Path, capsys: pytest.CaptureFixture[str], section: str, expected: str
) -> None:
    config.write_text(CONFIG.replace(TUNE, section))
    code, _, err = said(capsys)
    assert code == 2
    assert err.startswith(expected), err
    assert len(err.splitlines()) == 1
    assert list(config.parent.iterdir()) == [config]


def test_without_a_feasible_trial_the_nearest_miss_is_printed(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--set", "tune.constraints={input_max.F: 5}", "--out", "study")
    assert code == 4
    summary = json.loads((config.parent / "study/summary.json").read_text())
    table = pq.read_table(config.parent / "study/trials.parquet").to_pydict()
    least = min(x for x in table["excess.input_max.F"] if x is not None)
    miss = summary["nearest_miss"]
    assert miss["excess"]["input_max.F"] == least > 0.0
    assert "no trial is feasible" in out
    assert f"nearest miss: trial {miss['trial']}: input_max.F " in out and " is above 5" in out
    assert summary["best"] is None and not (config.parent / "study/best.yaml").exists()


def test_trials_that_all_fail_keep_their_reason(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"tune.search={{{ALPHA}: {{low: 300, high: 400}}, {BETA}: {{low: 300, high: 400}}}}"
    code, out, _ = said(capsys, "--set", words, "--out", "study", "--trials", "4")
    assert code == 4
    assert "unstable at a period of 0.01 s" in out
    table = pq.read_table(config.parent / "study/trials.parquet").to_pydict()
    assert table["status"] == ["failed"] * 4 and all("unstable" in reason for reason in table["reason"])


def test_an_existing_study_is_neither_overwritten_nor_mixed(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--out", "study")[0] == 0
    code, _, err = said(capsys, "--out", "study")
    assert code == 2
    assert err.endswith("study.db: holds 8 trials of a study (continue with --resume, or choose another --out)\n")
    config.write_text(CONFIG.replace("alpha: 10", "alpha: 11"))
    code, _, err = said(capsys, "--out", "study", "--resume")
    assert code == 2
    assert f"the study is of another config: {ALPHA} was 10.0, is 11.0 (use config.yaml of the study's folder" in err
    assert json.loads((config.parent / "study/summary.json").read_text())["trials"] == 8
    config.write_text(CONFIG)
    code, out, _ = said(capsys, "--out", "study", "--resume", "--trials", "9")
    assert code == 0 and out.startswith("masses: 9 trials")


def test_a_study_does_not_continue_with_an_edited_plant(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant = config.parent / "mine.py"
    plant.write_text(Path(two_mass_spring.__file__).read_text())
    config.write_text(CONFIG.replace("plants.two_mass_spring:", "mine.py:").replace("trials: 8", "trials: 4"))
    assert said(capsys, "--out", "study")[0] == 0
    plant.write_text(plant.read_text() + "# stiffer\n")
    code, _, err = said(capsys, "--out", "study", "--resume", "--trials", "5")
    assert code == 2 and "the study is of another config: files.mine.py was " in err, err


def test_resume_asks_which_study(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "--resume")
    assert (code, err) == (2, "--resume: needs --out (no folder matches runs/masses-tune-*)\n")
    assert said(capsys)[0] == 0
    (folder,) = (config.parent / "runs").iterdir()
    assert said(capsys, "--resume")[2] == f"--resume: needs --out (the newest: --out runs/{folder.name})\n"


@pytest.mark.parametrize("content", [b"no data base, but long enough to be looked at" * 40, b"SQLite format 3\0" * 300])
def test_a_damaged_study_is_named_and_left_alone(
    config: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (config.parent / "study").mkdir()
    (config.parent / "study/study.db").write_bytes(content)
    code, _, err = said(capsys, "--out", "study", "--resume")
    assert code == 2
    assert "study/study.db: damaged: not an Optuna study (move it away, or choose another --out" in err
    assert (config.parent / "study/study.db").read_bytes() == content


def test_a_study_that_another_program_has_locked_is_an_error(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said(capsys, "--out", "study", "--trials", "4")[0] == 0
    monkeypatch.setattr("servoctl.tune.store.PATIENCE", 0.05)
    other = sqlite3.connect(config.parent / "study/study.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    code, _, err = said(capsys, "--out", "study", "--resume")
    assert code == 3 and "study.db: another program has locked the study (stop it and continue with --resume" in err
    other.close()
    code, out, _ = said(capsys, "--out", "study", "--resume")
    assert code == 0 and out.startswith("masses: 8 trials")


def test_two_searches_cannot_use_the_same_folder(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "study").mkdir()
    other = sqlite3.connect(config.parent / "study" / LOCK, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    code, _, err = said(capsys, "--out", "study")
    assert (code, err) == (3, "study: another search works here (wait for it, or choose --out)\n")
    other.close()


def test_without_optuna_the_error_tells_what_to_install(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cmaes", None)
    code, _, err = said(capsys)
    assert code == 2
    assert err == "servoctl tune: cmaes is not installed (pip install servoctl[tune])\n"


@pytest.mark.slow
def test_a_killed_search_keeps_its_trials_and_continues(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(CONFIG.replace("trials: 8", "trials: 400"))
    words = [sys.executable, "-m", "servoctl", "tune", "masses.yaml", "--engine", "vm", "--out", "study"]
    child = subprocess.Popen(words, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60.0
    while stored(config.parent / "study/study.db") < 8 and time.monotonic() < until:
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = stored(config.parent / "study/study.db")
    assert 8 <= before < 400
    config.write_text(CONFIG.replace("trials: 8", "trials: 4"))  # the number of trials is no part of the study
    code, out, _ = said(capsys, "--out", "study", "--resume", "--trials", str(before + 3))
    assert code == 0 and out.startswith(f"masses: {before + 3} trials")
    assert said(capsys, "--out", "whole", "--trials", str(before + 3))[0] == 0
    parts, whole = (pq.read_table(config.parent / name / "trials.parquet") for name in ("study", "whole"))
    assert parts.equals(whole)


def stored(path: Path) -> int:
    """Trials in a study."""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as base:
            return int(base.execute("SELECT COUNT(*) FROM trials").fetchone()[0])
    except sqlite3.Error:
        return 0


SET = "UPDATE trial_user_attributes SET value_json = '{}' WHERE key = 'verdict' AND trial_id = 1"
VERDICT = {"status": "done", "reason": None, "values": [0.1], "metrics": {}, "excess": {}, "runs": 1}
OF_TRIAL = "UPDATE trial_params SET {} WHERE param_id = 1"


def verdict(**changed: object) -> str:
    """An edit of what became of the first trial."""
    return SET.format(json.dumps(VERDICT | changed))


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (SET.format("[]"), "trial 0: verdict: expected a mapping of status, reason, values, metrics, excess, runs"),
        (SET.format("{"), "Expecting property name"),
        (verdict(values=["a"]), "trial 0: verdict.values: expected 1 numbers, got ['a']"),
        (verdict(values=[]), "trial 0: verdict.values: expected 1 numbers, got []"),
        (verdict(values=[float("nan")]), "trial 0: verdict.values: expected 1 numbers, got [nan]"),
        (verdict(status="great"), "trial 0: verdict.status: expected done, infeasible, pruned or failed, got 'great'"),
        (verdict(status="failed", values=[]), "trial 0: state: COMPLETE of a trial that is failed"),
        (verdict(metrics=[1]), "trial 0: verdict.metrics: expected a mapping of numbers, got [1]"),
        (verdict(excess={"gain_share": -0.5}), "trial 0: verdict.metrics: gain_share is missing"),
        (verdict(runs="x"), "trial 0: verdict.runs: expected an integer, got 'x'"),
        (verdict(reason=5), "trial 0: verdict.reason: expected a text, got 5"),
        (OF_TRIAL.format("param_value = 500"), f"trial 0: {ALPHA}: 500.0 is out of range"),
        (OF_TRIAL.format("param_value = NULL"), "'None' is not a valid type"),
        (OF_TRIAL.format("param_name = 'x'"), f"trial 0: {ALPHA}: the value is missing"),
        (OF_TRIAL.format("distribution_json = '{}'"), "KeyError: 'type'"),
        ("UPDATE trials SET state = 'RUNNING' WHERE number = 1", "trial 1: state: RUNNING of a trial that is done"),
        ("UPDATE trials SET state = 'X' WHERE number = 1", "'X' is not among the defined enum values"),
        ("UPDATE trials SET number = NULL WHERE number = 1", "'<' not supported between"),
        ("DELETE FROM trials WHERE number = 1", "trial 1 is missing or occurs twice"),
        ("DELETE FROM trial_values", "trial 0: values: expected numbers, got None"),
        ("UPDATE trial_values SET value = 'x'", "must be real number, not str"),
        ("DELETE FROM study_user_attributes", "the config that the study began with is missing"),
        ("UPDATE study_directions SET direction = 'MAXIMIZE'", "the study does not minimise 1 objectives"),
        ("DELETE FROM study_directions", "the study does not minimise 1 objectives"),
        (
            "INSERT INTO trial_user_attributes(trial_id, key, value_json) VALUES(1, 'refined', '[]')",
            "trial 0: refined: expected the number of a trial, got []",
        ),
    ],
)
def test_an_altered_study_is_refused_with_the_trial_and_field(
    config: Path, capsys: pytest.CaptureFixture[str], edit: str, expected: str
) -> None:
    assert said(capsys, "--out", "study", "--trials", "3")[0] in (0, 4)
    with sqlite3.connect(config.parent / "study/study.db") as base:
        base.execute(edit)
    base.close()
    code, _, err = said(capsys, "--out", "study", "--resume")
    assert (code, len(err.splitlines())) == (2, 1), err
    assert "study/study.db: altered: " in err and expected in err, err
    assert err.endswith("(restore it, or choose another --out)\n")
