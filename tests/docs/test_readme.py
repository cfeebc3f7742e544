"""The README's files, commands and code run, and print what it says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "README.md").read_text()
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", TEXT, re.DOTALL))
COMMANDS = [
    line for block in re.findall(r"<!-- commands -->\n```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()
]
PYTHON = re.findall(r"<!-- python -->\n```python\n(.*?)```\n\n```\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("readme")
    for name, text in FILES.items():
        (place / name).write_text(text)
    return place


def test_there_is_something_to_test() -> None:
    assert set(FILES) == {"lift.yaml", "puck.py", "puck.yaml"}
    assert len(COMMANDS) == 4
    assert len(PYTHON) == 1


def test_the_commands_of_the_readme_end_well_one_after_another(folder: Path) -> None:
    for command in COMMANDS:
        program, *words = shlex.split(command)
        assert program == "servoctl"
        done = subprocess.run([sys.executable, "-m", "servoctl", *words], cwd=folder, capture_output=True, text=True)
        assert (command, done.returncode, done.stderr) == (command, 0, "")


@pytest.mark.slow
@pytest.mark.parametrize(("mark", "code", "said"), [("run on drives", 0, "full"), ("fault", 3, "over-current")])
def test_the_runs_on_drives_of_the_readme_end_as_it_says(mark: str, code: int, said: str, tmp_path: Path) -> None:
    found = re.search(rf"<!-- {mark} -->\n```sh\n(.*?)\n```", TEXT)
    assert found is not None
    words = shlex.split(found.group(1))[1:]
    done = subprocess.run([sys.executable, "-m", "servoctl", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code
    assert said in done.stderr


def test_the_code_of_the_readme_prints_what_it_says(folder: Path) -> None:
    code, printed = PYTHON[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == printed


def test_the_plant_of_the_readme_is_as_short_as_it_says() -> None:
    assert len(FILES["puck.py"].strip().splitlines()) <= 15
    assert len(FILES["lift.yaml"].strip().splitlines()) <= 15


def test_every_picture_of_the_readme_is_there() -> None:
    for path in re.findall(r"!\[.*?\]\((\S+?)\)", TEXT):
        assert (Path(__file__).parents[2] / path).stat().st_size > 10_000
