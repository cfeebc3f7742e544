"""A bus that is down, time stamps from ahead, contradicting encoders, shared reply ids, a rig used again."""

import numpy as np
import pytest

from hil.bus import BusError, Link
from hil.bus.base import Bus, Health
from hil.drives import DriveSettings, Feedback, Sample
from hil.frame import Frame
from hil.loop.clock import VirtualClock, nanoseconds
from hil.protocols.registry import build
from hil.rig.dispatch import Dispatch
from hil.sensing.channels import Channel
from hil.sensing.prediction import Prediction
from hil.sensing.sensing import Sensing
from servoctl.mechanics.model import Model
from servoctl.types import State
from tests.hil.faults.carts.plant import Carts
from tests.hil.faults.carts.scenario import machine
from tests.hil.rigs import renewed
from tests.hil.samples import sense

LIMITS = {"torque_limit": 2.0, "torque_rate_limit": 400.0, "speed_limit": 6.0, "position_limits": (-3.0, 3.0)}


class Given(Bus):
    """A bus with what a test puts on it; None: it is down."""

    name = "main"

    def __init__(self, frames: list[Frame] | None) -> None:
        self.frames = frames

    def send(self, frame: Frame) -> None:
        if self.frames is None:
            raise BusError("bus main: no such device")

    def receive(self, until: int) -> Frame | None:
        if self.frames is None:
            raise BusError("bus main: no such device")
        return self.frames.pop(0) if self.frames else None

    @property
    def health(self) -> Health:
        return Health()

    def restarted(self) -> None: ...

    def close(self) -> None: ...


def odrive(protocol: str = "odrive", node: int = 3, **options: object):
    name = f"u{node}"
    return build(DriveSettings(name, "main", protocol, node, rated_torque=2.0, options=options, **LIMITS), 0.0025)


def dispatch(frames: list[Frame] | None, node=None) -> tuple[Dispatch, VirtualClock]:
    clock = VirtualClock()
    return Dispatch({"main": Given(frames)}, [node or odrive()], clock, lambda *record: None), clock


def test_a_bus_that_cannot_be_read_is_down_and_time_passes() -> None:
    way, clock = dispatch(None)
    assert way.healths()["main"].link is Link.ACTIVE
    way.wait(5_000_000, lambda: "main")
    assert clock.now() == 5_000_000
    health = way.healths()["main"]
    assert (health.link, health.reason) == (Link.DOWN, "bus main: no such device")


def test_a_bus_that_accepts_no_frame_is_down_even_if_it_reports_otherwise() -> None:
    way, _ = dispatch(None)
    way.send("main", Frame(1))
    assert way.healths()["main"].link is Link.DOWN


@pytest.mark.parametrize(("stamped", "taken"), [(900, 900), (5_000_000_000, 1000)])
def test_no_sample_is_newer_than_now(stamped: int, taken: int) -> None:
    drive = odrive()
    way, clock = dispatch([Frame(0x69, bytes(8), time=stamped)], drive)
    clock.sleep_until(1000)
    way.drain()
    assert drive.sample is not None and drive.sample.time == taken


def test_encoders_that_contradict_each_other_never_reach_the_coordinates() -> None:
    start, fine, period = State(0.0, np.array([0.3, 0.8]), np.zeros(2)), 1e-6, 0.0025
    model = Model(Carts(), {}, start)
    channels = [Channel(name, fine, speed_limit=2.0, interval=period, feedback=Feedback.CYCLIC) for name in "ab"]
    channels.append(Channel("x1", fine, encoder=True, interval=period))
    eyes = Sensing(model, channels, start, period, motion=Prediction(model, engine="vm"), engine="vm")
    for k in range(1, 12):
        now, jump = nanoseconds(k * period), 0.4 if k >= 10 else 0.0
        samples = [Sample(x, 0.0, np.nan, now) for x in (0.3, 0.8, 0.3 + jump)]
        sight = sense(eyes, 0.0, now, samples, np.zeros(2))
        np.testing.assert_allclose(sight.estimate.q, [0.3, 0.8], atol=1e-5)
        assert [finding.stops for finding in sight.findings] == {10: [False], 11: [True]}.get(k, [])


def test_a_renewed_rig_keeps_nothing_of_the_run_before() -> None:
    prepared = machine("odrive", "standstill")
    for drive in prepared.drives:
        drive.accept(Frame(drive.settings.node << 5 | 0x09, bytes(8), time=7))
    again = renewed(prepared, [{"kind": "cut"}], 5)
    assert [drive.sample for drive in again.drives] == [None, None]
    assert (again.settings.values.faults, again.seed) == (({"kind": "cut"},), 5)
    assert again.loop is prepared.loop and again.sensing is prepared.sensing
    assert not prepared.settings.values.faults
