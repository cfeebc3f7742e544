"""Protocols by name and ids on a bus: a broken package and a conflict are named before a frame goes out.

The package of the page about protocols of one's own: installed, driven, stopped and failed on an emulated bus.
"""

import importlib.util
from math import pi
from pathlib import Path
from typing import Any

import pytest

from hil.assembly.prepare import load
from hil.drives.settings import SensorSettings
from hil.protocols.registry import BUILT_IN, emulations, entries, protocol
from servoctl.cli.doctor import examine
from servoctl.cli.listing import contents
from servoctl.errors import ConfigError
from tests.faces import on_drives
from tests.hil.command_observer import Violation, observed
from tests.hil.packages import QUICK, Install
from tests.refused import table

BELT = "two_mass_spring_drive"
NAMES = "cia402, mit, moteus, odrive, robstride"


def refusal(name: str) -> str:
    with pytest.raises(ConfigError) as error:
        protocol(name)
    return str(error.value)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_protocol_of_our_own_has_its_classes(name: str) -> None:
    found = protocol(name)
    assert found.drive_class().__module__.startswith("hil.drives.")
    assert (found.sensor_class() is None) == (found.emulated_sensor_class() is None)
    assert entries()[name].origins == ("servoctl",)


def test_an_unknown_protocol_lists_what_is_installed(install: Install) -> None:
    assert refusal("can_open") == f"no protocol 'can_open' (known: {NAMES})"
    install("acme-drive", "1.2", {"acme": "acme:PROTOCOL"}, {"acme.py": "PROTOCOL = 1"})
    assert refusal("can_open") == f"no protocol 'can_open' (known: acme, {NAMES})"
    assert refusal("acmee") == "no protocol 'acmee' (did you mean 'acme'?)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_module", "acme:PROTOCOL cannot be imported: ModuleNotFoundError: No module named"),
        ("1 / 0", "acme:PROTOCOL cannot be imported: ZeroDivisionError: division by zero"),
        ("", "acme:PROTOCOL cannot be imported: AttributeError: module 'acme' has no attribute 'PROTOCOL'"),
        ("PROTOCOL = 1", "acme:PROTOCOL is 1, not a hil.protocols.protocol.Protocol"),
    ],
)
def test_a_broken_package_is_named_with_its_version(install: Install, text: str, said: str) -> None:
    install("acme-drive", "1.2", {"acme": "acme:PROTOCOL"}, {"acme.py": text})
    assert refusal("acme").startswith(f"acme-drive 1.2: {said}")
    assert refusal("acme").endswith("(repair the package, or uninstall it)")
    findings = examine()
    assert findings["protocols"]["acme"] == "acme-drive 1.2" and findings["protocols"]["mit"] == "servoctl"
    assert any(line.startswith(f"protocol acme: acme-drive 1.2: {said}") for line in findings["lacks"])
    assert contents()["drives"]["acme"].startswith(f"unusable: acme-drive 1.2: {said}")


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ('drive="acme:Drive"', "acme:Drive cannot be imported: AttributeError"),
        ('drive="math:pi"', "math:pi is 3.14"),
        ('drive="hil.drives.base:Drive"', "hil.drives.base:Drive does not define accept, alive_frames, command"),
        ('emulated_drive="hil.drives.mit:MitDrive"', "<class 'hil.drives.mit.MitDrive'> (expected a class derived"),
    ],
)
def test_a_class_that_does_not_fit_is_named(install: Install, field: str, said: str) -> None:
    text = f"from dataclasses import replace\nfrom hil.protocols.registry import BUILT_IN\n" \
           f"PROTOCOL = replace(BUILT_IN['odrive'], {field})"  # fmt: skip
    install("acme-drive", "1.2", {"acme": "acme:PROTOCOL"}, {"acme.py": text})
    with pytest.raises(ConfigError) as error:
        load(BELT, ["hil.drives.F.protocol=acme"], "vm").settings.build()
        protocol("acme").emulated_drive_class()
    assert said in str(error.value)
    assert said in examine()["broken_protocols"]["acme"]


def test_an_encoder_node_without_an_emulation_is_named_before_a_run(install: Install) -> None:
    files = {"acme.py": "from dataclasses import replace\nfrom hil.protocols.registry import BUILT_IN\n"
                        "PROTOCOL = replace(BUILT_IN['odrive'], emulated_sensor='')"}  # fmt: skip
    install("acme-drive", "1.2", {"acme": "acme:PROTOCOL"}, files)
    sensor = SensorSettings("x2", "main", "acme", 7)
    assert emulations([sensor], lenient=True) == {}
    with pytest.raises(ConfigError, match="emulation of protocol 'acme': it emulates no encoder nodes, such as x2"):
        emulations([sensor])


def test_a_protocol_that_two_packages_bring_is_refused(install: Install) -> None:
    files = {"acme.py": "from hil.protocols.registry import BUILT_IN\nPROTOCOL = BUILT_IN['mit']"}
    install("acme-drive", "1.2", {"acme": "acme:PROTOCOL", "mit": "acme:PROTOCOL"}, files)
    install("acme-fork", "0.1", {"acme": "acme:PROTOCOL"}, {})
    assert refusal("acme") == "acme-drive 1.2 and acme-fork 0.1 both bring protocol 'acme' (uninstall one)"
    assert refusal("mit") == "servoctl and acme-drive 1.2 both bring protocol 'mit' (uninstall one)"


def test_nothing_of_a_package_is_imported_before_a_config_names_it(install: Install) -> None:
    install("acme-drive", "1.2", {"acme": "acme:PROTOCOL"}, {"acme.py": "raise SystemExit('imported')"})
    assert load(BELT, (), "vm").drives


MADE_OF = (
    "bus: main, gear: 50, torque_limit: 5, torque_rate_limit: 1000, speed_limit: 0.4, position_limits: [-0.3, 0.3]"
)
CIA402 = "protocol: cia402, rated_torque: 0.5, counts_per_turn: 65536, velocity_unit: 0.1*rpm"
MIT = "protocol: mit, motor: ak80-9_v2"


def rig(drive: str, sensor: str) -> list[str]:
    """Overrides that replace the drive and the encoder node of the belt."""
    return [
        f"hil.drives=[{{actuator: F, {drive}, {MADE_OF}}}]",
        f"hil.sensors=[{{coordinate: x2, bus: main, gear: 50, offset: 0.5, speed_limit: 0.5, {sensor}}}]",
    ]


FD_BUS = "hil.buses={main: {interface: emulated, fd: true, data_bitrate: 5000000}}"


@pytest.mark.parametrize(
    ("words", "said"), [pytest.param(*row[1:], id=f"{row[0]}-{line}") for line, row in enumerate(table("nodes"), 1)]
)
def test_nodes_share_a_bus_whose_frames_and_ids_do_not_conflict(words: list[str], said: list[str]) -> None:
    """A line is `classic or fd  ->  drive  ->  encoder node  =>  what is refused`."""
    bus, *nodes = words
    drive, sensor = (node.format(CIA402=CIA402, MIT=MIT) for node in nodes)
    refused = []
    try:
        load(BELT, [*([FD_BUS] if bus == "fd" else []), *rig(drive, sensor)], "vm")
    except ConfigError as error:
        refused = error.problems
    assert len(refused) == len(said), refused
    assert all(sentence in problem for sentence, problem in zip(said, refused, strict=True)), refused


def test_units_of_a_cia402_node_may_be_left_out_on_an_emulated_bus_alone() -> None:
    """Vendors differ in them, so nobody guesses those of a real drive."""
    nodes = rig("protocol: cia402, node: 1, rated_torque: 0.5, counts_per_turn: 4096", "protocol: cia402, node: 2")
    settings = load(BELT, nodes, "vm").settings
    drive, encoder = settings.drives[0].options, settings.sensors[0].options
    assert drive == {"counts_per_turn": 4096, "velocity_unit": pytest.approx(2 * pi / 65536)}
    assert encoder == {"counts_per_turn": 65536, "velocity_unit": pytest.approx(2 * pi / 65536)}
    with pytest.raises(ConfigError) as error:
        load(BELT, [*nodes, "hil.buses.main={interface: socketcan, channel: can0, bitrate: 1000000}"], "vm")
    said = str(error.value)
    assert "hil.drives[0].velocity_unit: is missing" in said and "hil.drives[0].counts" not in said
    assert "hil.sensors[0].counts_per_turn: is missing" in said


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
