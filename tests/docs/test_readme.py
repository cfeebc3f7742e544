"""The README's files, commands and code run, and print what it says."""

import re
from pathlib import Path

import pytest
from pages import blocks

TEXT = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = blocks.blocks(TEXT)


def marked(mark: str) -> list[str]:
    """The blocks under a comment."""
    return [block.text for block in BLOCKS if block.mark == mark]


def test_the_files_commands_and_code_of_the_readme_run_in_order(tmp_path: Path) -> None:
    some = [block for block in BLOCKS if block.file or block.mark in ("commands", "python")]
    assert [block.file for block in some if block.file] == ["lift.yaml", "puck.py", "puck.yaml"]
    assert len("".join(marked("commands")).splitlines()) == 4
    assert len(marked("python")) == 1
    blocks.run("README.md", some, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "code", "said"),
    [
        ("run on drives", 0, "full"),
        ("fault", 3, "over-current"),
        ("wrong model", 0, "object_y          0.0004974  8.449e-05  9.219e-06"),
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
    assert len(files["lift.yaml"].strip().splitlines()) <= 15


def test_every_picture_of_the_readme_is_there() -> None:
    for path in re.findall(r"!\[.*?\]\((\S+?)\)", TEXT):
        assert (Path(__file__).parents[2] / path).stat().st_size > 10_000
