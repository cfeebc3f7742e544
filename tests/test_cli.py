"""The command line: exit codes, texts, and the stream of each text."""

import contextlib
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.main import get_command

import servoctl
from hil.bus.open import is_loopback, key_problems
from servoctl.cli import main
from servoctl.cli.app import app
from servoctl.cli.console import CLEAR, Announcer, ExitCode, outcome_of, outcome_of_run
from servoctl.cli.doctor import lacks
from servoctl.config import load_config
from servoctl.errors import ConfigError, PlantError, RunFolderError, WriteError
from servoctl.run_folder import load_run
from tests.config_texts import CART_PLANT as CART
from tests.faces import exit_code

Servoctl = Callable[..., subprocess.CompletedProcess[str]]

CONFIG = """
plant: {class: "cart.py:Cart"}
initial: {q: 0, v: 0}
task: [{name: follow, holonomic: "x - (1 - cos(t))"}]
law: {kind: constraint_following, correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 0.5, integrator: {method: rk4, step: 0.001}, output_step: 0.1}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds `cart.py` and `cart.yaml`."""
    (tmp_path / "cart.py").write_text(CART)
    (tmp_path / "cart.yaml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Servoctl:
    """Runs `servoctl WORDS...` in the folder, in this process, which saves a second of imports."""
    monkeypatch.chdir(folder)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, exit_code(*words), *capfd.readouterr())

    return run


@pytest.fixture
def process(folder: Path) -> Servoctl:
    """Runs `servoctl WORDS...` in the folder, in a process of its own."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        words = (sys.executable, "-m", "servoctl", *words)
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)

    return run


def test_run_prints_tables_with_units_and_the_next_command(command: Servoctl, tmp_path: Path) -> None:
    done = command("run", "cart.yaml", "--out", "first")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("cart: done; 0.5 s simulated in ")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["task", "error", "unit", "max", "rms", "final"] in lines
    assert ["input", "unit", "min", "max", "rms"] in lines
    assert next(line for line in lines if line[:1] == ["F"])[1] == "N"
    assert "task reachable at all times" in done.stdout and "rank" not in done.stdout
    weak = command("run", "cart.yaml", "--out", "weak", "--set", "law.limits={F: 0.01}").stdout
    assert re.search(r"^rank 1, residual at most [0-9.e-]+ m/s\^2$", weak, re.MULTILINE) and "reachable" not in weak
    raised = ("two_mass_spring_prescribed", "--set", "law.limits={F: 0.01}", "--set", "run.duration=0.3")
    weak = command("run", *raised, "--engine", "vm", "--out", "raised").stdout
    assert re.search(r"^rank 1, residual at most [0-9.e-]+ m/s\^4$", weak, re.MULTILINE), weak
    second = "task=[{name: a, holonomic: x}, {name: b, holonomic: x - 0.1*t**2, priority: 2}]"
    both = command("run", "cart.yaml", "--out", "both", "--set", second, "--engine", "vm").stdout
    assert "task of priority 1 reachable at all times; given up in part: b\n" in both, both
    assert done.stdout.endswith("written to first; next: servoctl report first\n")
    assert {"config.yaml", "summary.json", "trajectory.parquet"} <= {
        path.name for path in (tmp_path / "first").iterdir()
    }


def test_run_writes_into_the_folder_runs_by_default(command: Servoctl, tmp_path: Path) -> None:
    assert command("run", "cart.yaml").returncode == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("cart-2")
    assert (folder / "summary.json").exists()


def test_a_folder_of_a_config_is_not_taken_for_an_earlier_run(command: Servoctl, folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine/config.yaml").write_text(CONFIG)
    for words in (("run", "cart.yaml"), ("hil", "two_mass_spring_drive", "--duration", "0.1")):
        done = command(*words, "--out", "mine")
        assert (done.returncode, list((folder / "mine").iterdir())) == (2, [folder / "mine/config.yaml"])
        why = "holds no run, but a config.yaml, which a run would replace (choose another folder)\n"
        assert done.stderr.endswith(why)


def test_json_stands_alone_on_stdout_though_a_plant_prints(command: Servoctl, folder: Path) -> None:
    (folder / "cart.py").write_text(CART + "\nprint('imported')\n")
    done = command("check", "cart.yaml", "--json")
    assert isinstance(json.loads(done.stdout), dict)
    assert "imported" in done.stderr


def test_run_with_json_prints_only_the_summary(command: Servoctl, tmp_path: Path) -> None:
    done = command("run", "cart.yaml", "--out", "first", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    assert summary == json.loads((tmp_path / "first/summary.json").read_text())
    assert summary["status"] == "done"
    assert summary["final"]["t"] == 0.5


def test_set_changes_one_value_and_engine_selects_the_engine(command: Servoctl) -> None:
    done = command("run", "cart.yaml", "--set", "run.duration=0.2", "--engine", "vm", "--json", "--out", "first")
    summary = json.loads(done.stdout)
    assert (summary["duration"], summary["engine"]) == (0.2, "vm")


def test_a_task_out_of_reach_ends_with_4_writes_its_files_and_prints_the_error_once(
    command: Servoctl, tmp_path: Path
) -> None:
    both = CONFIG.replace("}]", '}, {name: rest, holonomic: "s"}]').replace("{kind:", "{on_infeasible: fault, kind:")
    (tmp_path / "cart.yaml").write_text(both)
    done = command("run", "cart.yaml", "--out", "first")
    assert done.returncode == 4, done.stderr
    error = "the actuators cannot meet the task"
    assert (done.stderr.count(error), done.stdout.partition("\n")[0].count(error)) == (1, 0)
    assert done.stdout.startswith("cart: stopped; ")
    assert json.loads((tmp_path / "first/summary.json").read_text())["status"] not in ("done", "running")


@pytest.mark.parametrize("words", [["--debug", "run", "no_such"], ["run", "no_such", "--debug"]])
def test_debug_shows_the_traceback_at_any_position_in_the_line(command: Servoctl, words: list[str]) -> None:
    done = command(*words)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "no_such" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "Missing argument 'CONFIG'"),
        (["run", "cart.yaml", "--engine", "gpu"], "'gpu' is not one of 'auto', 'c', 'vm', 'numpy'"),
        (["tun", "cart.yaml"], "No such command 'tun'"),
        (["report", "no_such"], "'no_such' does not exist"),
    ],
)
def test_a_wrong_command_line_ends_with_2(command: Servoctl, words: list[str], said: str) -> None:
    done = command(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def rows_so_far(folder: Path) -> int:
    """Rows of a run on disk; 0 before it has begun."""
    return len(load_run(folder)) if (folder / "trajectory.arrows").exists() else 0


def test_ctrl_c_ends_with_130_and_prints_the_folder(folder: Path) -> None:
    words = ["run", "cart.yaml", "--out", "first", "--engine", "numpy", "--set", "run.duration=10000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "servoctl", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell's background jobs ignore Ctrl-C, and their children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 60
        while rows_so_far(folder / "first") < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert (stdout, stderr) == ("", "interrupted; the rows so far are in first\n")
    trajectory = load_run(folder / "first")
    assert trajectory.metadata["status"] == "interrupted"
    assert len(trajectory) > 1
    np.testing.assert_allclose(np.diff(trajectory.t), trajectory.t[1], rtol=1e-6)  # none is lost in between


def test_report_prints_the_written_files(command: Servoctl, tmp_path: Path) -> None:
    command("run", "cart.yaml", "--out", "first")
    done = command("report", "first")
    assert done.returncode == 0, done.stderr
    written = [tmp_path / line for line in done.stdout.splitlines()]
    assert [path.name for path in written] == ["report.html", "overview.png"]
    assert all(path.stat().st_size > 0 for path in written)
    more = command("report", "first", "--png").stdout.splitlines()
    assert [Path(line).name for line in more][:3] == ["overview.png", "path.png", "coordinates.png"]


def test_report_draws_the_pictures_that_are_named(command: Servoctl, tmp_path: Path) -> None:
    command("run", "cart.yaml", "--out", "first")
    one = command("report", "first", "--picture", "path")
    assert one.stdout.splitlines() == ["first/path.png"], one.stderr
    two = command("report", "first", "--pdf", "--picture", "inputs", "--picture", "path")
    assert two.stdout.splitlines() == ["first/inputs.pdf", "first/path.pdf"], two.stderr
    names = "overview, path, coordinates, inputs, violations, bounds, timing"
    wrong = command("report", "first", "--picture", "tyming")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == f"report: --picture tyming: no such picture (expected one of {names})\n"
    without = command("report", "first", "--picture", "timing")
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr.startswith("first: --picture timing: the run has no data for it (it has: overview, path, ")


def test_pictures_of_runs_whose_folders_have_one_name_go_into_folders_of_their_own(command: Servoctl) -> None:
    """Those of the second replaced those of the first."""
    for folder in ("slow/run", "fast/run"):
        command("run", "cart.yaml", "--out", folder)
    done = command("report", "slow/run", "fast/run", "--picture", "path", "--out", "both")
    assert done.stdout.splitlines() == ["both/slow/run/path.png", "both/fast/run/path.png"], done.stderr


def test_check_prints_each_import_before_it_happens(command: Servoctl, tmp_path: Path) -> None:
    (tmp_path / "cart.py").write_text("import sys\nprint('imported', flush=True)\n" + CART)
    done = command("check", "cart.yaml")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said.index("imports cart.py:Cart") < said.index("imported")


def test_check_without_import_checks_only_the_grammar(command: Servoctl, tmp_path: Path) -> None:
    (tmp_path / "cart.py").write_text("raise RuntimeError('imported')")
    assert command("check", "cart.yaml", "--no-import").returncode == 0
    (tmp_path / "cart.yaml").write_text(CONFIG.replace("x - (1", "x - 1)"))
    done = command("check", "cart.yaml", "--no-import")
    assert done.returncode == 2
    assert "follow" in done.stderr


def test_list_names_what_a_config_can_use(command: Servoctl) -> None:
    there_is = json.loads(command("list", "--json").stdout)
    assert list(there_is) == ["plants", "laws", "drives", "configs"]
    assert "plants.coordinated_robots:CoordinatedRobots" in there_is["plants"]
    assert "constraint_following" in there_is["laws"]
    assert list(there_is["drives"]) == ["cia402", "mit", "moteus", "odrive", "robstride"]
    assert all(there_is["drives"].values())
    assert "lift one object" in there_is["configs"]["coordinated_robots"]
    assert "coordinated_robots" in command("list").stdout


def test_schema_is_a_json_schema(command: Servoctl) -> None:
    schema = json.loads(command("schema").stdout)
    assert {"plant", "law", "run"} <= set(schema["properties"])


def test_doctor_reports_the_features_of_the_machine_and_the_cost_of_a_missing_compiler(process: Servoctl) -> None:
    # in a process of its own: doctor locks all memory for a moment, which makes all of a process resident
    findings = json.loads(process("doctor", "--json").stdout)
    assert findings["servoctl"] == servoctl.__version__
    assert findings["packages"]["numpy"].startswith("2.")
    assert findings["cpus"] >= 1
    text = process("doctor").stdout
    assert all(lack in text for lack in findings["lacks"])
    assert any("servoctl hil needs one; simulation does not" in lack for lack in lacks(findings | {"compiler": None}))
    assert not any("compiler" in lack for lack in lacks(findings | {"compiler": "cc"}))
    less = lacks(findings | {"ffmpeg": None, "packages": {"numpy": None, "mujoco": None}})
    assert "not installed: numpy (pip install numpy)" in less and any("--mp4 needs it" in lack for lack in less)
    assert any("mujoco is not installed" in lack and "pip install 'servoctl[mujoco]'" in lack for lack in less)
    assert findings["packages"].keys() >= {"numpy", "mujoco", "optuna", "pandas", "msgpack"}


def test_a_package_that_is_missing_is_named_in_one_line(command: Servoctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "servoctl.report.page", None)  # its import fails, as that of a package
    done = command("report", ".")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "servoctl.report.page is not installed (pip install it; servoctl doctor lists" in done.stderr


def test_help_lists_the_commands_in_groups(command: Servoctl) -> None:
    _, *groups = command("--help").stdout.split("\n\n")[2:]
    titles = [group.splitlines()[0] for group in groups]
    assert titles == ["Simulation:", "Model and stability:", "Drives:", "Results:", "Getting started and reference:"]
    assert [line.split()[0] for group in groups for line in group.splitlines()[1:]] == [
        "run", "sweep", "tune", "check", "analyse", "excite", "identify", "hil", "emulate", "replay",
        "report", "compare", "export", "new", "list", "schema", "doctor",
    ]  # fmt: skip
    assert not [line for line in "".join(groups).splitlines() if line.endswith("...")]  # no description is cut


def test_help_of_every_command_ends_with_an_example_that_the_command_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("first", "second", "caught"):
        (tmp_path / folder).mkdir()
    commands: Any = get_command(app)
    for name, command in commands.commands.items():
        context = command.context_class(command, info_name=f"servoctl {name}")
        (example,) = [line for line in command.get_help(context).splitlines() if line.startswith("  servoctl ")]
        program, word, *words = shlex.split(example.partition(" > ")[0])
        assert (program, word) == ("servoctl", name)
        assert command.make_context(name, [*words]).info_name == name
        if name == "emulate":
            keys = yaml.safe_load(words[2].partition("=")[2])
            assert is_loopback(keys) and not list(key_problems(keys))
            load_config(words[0], words[2:])


def test_a_wait_of_more_than_a_second_and_the_progress_are_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("servoctl.cli.console.PATIENCE", 0.05)
    with Announcer("cart", "compiling") as announcer:
        deadline = time.monotonic() + 60
        while not (err := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.01)
        announcer.progress(0.5)
    assert err == "cart: compiling ...\n"
    capsys.readouterr()
    monkeypatch.setattr("servoctl.cli.console.SPACING", 0.0)
    with Announcer("cart", "compiling") as announcer:
        announcer.progress(0.0)  # in time: nothing is announced
        announcer.progress(0.25, "best 3")
        announcer.say("a note")
        time.sleep(0.2)
    assert capsys.readouterr().err.split(CLEAR) == ["", "cart 0 %", "cart: best 3 25 %, 0 s left", "a note\n", ""]


def test_a_pipe_gets_lines_and_what_is_always_announced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("servoctl.cli.console.PATIENCE", 0.0)
    for always in (False, True):
        with Announcer("cart", "compiling", always) as announcer:
            time.sleep(0.2)
            announcer.progress(0.5)
            announcer.say("a note")
        assert capsys.readouterr().err == always * "cart: compiling ...\n" + "a note\n"


def test_version_prints_the_version_of_the_package(command: Servoctl) -> None:
    assert command("--version").stdout == f"{servoctl.__version__}\n"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConfigError("x"), ExitCode.WRONG_INPUT),
        (PlantError("x"), ExitCode.WRONG_INPUT),
        (RunFolderError("x"), ExitCode.WRONG_INPUT),
        (WriteError("x"), ExitCode.RIG_FAILED),
        (RuntimeError("x"), ExitCode.CRASHED),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, outcome: ExitCode) -> None:
    assert outcome_of(error) is outcome


def test_every_end_of_a_run_has_its_exit_code() -> None:
    ends = [outcome_of_run(status) for status in ("done", "interrupted", "fault", "failed", "non_finite")]
    assert [int(end) for end in ends] == [0, 130, 4, 4, 4]


def test_a_bug_prints_one_line_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError("the roof leaks")

    monkeypatch.setattr("servoctl.config.json_schema", fail)
    assert main(["schema"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "servoctl: RuntimeError: the roof leaks (this is a bug; --debug shows where)\n")


@pytest.mark.parametrize("words", [("--out", "~/first"), ("--out=~/first",)])
def test_a_quoted_tilde_is_the_home_folder(
    words: tuple[str, ...], folder: Path, command: Servoctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    done = command("run", "cart.yaml", *words)
    assert done.returncode == 0, done.stderr
    assert (folder / "home" / "first" / "summary.json").exists()
    assert not (folder / "~").exists()


def test_numbers_at_round_off_beside_larger_ones_are_shown_as_zero() -> None:
    from servoctl.run_folder.metrics import without_round_off

    assert without_round_off([8.2, -2.66e-14, None, float("nan")])[:3] == [8.2, 0.0, None]
    assert without_round_off([1e-20, 2e-20]) == [1e-20, 2e-20]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_results_that_cannot_be_printed_end_with_3_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["list"]) == ExitCode.RIG_FAILED
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
    assert capsys.readouterr().err == (
        "standard output: cannot be written: No space left on device (free disk space)\n"
    )


ON_WINDOWS = """
import importlib.abc, os, signal, socket, sys
import can, casadi, matplotlib.pyplot, multiprocessing.connection, pyarrow, scipy.optimize, subprocess, typer.main
ABSENT = "fcntl", "pwd", "resource", "termios"
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Finder())
for name in ABSENT:
    sys.modules.pop(name, None)
for module, names in (
    (os, "fork geteuid getuid killpg memfd_create nice sched_param sched_getaffinity sched_setscheduler sysconf"),
    (signal, "SIGHUP SIGQUIT SIGTSTP SIGUSR1 SIGKILL pthread_sigmask"),
    (socket, "AF_CAN AF_UNIX"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "other"
from servoctl.cli import main
for line in sys.stdin.read().splitlines():
    try:
        print(main(line.split()))
    except SystemExit as end:
        print(end.code)
"""


def test_simulation_needs_nothing_that_windows_lacks_and_drives_say_so(folder: Path) -> None:
    lines = "run cart.yaml --out a", "replay a", "report a --html", "check two_mass_spring_drive", "doctor"
    ran = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS], cwd=folder, capture_output=True, text=True, timeout=120,
        input="\n".join([*lines, "hil two_mass_spring_drive"]),
    )  # fmt: skip
    codes = [line for line in ran.stdout.splitlines() if line.isdigit()]
    assert codes == ["0"] * len(lines) + [str(ExitCode.RIG_FAILED.value)]
    assert "hil: drives, emulated ones too, need Linux or macOS" in ran.stderr
