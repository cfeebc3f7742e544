"""Temperatures, supply and load of the drives: columns, warnings in time, and what is not seen."""

import json
from math import exp
from typing import Any

import numpy as np
import pytest

from hil.assembly.prepare import load
from hil.drives.base import Drive
from hil.drives.settings import GAUGES, Quantity
from hil.frame import Frame
from hil.protocols.registry import build
from hil.safety import EventKind
from hil.safety.plan import Phase
from hil.session.notes import describe, preflight
from servoctl.config import load_config
from tests.hil.by_drivers import compare
from tests.hil.emulation import drive_settings
from tests.hil.rigs import RACK, lift, play

WARM = "hil.emulation.thermal={rise: 80, time: 0.5}"
"""Motors that get warm within a short run."""


def test_a_hot_drive_is_reported_once_and_before_it_switches_off_and_the_ticks_go_on_in_c() -> None:
    sets = ("hil.emulation.thermal={rise: 80, time: 0.5, trip: 31}", "hil.drives.F4.warn_at.temperature=29")
    result = compare("scara_robstride", *sets, duration=1.0)
    events = [(event.kind, event.subject) for event in result["events"]]
    assert events.count((EventKind.HOT, "F4")) == 1
    assert events.index((EventKind.HOT, "F4")) < events.index((EventKind.DRIVE_FAULT, "F4"))
    event = next(event for event in result["events"] if event.kind is EventKind.HOT)
    assert event.detail == "temperature of the drive 29.1 degC, warning at 29 degC"
    assert result["given_back"].get(EventKind.HOT.meaning, 0) == 1


def test_the_warning_of_a_cia402_drive_comes_before_it_switches_off() -> None:
    result = compare("coordinated_robots", "hil.emulation.thermal={rise: 80, time: 0.5, trip: 48}", duration=0.4)
    first = {event.kind: event for event in reversed(result["events"])}
    warned, off = first[EventKind.DRIVE_WARNING], first[EventKind.DRIVE_FAULT]
    assert warned.time < off.time and "over-temperature" in off.detail
    assert np.frombuffer(result["columns"][f"warning.{warned.subject}"]).max() == 1.0


def test_the_pre_flight_list_says_what_is_not_seen() -> None:
    lines = preflight(load("scara_robstride", engine="vm"), Phase.RAMP, ())
    assert any("[x] read from the drives" in line for line in lines)
    assert any(
        "[ ] not seen" in line and "bus voltage of all drives (shown with monitor_period)" in line for line in lines
    )


def test_check_says_which_are_read_and_which_are_not_seen() -> None:
    lines = describe(load("scara_robstride", engine="vm"))
    assert any(
        line == "read from the drives, with a warning (warn_at): temperature of the drive of all drives"
        for line in lines
    )
    (line,) = [line for line in lines if line.startswith("not seen")]
    assert "bus voltage of" in line and "load (I2t) of all drives" in line


@pytest.mark.parametrize(
    ("status", "end", "expected"),
    [
        ("cubemars", "f600", {Quantity.TEMPERATURE: -10.0}),
        ("damiao", "3f7a", {Quantity.TEMPERATURE: 63.0, Quantity.MOTOR_TEMPERATURE: 122.0}),
        ("none", "f63f", {}),  # nobody says what these two bytes are
    ],
)
def test_temperatures_of_mit_replies(status: str, end: str, expected: dict[Quantity, float]) -> None:
    settings = drive_settings("mit", options={"motor": "ak80-9", "status": status, "host": 0x10})
    drive = build(settings, 0.002)
    assert isinstance(drive, Drive)
    first = "11" if status == "damiao" else "01"
    drive.accept(Frame(0x010, bytes.fromhex(first + "7fff7ff7ff" + end)))
    shown = {gauge.quantity: value for gauge, value in zip(GAUGES, drive.gauges, strict=True) if value == value}
    assert shown == expected and drive.shows == frozenset(expected)


MONITORED = {"temperature": [0x2000, 1, 0.1], "load": [0x2000, 2, 0.001]}
"""Objects of the emulated CiA 402 drive."""

ASKED: dict[str, tuple[str, str, dict[str, Any], set[str]]] = {
    "cia402": (
        "coordinated_robots",
        "u1",
        {"monitor_objects": MONITORED},
        {"temperature", "supply", "load", "warning"},
    ),
    "odrive": ("two_mass_spring_drive", "F", {}, {"temperature", "motor_temperature", "supply"}),
    "moteus": ("coordinated_robots_moteus", "u1", {}, {"temperature", "motor_temperature", "supply"}),
    "robstride": ("scara_robstride", "F4", {}, {"temperature", "supply"}),
}
"""Protocol -> a config, one of its drives, further keys of it, and what it then shows."""


def keys(drive: str, **more: Any) -> list[str]:
    return [f"hil.drives.{drive}.{key}={json.dumps(value)}" for key, value in more.items()]


@pytest.mark.parametrize("protocol", ASKED)
def test_each_protocol_shows_the_same_in_both_ticks_and_what_the_drive_has(protocol: str) -> None:
    config, drive, more, shown = ASKED[protocol]
    result = compare(config, WARM, *keys(drive, monitor_period=0.02, **more))
    columns = {name: np.frombuffer(data) for name, data in result["columns"].items()}
    names = {gauge.name for gauge in GAUGES}
    assert {name.split(".")[0] for name in columns if name.endswith(f".{drive}")} & names == shown
    assert (columns[f"supply.{drive}"] == (24.0 if protocol == "moteus" else 48.0)).all()
    limit = next(each.torque_limit for each in load_config(config).config.hil.drives if each.actuator == drive)
    torque, heat, loads = columns[f"true_u.{drive}"], 0.0, []
    step = columns["elapsed"][0]
    for square in (torque / limit) ** 2:
        loads.append(heat)
        heat = square + (heat - square) * exp(-step / 0.5)
    on = columns[f"true_on.{drive}"] == 1
    expected = 25.0 + 80.0 * np.array(loads)
    # a value is up to two questions old, and the motor may warm by what 40 ms change
    slack = 0.3 + np.abs(expected - np.roll(expected, round(0.04 / step)))[on].max()
    assert np.abs(columns[f"temperature.{drive}"] - expected)[on].max() < slack
    assert result["given_back"].get("the state of a drive", 0) == 0


@pytest.mark.parametrize("protocol", ["cia402", "odrive", "moteus", "robstride"])
def test_a_common_supply_that_braking_raises_is_reported_before_it_trips(protocol: str) -> None:
    supply = "hil.emulation.supply={voltage: 48, capacitance: 0.05, trip: 60}"
    played = play(lift(RACK, protocol, monitor_period=0.02), supply, duration=4)
    events = {event.kind: event for event in reversed(played.events)}
    assert events[EventKind.SUPPLY].time < events[EventKind.DRIVE_FAULT].time
    assert "warning at 52.8 V" in events[EventKind.SUPPLY].detail
    assert played["supply.F"].max() > 55.0


def test_a_drive_that_does_not_answer_is_named_and_asked_no_more() -> None:
    fault = {"kind": "sdo_abort", "drive": "F", "index": 0x6079, "at": 0.0, "since": "power_on"}
    played = play(lift(RACK, monitor_period=0.02), faults=[fault], since="power_on", duration=0.3)
    assert played.exit_code == 0 and np.isnan(played["supply.F"]).all()
    assert ("unseen", "bus voltage") in [(event.kind.name.lower(), event.detail) for event in played.events]


@pytest.mark.parametrize("protocol", ASKED)
def test_the_bus_load_counts_what_is_asked_and_answered(protocol: str) -> None:
    config, drive, more, _ = ASKED[protocol]
    asked, silent = (
        load(config, sets, "vm").settings.loads["main"] for sets in (keys(drive, monitor_period=0.1, **more), ())
    )
    kinds = {"cia402": 6, "odrive": 2, "moteus": 2, "robstride": 2}[protocol]  # frames of each question and answer
    assert asked.frames - silent.frames == pytest.approx(10 * kinds) and asked.load > silent.load


@pytest.mark.parametrize("protocol", ["cia402", "odrive", "mit", "moteus", "robstride"])
@pytest.mark.parametrize(("ambient", "rise"), [(-40, 0), (25, 1000)])
def test_extreme_temperatures_fit_into_the_frames(protocol: str, ambient: int, rise: int) -> None:
    thermal = f"hil.emulation.thermal={{ambient: {ambient}, rise: {rise}, time: 0.01}}"
    more = {} if protocol == "mit" else {"monitor_period": 0.02}
    more |= {"monitor_objects": MONITORED} if protocol == "cia402" else {}
    played = play(lift(RACK, protocol, **more), thermal, duration=0.2)
    unsigned = protocol in ("mit", "robstride")
    least, most = played["temperature.F"].min(), played["temperature.F"].max()
    assert played.exit_code == 0
    assert least == (0.0 if unsigned else -40.0) if ambient < 0 else most > (120.0 if protocol == "mit" else 400.0)


def test_an_odrive_that_sends_its_voltage_at_another_pace_than_the_bus_load_counts_is_refused() -> None:
    paced = play(lift(RACK, "odrive", monitor_period=0.1), "hil.emulation.drives.F.monitor_period=0.01")
    (event,) = [event for event in paced.events if event.kind is EventKind.HANDSHAKE]
    assert "sends Get_Bus_Voltage_Current every 0.01 s, monitor_period says 0.1 s" in event.detail
    silent = play(lift(RACK, "odrive", monitor_period=0.1), "hil.emulation.drives.F.monitor_period=1.9")
    (event,) = [event for event in silent.events if event.kind is EventKind.HANDSHAKE]
    assert "Get_Temperature and Get_Bus_Voltage_Current" in event.detail and "temperature_msg_rate_ms" in event.detail
