"""Positions that do not move as fast as the speeds say are named within 0.1 s of motion, on every protocol.

The test of the drives in stage zero names them if the machine has hardly moved before it.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hil.assembly import settings as rig_settings
from hil.drives import Node
from hil.drives.settings import SensorSettings
from hil.protocols.registry import build
from hil.rig.ticks_in_c import TicksInC
from hil.safety import EventKind, proof
from hil.sensing.channels import Channel
from tests.faces import on_drives
from tests.hil import rigs
from tests.hil.by_drivers import compare, left_by, ticks
from tests.hil.one_joint import OneJoint
from tests.hil.rigs import play

WITHIN = 0.1
"""Time of motion after which it must be named [s]."""

MOVES = 5e-3
"""A joint moves from this speed on, twenty steps of the encoder in a window [m/s]."""


def named_after(columns: Any, time: int) -> float:
    """Time for which the joint has moved up to an event [s]."""
    t, v = columns["t"], columns["true_v.x"]
    return 0.002 * np.count_nonzero((t <= time / 1e9) & (np.abs(v) > MOVES))


def played_with(factor: float, protocol: str, monkeypatch: pytest.MonkeyPatch) -> rigs.Played:
    """A run whose positions are multiplied by a factor."""
    load = TicksInC.load

    def scaled(self: TicksInC, *nodes: Any) -> None:
        load(self, *nodes)
        self.arrays["position"] *= factor

    monkeypatch.setattr(TicksInC, "load", scaled)
    fine = ["hil.drives.F.encoder_bits=14"] if protocol == " moteus" else []
    with ticks("python"):
        return play(f"V rack{protocol}", *fine, duration=0.5)


@pytest.mark.parametrize(
    ("protocol", "factor"),
    [("", 0.25), ("", -1.0), (" odrive", -1.0), (" mit", 0.25), (" moteus", -1.0), (" robstride", 0.25)],
)
def test_a_wrong_scale_or_sign_of_positions_is_named(
    protocol: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "POSITION_SCALE", np.inf)  # as if the test of the drives did not show it
    played = played_with(factor, protocol, monkeypatch)
    (event,) = [each for each in played.events if each.kind is EventKind.ENCODER]
    assert event.subject == "F" and "its position moves by" in event.detail and played.exit_code == 3
    assert named_after(played.columns, event.time) <= WITHIN


@pytest.mark.parametrize("protocol", [" mit", " moteus"])
def test_a_wrong_scale_that_the_start_hides_is_named_by_the_test_of_the_drives(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = played_with(0.25, protocol, monkeypatch)
    event = next(each for each in played.events if each.kind in (EventKind.ENCODER, EventKind.SCALE))
    assert event.kind is EventKind.SCALE and event.subject == "F" and played.exit_code == 3
    assert named_after(played.columns, event.time) <= WITHIN


def test_counts_that_are_four_times_too_few_are_named_in_ordinary_ticks_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def four_times(settings: SensorSettings, period: float) -> Node:
        options = dict(settings.options)
        if "counts_per_turn" in options:
            options["counts_per_turn"] *= 4
        return build(replace(settings, options=options), period)

    monkeypatch.setattr(rig_settings, "build", four_times)
    config = str(rigs.RIGS["mixed"].config)
    tested = left_by("c", lambda: on_drives(config, duration=0.5, engine="auto"))
    assert [event.subject for event in tested["events"] if event.kind is EventKind.SCALE] == ["a"]
    monkeypatch.setattr(proof, "POSITION_SCALE", np.inf)  # as if the test of the drives did not show it
    c = compare(config, duration=0.5)
    assert c["ticks"] > 5
    assert [event.subject for event in c["events"] if event.kind is EventKind.ENCODER] == ["a"]


@pytest.mark.parametrize("rig", ["A", "S", "mixed"])
def test_right_scales_are_never_named(rig: str) -> None:
    played = play(rig, "hil.emulation.encoder_noise=1e-4", duration=1.0)
    assert not [each for each in played.events if "its position moves by" in each.detail]


CHANNEL = Channel("u1", 1e-3, leap=np.inf, position_error=1e-3, speed_error=1e-2)


@pytest.mark.parametrize("lag", [0.0, 0.005])
@pytest.mark.parametrize("frequency", [0.5, 5.0, 40.0])
def test_a_vibration_a_coarse_encoder_and_a_filtered_speed_are_no_wrong_scale(lag: float, frequency: float) -> None:
    """A drive whose speed lags by more than two periods does no good in any loop."""
    joint, w = OneJoint(CHANNEL), 2 * np.pi * frequency
    for k in range(2000):
        t = 0.0025 * k
        position = 1e-3 * round(1e3 * np.sin(w * t))
        velocity = 1e-2 * round(1e2 * w * np.cos(w * (t - lag)))
        assert joint.tick(position, k, velocity) is None
