"""Temperatures, supply and load of the drives: columns, warnings in time, and what is not seen."""

from math import exp

import numpy as np
import pytest

from hil.assembly.describe import describe
from hil.assembly.prepare import load
from hil.drives.base import Drive
from hil.drives.quantities import GAUGES, Quantity
from hil.frame import Frame
from hil.protocols.nodes import build
from hil.safety import EventKind
from tests.hil.emulation import drive_settings
from tests.hil.test_tick_in_c import compare

WARM = "hil.emulation.thermal={rise: 80, time: 0.5}"
"""Motors that get warm within a short run."""


def test_the_temperature_follows_the_square_of_the_torque_in_both_ticks() -> None:
    columns = {name: np.frombuffer(data) for name, data in compare("scara_robstride", WARM)["columns"].items()}
    torque, temperature = columns["true_u.F4"], columns["temperature.F4"]
    load, loads = 0.0, []
    for square in (torque / 60.0) ** 2:  # of its torque_limit
        loads.append(load)
        load = square + (load - square) * exp(-0.002 / 0.5)
    on = columns["true_on.F4"] == 1
    expected = 25.0 + 80.0 * np.array(loads)
    assert expected[on].max() > 27.0
    # a step of the frame is 0.1 degree; the first row is some ticks after power-on, without torque until then
    assert np.abs(temperature - expected)[on].max() < 0.15


def test_a_hot_drive_is_reported_once_and_before_it_switches_off_and_the_ticks_go_on_in_c() -> None:
    sets = ("hil.emulation.thermal={rise: 80, time: 0.5, trip: 31}", "hil.drives.F4.warn_at.temperature=29")
    result = compare("scara_robstride", *sets, duration=1.0)
    events = [(event.kind, event.subject) for event in result["events"]]
    assert events.count((EventKind.HOT, "F4")) == 1
    assert events.index((EventKind.HOT, "F4")) < events.index((EventKind.DRIVE_FAULT, "F4"))
    event = next(event for event in result["events"] if event.kind is EventKind.HOT)
    assert event.detail == "temperature of the drive 29.1 degC, warning at 29 degC"


def test_a_hot_drive_gives_back_one_tick_and_the_run_is_done() -> None:
    sets = (WARM, "hil.drives.F4.warn_at.temperature=29")
    result = compare("scara_robstride", *sets, duration=0.6)
    hot = [event for event in result["events"] if event.kind is EventKind.HOT]
    assert result["code"] == 0 and len(hot) == 1 and result["ticks"] > 200
    assert result["given_back"].get("a hot drive", 0) == 1


def test_check_says_which_are_read_and_which_are_not_seen() -> None:
    lines = describe(load("scara_robstride"))
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
