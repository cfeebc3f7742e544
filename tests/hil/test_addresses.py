"""Conflicts of ids on a bus are refused before a frame goes out."""

import itertools

import pytest

from hil.assembly.prepare import load
from hil.drives.settings import DriveSettings
from hil.protocols.registry import build, node_class
from servoctl.errors import ConfigError

BELT = "two_mass_spring_drive"
MADE_OF = (
    "bus: main, gear: 50, torque_limit: 5, torque_rate_limit: 1000, speed_limit: 0.4, position_limits: [-0.3, 0.3]"
)
CIA402 = "protocol: cia402, rated_torque: 0.5, counts_per_turn: 65536, velocity_unit: 0.1*rpm"
MIT = "protocol: mit, motor: ak80-9_v2"
ODRIVE_0 = "protocol: odrive, node: 0"


def rig(drive: str, sensor: str) -> list[str]:
    """Overrides that replace the drive and the encoder node of the belt."""
    return [
        f"hil.drives=[{{actuator: F, {drive}, {MADE_OF}}}]",
        f"hil.sensors=[{{coordinate: x2, bus: main, gear: 50, offset: 0.5, speed_limit: 0.5, {sensor}}}]",
    ]


@pytest.mark.parametrize(
    ("drive", "sensor", "said"),
    [
        # a heartbeat of the ODrive would be a torque for the motor
        (f"{MIT}, node: 1, host: 32", ODRIVE_0, "odrive x2 and mit F on bus 'main' both use id 0x001"),
        (f"{MIT}, node: 9, host: 73", "protocol: odrive, node: 2",
         "odrive x2 and mit F on bus 'main' both use id 0x049"),
        (f"{CIA402}, node: 1", "protocol: odrive, node: 12", "odrive x2 and cia402 F on bus 'main' both use id 0x181"),
        (f"{CIA402}, node: 1", ODRIVE_0, "odrive x2 and cia402 F on bus 'main' both use id 0x000"),
        (
            f"{CIA402}, node: 1, master: 2",
            "protocol: cia402, node: 2, counts_per_turn: 65536, velocity_unit: rpm",
            "cia402 x2 and cia402 F on bus 'main' both use id 0x702 (give one of them another node id",
        ),
    ],
)  # fmt: skip
def test_an_id_has_one_owner(drive: str, sensor: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(BELT, rig(drive, sensor), "vm")
    assert f"hil.sensors[0].node: {said}" in str(error.value)


@pytest.mark.parametrize(
    ("drive", "sensor"),
    [
        (f"{MIT}, node: 1, host: 17", "protocol: odrive, node: 7"),
        (f"{CIA402}, node: 1", "protocol: odrive, node: 1, feedback_period: 0.001"),
    ],
)
def test_protocols_may_share_a_bus_if_their_ids_do_not_conflict(drive: str, sensor: str) -> None:
    if "cia402" in drive:
        sensor = sensor.replace("node: 1", "node: 2")
    assert load(BELT, rig(drive, sensor), "vm").drives


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("odrive", {}),
        ("cia402", {"counts_per_turn": 4096, "velocity_unit": "rpm", "master": 99}),
        ("mit", {"motor": "ak80-9", "host": 5}),
        ("moteus", {"source": 2}),
    ],
)
def test_a_driver_uses_only_its_declared_ids(protocol: str, options: dict[str, object]) -> None:
    settings = DriveSettings(
        "u", "main", protocol, 3, options=options, torque_limit=1.0, torque_rate_limit=1.0, speed_limit=1.0,
        position_limits=(-1.0, 1.0), rated_torque=1.0, fd=protocol == "moteus",
    )  # fmt: skip
    drive, ids = build(settings, 0.002), node_class(settings).reserved_ids(settings)
    sent = [drive.command(0.5), *drive.alive_frames(), *drive.disable_frames(), *drive.quick_stop_frames(0.0)]  # type: ignore[attr-defined]
    for identity in itertools.chain(drive.identities, (frame.id for frame in sent)):
        assert identity in ids.exclusive | ids.shared
    assert not ids.exclusive & ids.shared


@pytest.mark.parametrize(
    ("drive", "remedy"),
    [
        (f"{CIA402}, node: 1", ""),
        ("protocol: odrive, node: 1", "`fd: true` says that its can.config.data_baud_rate is set; or "),
        (f"{MIT}, node: 1", "with `status: damiao` it speaks FD; or "),
    ],
    ids=["cia402", "odrive", "mit"],
)
def test_a_classic_node_on_an_fd_bus_is_refused(drive: str, remedy: str) -> None:
    bus = "hil.buses={main: {interface: emulated, fd: true, data_bitrate: 5000000}}"
    with pytest.raises(ConfigError) as error:
        load(BELT, [bus, *rig(drive, "protocol: odrive, node: 9")], "vm")
    what = "speaks classic CAN, and bus 'main' carries FD frames, which it would destroy"
    assert f"hil.drives[0].bus: F {what} ({remedy}give it a bus without fd)" in str(error.value)
    assert f"hil.sensors[0].bus: x2 {what}" in str(error.value)


def test_an_odrive_with_fd_needs_an_fd_bus() -> None:
    with pytest.raises(ConfigError) as error:
        load(BELT, rig("protocol: odrive, node: 1, fd: true", "protocol: odrive, node: 9"), "vm")
    assert "hil.drives[0].fd: true on bus 'main', which is classic (give the bus fd: true)" in str(error.value)
