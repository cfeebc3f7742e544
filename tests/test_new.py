"""The files of `servoctl new` run at once, in any folder."""

import errno
import os
from pathlib import Path

import pytest

from servoctl.cli.listing import write_starter
from servoctl.errors import ConfigError, WriteError
from tests.faces import answer


def test_new_writes_a_plant_a_config_and_a_test_and_prints_the_next_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = answer(capsys, "new", "crane")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "crane.py",
        "crane.yaml",
        "test_crane.py",
        "next: servoctl run crane.yaml; pytest test_crane.py",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crane.py", "crane.yaml", "test_crane.py"]


@pytest.mark.parametrize(("name", "class_name"), [("crane", "Crane"), ("two_armCrane", "TwoArmCrane"), ("a1", "A1")])
def test_the_class_is_named_after_the_file(tmp_path: Path, name: str, class_name: str) -> None:
    plant, config, _ = write_starter(name, tmp_path)
    assert f"class {class_name}(sc.Plant):" in plant.read_text()
    assert f"class: {name}.py:{class_name}\n" in config.read_text()


def test_the_plant_is_about_as_short_as_its_equations(tmp_path: Path) -> None:
    plant, config, _ = write_starter("crane", tmp_path)
    body = plant.read_text().split("class Crane")[1].split('"""\n', 1)[1]
    assert sum(bool(line.strip()) for line in body.splitlines()) <= 16
    assert config.read_text().count("holonomic:") == 2


def test_no_file_is_overwritten_and_every_existing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "crane.py").write_text("mine")
    (tmp_path / "test_crane.py").write_text("mine")
    with pytest.raises(ConfigError) as caught:
        write_starter("crane", tmp_path)
    assert caught.value.problems == [
        f"{tmp_path / name}: exists already (choose another name or --dir)" for name in ("crane.py", "test_crane.py")
    ]
    assert (tmp_path / "crane.py").read_text() == "mine"
    assert not (tmp_path / "crane.yaml").exists()


@pytest.mark.parametrize("name", ["2dof", "two-arm", "class", "a b", "", "../x", "_", "naïve"])
def test_a_name_that_python_cannot_import_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="NAME: expected an identifier that begins with a letter, got") as error:
        write_starter(name, tmp_path)
    assert ("a word of Python" in str(error.value)) == (name == "class")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["numpy", "math", "servoctl", "plants"])
def test_a_name_that_would_hide_a_module_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name!r} would hide the installed module"):
        write_starter(name, tmp_path)


def test_a_folder_that_cannot_be_written_is_named_and_nothing_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.replace

    def replace(part: Path, path: Path) -> None:
        if path.name == "crane.yaml":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(part, path)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(WriteError, match=r"crane\.yaml: cannot be written: No space left on device \(free disk space"):
        write_starter("crane", tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []
