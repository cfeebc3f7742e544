"""The package of the page about protocols of one's own: installed, driven, stopped and failed on an emulated bus."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from hil.assembly.prepare import load
from hil.protocols.registry import entries
from servoctl.errors import ConfigError
from tests.faces import on_drives
from tests.hil.command_observer import Violation, observed
from tests.hil.packages import QUICK


def ended(folder: Path, *overrides: str) -> tuple[Any, list[Violation]]:
    """The result of a run, and the commands that must not be sent."""
    with observed() as observers:
        result = on_drives("two_mass_spring_drive", *QUICK, *overrides, out=folder / "run", duration=0.1)
    return result, observers[0].report()


@pytest.mark.usefixtures("acme")
def test_the_package_drives_an_emulated_motor_and_stops_it(tmp_path: Path) -> None:
    assert entries()["acme"].origins == ("acme-drive 0.1",)
    done, wrong = ended(tmp_path)
    summary = done.trajectory.summary()
    assert (done.exit_code, summary["status"], wrong) == (0, "done", [])
    assert summary["drives"]["F"]["rejected"] == 0 and summary["inputs"]["F"]["rms"] > 0.0
    assert summary["tasks"]["distance"]["max_violation"] < 1e-3


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("drive_fault", "over-current"),
        ("drive_fault, code: 7", "fault 7"),
        ("refuse_enable, since: power_on", "is disabled after 0.05 s without a command (is its watchdog off?)"),
    ],
)
def test_a_fault_of_its_drive_stops_the_run(tmp_path: Path, kind: str, said: str) -> None:
    done, wrong = ended(tmp_path, f"hil.faults=[{{kind: {kind}, drive: F, at: 0.0}}]")
    assert (done.exit_code, wrong) == (3, [])
    assert any(said in event.detail for event in done.events)


@pytest.mark.usefixtures("acme")
def test_the_observer_sees_a_driver_that_commands_a_torque_above_the_limit(tmp_path: Path) -> None:
    frames = "hil.faults=[{kind: torque_constant, drive: F, factor: 0.5, at: 0.01}]"
    module = importlib.util.find_spec("acme_drive")
    assert module is not None and module.origin is not None
    text = Path(module.origin).read_text()
    Path(module.origin).write_text(text.replace("COMMAND.pack(mode, round(1000 * watchdog), torque)",
                                                "COMMAND.pack(mode, round(1000 * watchdog), 40 * torque)"))  # fmt: skip
    _, wrong = ended(tmp_path, frames)
    assert any("the limit is" in violation.what for violation in wrong)


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("encoder_bits=4", "input should be greater than or equal to 8, got 4 (bits per turn of the encoder, 8 to 24)"),
        (
            "encoder_bits=fine",
            "input should be a valid integer, unable to parse string as an integer, got 'fine'",
        ),
        ("encoder_bit=9", "no such option (did you mean 'encoder_bits'?)"),
        ("node=500", "expected a node id from 1 to 127, got 500"),
    ],
)
def test_the_options_are_checked_by_the_model_of_the_package(option: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load("two_mass_spring_drive", [QUICK[0], f"hil.drives.F.{option}"], "vm")
    assert f"hil.drives[0].{option.partition('=')[0]}: {said}" in str(error.value)
