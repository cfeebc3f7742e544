"""The README's files, commands and code run, and print what it says."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from servoctl.config import load_config
from servoctl.report.film import images
from servoctl.run_folder import load_run
from tests.docs.pages import blocks
from tests.report_runs import simulated

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = blocks.blocks(TEXT)


def marked(mark: str) -> list[str]:
    """The blocks under a comment."""
    return [block.text for block in BLOCKS if block.mark == mark]


def test_the_files_commands_and_code_of_the_readme_run_in_order(tmp_path: Path) -> None:
    some = [block for block in BLOCKS if block.file or block.mark in ("commands", "python")]
    assert [block.file for block in some if block.file] == ["puck.py", "puck.yaml"]
    assert len("".join(marked("commands")).splitlines()) == 2
    assert len(marked("python")) == 1
    blocks.run("README.md", some, tmp_path)


def test_the_bus_and_the_drive_of_the_readme_fit_a_shipped_config(tmp_path: Path) -> None:
    part = tmp_path / "bus.yaml"
    part.write_text(marked("real bus")[0])
    hil = load_config("coordinated_robots", [part]).config.hil
    assert hil.buses["main"].interface == "socketcan"
    assert hil.drives[0].protocol == "cia402"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "code", "said"),
    [
        ("run on drives", 0, "full"),
        ("fault", 3, "over-current"),
        ("wrong model", 0, "0.0004974  8.449e-05  9.219e-06"),
    ],
)
def test_the_runs_of_the_readme_end_as_described(
    mark: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, printed = blocks.execute(marked(mark)[0].strip())
    assert ended == code
    assert said in printed


@pytest.mark.slow
def test_the_search_of_the_readme_finds_a_config_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in marked("tune")[0].strip().splitlines():
        ended, printed = blocks.execute(command)
        assert ended == 0, printed
    assert (tmp_path / "better" / "summary.json").is_file()


def test_the_plant_in_the_readme_has_at_most_fifteen_lines() -> None:
    files = {block.file: block.text for block in BLOCKS if block.file}
    assert len(files["puck.py"].strip().splitlines()) <= 15


def test_the_config_on_the_first_screen_is_the_shipped_one() -> None:
    shown = next(yaml.safe_load(block.text) for block in BLOCKS if "robots:" in block.text)
    shipped = yaml.safe_load((ROOT / "configs/two_arms_box.yaml").read_text())
    assert shown == shipped


@pytest.mark.slow
def test_the_film_of_the_readme_is_what_its_first_command_makes(tmp_path: Path) -> None:
    """Every tenth frame is compared: a film takes 5 s to draw."""
    [path] = re.findall(r"!\[.*?\]\((\S+?)\)", TEXT)
    assert "servoctl run two_arms_box" in marked("run")[0]
    assert "--gif" in marked("run")[0]
    run = load_run(simulated("two_arms_box", tmp_path / "run"))
    with Image.open(ROOT / path) as shipped:
        assert (ROOT / path).stat().st_size < 1_500_000
        shown = np.linspace(run.t[0], run.t[-1], shipped.n_frames)[::10]
        for number, image in enumerate(images(run, shown)):
            shipped.seek(10 * number)
            difference = np.abs(np.asarray(shipped.convert("RGB"), float) - image[..., :3])
            assert np.mean(difference) < 3.0  # of 255: the file has 64 colours and another font perhaps


def test_the_readme_is_short() -> None:
    assert len(TEXT.splitlines()) < 220
