"""What a run says about a start that fails, about silence, and before drives make torque."""

from pathlib import Path

import pytest
from emulation import drive_settings

from hil.assembly.prepare import load
from hil.drives.base import DriveError, HandshakeStep, Steps
from hil.frame import Frame
from hil.loop.clock import VirtualClock, World
from hil.protocols.registry import build
from hil.rig.handshake import Handshake
from hil.safety import EventKind
from hil.safety.plan import Stage
from hil.session.start import Request, start
from tests.faces import on_rig


def waiting() -> Steps:
    yield HandshakeStep([], lambda: False, 0.5, "NMT state operational, and TPDO2 after SYNC")


@pytest.mark.parametrize(
    ("protocol", "frames", "explanation"),
    [
        (
            "cia402",
            [(0x701, "7f"), (0x081, "0050010000000000"), (0x081, "0000000000000000")],
            "; its last emergency: device hardware error (0x5000), its NMT state: pre-operational",
        ),
        ("cia402", [], ""),
        ("odrive", [(0x021, "0100000001000000")], "; its axis state: IDLE, its errors: INITIALIZING (0x1)"),
        ("mit", [], ""),
    ],
)
def test_a_time_out_at_start_names_what_the_drive_said_last(
    protocol: str, frames: list[tuple[int, str]], explanation: str
) -> None:
    options = {"motor": "ak80-9_v2"} if protocol == "mit" else drive_settings(protocol).options
    drive = build(drive_settings(protocol, options=options), 0.0025)
    for identity, data in frames:
        drive.accept(Frame(identity, bytes.fromhex(data), time=1))
    world = World()
    handshake = Handshake({drive: waiting()}, lambda bus, frame: None, VirtualClock(world), 5.0)
    handshake.advance()
    world.advance(600_000_000)
    with pytest.raises(DriveError) as refused:
        handshake.advance()
    assert str(refused.value) == f"a: NMT state operational, and TPDO2 after SYNC within 0.5 s{explanation}"


def test_shadow_says_why_it_hears_nothing() -> None:
    setup = load("coordinated_robots", engine="vm")
    done = on_rig(setup, None, Stage.SHADOW, 0.3)
    (lost,) = [event for event in done.events if event.kind is EventKind.LOST]
    assert "these drives send only when they are started and asked" in lost.detail
    assert "--calibrate, which enables nothing" in lost.detail


def test_the_pre_flight_list_says_what_is_tested_and_what_only_the_machine_shows(tmp_path: Path) -> None:
    patch = tmp_path / "calibration.yaml"
    patch.write_text("hil: {drives: [{actuator: u1, sign: 1}]}\n")
    ready = start(Request("coordinated_robots", (patch,), "zero", armed=True, engine="vm"))
    text = "\n".join(ready.notes)
    tested, _, only = text.partition("not tested, only the machine can show it:")
    assert "pre-flight list for --stage zero" in tested
    assert "[x] by the model: to hold a pose of the task takes at most 61 % of torque_limit (u3)" in tested
    assert "[x] by the model: a controlled stop from the task takes at most 0." in tested
    assert "the watchdog of u1, u2, u3, u4, u5, u6 runs out once after 50 ms of silence" in tested
    assert "[ ] the emergency stop cuts the power" in only
    assert "[ ] signs and zeros: calibration.yaml is laid over" in only
    assert "the brakes of u1, u2, u3, u4, u5, u6 hold the machine" in only


def test_nobody_reads_a_pre_flight_list_where_nothing_is_armed_or_enabled() -> None:
    for request in (
        Request("two_mass_spring_drive", stage="zero", engine="vm"),
        Request("two_mass_spring_drive", stage="shadow", armed=True, engine="vm"),
    ):
        assert not any("pre-flight" in note for note in start(request).notes)


def test_drives_whose_settings_cannot_be_read_back_are_on_the_list() -> None:
    ready = start(Request("scara_drive", stage="zero", armed=True, engine="vm"))
    only = "\n".join(ready.notes).partition("not tested, only the machine can show it:")[2]
    assert "cannot be read back" in only.partition("tau1: ")[2].splitlines()[0]
    assert "tau1, tau2, tau3, F4: no watchdog that is tested" in only
