"""The figures of a run on drives at its end, by their names and units."""

import json
import re
from pathlib import Path

import pytest

from servoctl.cli import main

STALL = "hil.faults=[{kind: stall, at: 0.02, for: 0.0025, since: engaged}]"


def test_the_figures_at_the_end_are_those_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["hil", "two_mass_spring_drive", "--duration", "0.1", "--set", STALL, "--out", str(tmp_path / "run")])
    out = capsys.readouterr().out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    timing, bus = summary["timing"], summary["bus"]["main"]
    parts = (
        r"^[\d.]+ s in total: loading, tracing and compiling [\d.]+ s, bring-up and writing [\d.]+ s, running [\d.]+ s$"
    )
    assert re.search(parts, out, re.MULTILINE)
    header = next(line for line in out.splitlines() if line.startswith("time [us]"))
    assert header.split()[2:] == ["mean", "std", "p50", "p99", "p99.9", "max"]
    durations = {name: timing[f"{name}_s"] for name in ("lateness", "period", "execution", "read", "law", "write")}
    ages = timing["age_s"]
    oldest = max(ages, key=lambda name: float(ages[name]["max"]))
    for name, found in (durations | {f"age of samples (oldest: {oldest})": ages[oldest]}).items():
        said = re.search(rf"^{re.escape(name)} +(.*)$", out, re.MULTILINE)
        assert said is not None, name
        figures = [float(figure) for figure in said[1].split()]
        wanted = [1e6 * found[key] for key in ("mean", "std", "p50", "p99", "p99_9", "max")]
        assert figures == pytest.approx(wanted, rel=1e-3)
    assert set(timing["age_s"]) == {"F", "x2"}
    assert timing["skipped_periods"] == 1 and timing["late_ticks"] == 1
    assert "1 period skipped; at most 1 late tick in a row" in out
    assert f"{timing['ticks']} ticks, 1 of them late by a period or more; least time left in a period -" in out
    assert (
        f"samples: {summary['counts']['missed']} missing at their tick, 0 implausible; 0 invalid frames from drives"
        in out
    )
    load = re.search(r"bus main: load (\d+) % on average, (\d+) % at most, ", out)
    assert load is not None
    # F and x2 each send 1000 frames of 135 bits a second, and F is sent as many: 40.5 %, less where it stalls
    assert 25 <= int(load[1]) <= int(load[2]) <= 50
    assert f"{bus['sent']} frames sent, {bus['received']} received, 0 error frames" in out


def test_a_run_without_a_task_has_no_task_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["hil", "two_mass_spring_drive", "--stage", "float", "--duration", "0.1", "--out", str(tmp_path / "run")])
    assert re.search(r"^distance +m +- +-$", capsys.readouterr().out, re.MULTILINE)
