"""Sensing in C equals the textbook to the bit, verdicts included: on samples that are lost, late, wrong or stuck."""

import math
import random
import weakref
from collections import Counter
from typing import Any

import numpy as np
import pytest

from hil.core.constants import Cause, Found
from hil.drives import Feedback, Sample
from hil.sensing.channels import Channel
from hil.sensing.motion import Prediction
from hil.sensing.sensing import Sensing
from hil.sensing.tracking import DisturbanceObserver, TrackingMonitor
from plants.coordinated_robots import CoordinatedRobots
from plants.two_mass_spring import TwoMassSpring
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State
from tests.hil.fixed_observer import Fixed, judge
from tests.hil.machines import robots
from tests.hil.one_joint import OneJoint
from tests.hil.opaque_code import Crank
from tests.hil.samples import sense
from tests.hil.textbook_sensing import Textbook, Verdict, Windows

T = 0.0025
TICK = 2_500_000


def bits(values: Any) -> bytes:
    return np.asarray(values, dtype=float).tobytes()


def assert_same(verdicts: Any, book: list[Verdict]) -> None:
    """Compares the verdicts of C with those of the textbook."""
    assert len(verdicts) == len(book)
    for c, (found, channel, stops, cause, numbers) in zip(verdicts, book, strict=True):
        assert (c.found, c.channel, bool(c.stops), c.cause) == (found, channel, stops, cause)
        assert bits(list(c.numbers)[: len(numbers)]) == bits(numbers)


def track(seed: int, counts: Counter[tuple[Found, Cause]]) -> None:
    """Judges 4 s of motors that lose torque, get loads, report less than they make, stand, and turn."""
    chance = random.Random(seed)
    m = chance.choice((1, 2, 3))

    def some(*values: float, size: float = 1.0) -> Array:
        return np.array([chance.choice(values) * chance.uniform(-size, size) for _ in range(m)])

    shares = [chance.choice((1.0, 1.0, 0.5, 0.05)) for _ in range(m)]
    limits = np.array([chance.choice((2.0, 10.0)) for _ in range(m)])
    drives = [
        Channel(
            f"d{i}", 1e-4, speed_limit=chance.choice((2.0, math.inf)), torque_step=chance.choice((0.0, 0.01)),
            torque_every=0.025 * (i % 2),
        )
        for i in range(m)
    ]  # fmt: skip
    share, estimated, error = chance.choice((0.02, 0.1, 1.0)), chance.random() < 0.6, chance.choice((0.0, 1e-4, 1e-2))
    monitor = TrackingMonitor(Fixed(shares), drives, limits, share, T, estimated)
    monitor.errors = lambda t, q: np.full((m, m), error * (1.0 + q[0]))
    monitor.begin([i for i in range(m) if chance.random() < 0.2])
    book = Windows(monitor, drives, share, T, estimated)
    reports, stands, gaps = chance.random() < 0.7, chance.random() < 0.4, chance.choice((0.0, 0.001, 0.01))
    arrives, made_share, load, u, goal, speeds, y = np.ones(m), np.ones(m), *np.zeros((5, m))
    for k in range(1600):
        if chance.random() < 0.015:
            arrives = np.array([chance.choice((1.0, 1.0, 1.0, 0.0, 0.0, 0.5, -1.0)) for _ in range(m)])
        if chance.random() < 0.01:
            load = limits * some(0.0, 0.0, 1.0, size=0.5)
        if chance.random() < 0.01:
            made_share = np.array([chance.choice((1.0, 1.0, 1.0, 0.0, 0.3)) for _ in range(m)])
        if chance.random() < 0.02:
            goal = limits * some(0.0, 1.0, 1.0)
        if chance.random() < 0.02:
            speeds = some(0.0, 0.0 if stands else 1.0, size=2.0)
        u = u + 0.1 * (goal - u)
        elapsed = T * (chance.choice((2, 4)) if chance.random() < gaps else 1)
        y = y + speeds * elapsed
        d = np.array(shares) * ((arrives - 1.0) * u + load) * chance.choice((1.0, 1.0, 0.9))
        torques = made_share * arrives * u if reports else np.full(m, math.nan)
        free = chance.random() > 0.0005
        args = 0.1 * k, elapsed, np.full(m, 1e-4 * k), elapsed * d if free else None, u, y, torques, speeds
        finding, found = judge(monitor, *args), book.judge(*args)
        assert (finding is None) == (found is None)
        assert monitor.struct.arrays["arrivals"].tolist() == [*book.states[0], *book.states[1]]
        if found is not None:
            assert_same([monitor.struct.c.verdict], [found])
            counts[found[0], found[3]] += 1


def test_windows_in_c_are_those_of_the_textbook() -> None:
    counts: Counter[tuple[Found, Cause]] = Counter()
    for seed in range(24):
        track(seed, counts)
    assert {found for found, _ in counts} == {found for found in Found if found >= Found.LOST}
    assert {cause for _, cause in counts} == set(Cause)


class Machine:
    """A machine that moves under torques, and what its nodes send of it."""

    def __init__(self, plant: Plant, q: Array, encoders: list[str]) -> None:
        self.plant, self.start, self.encoders = plant, State(0.0, q, np.zeros(len(q))), encoders
        self.model = Model(plant, {}, self.start)
        self.motion, self.observer = Prediction(self.model, engine="vm"), DisturbanceObserver(self.model, engine="vm")

    def channels(self, chance: random.Random) -> list[Channel]:
        def channel(name: str, encoder: bool) -> Channel:
            return Channel(
                name, chance.choice((1e-5, 3e-5)), encoder, chance.choice((20.0, math.inf)),
                leap=chance.choice((0.0, 1e-3)),
                feedback=chance.choice(list(Feedback)), visible=chance.choice((0.0, 2e-5)),
                held=chance.choice((0.0, 0.3)), torque_step=chance.choice((0.0, 1e-3)), position_error=1e-5,
                speed_error=chance.choice((0.0, 1e-3)),
            )  # fmt: skip

        return [channel(name, False) for name in self.plant.actuators] + [channel(name, True) for name in self.encoders]


class Wire:
    """Samples on their way: lost, late, wrong, and of encoders that are scaled, shifted or stuck."""

    def __init__(self, channels: list[Channel], chance: random.Random) -> None:
        self.channels, self.chance = channels, chance
        self.lost, self.late = (chance.choice((0.0, 0.05, 0.3)) for _ in range(2))
        self.wrong, self.speeds = chance.choice((0.0, 0.0, 0.02, 0.1)), chance.random() < 0.8
        self.scale, self.shift = np.ones(len(channels)), np.zeros(len(channels))
        self.stuck: list[float | None] = [None] * len(channels)
        self.under_way: list[tuple[int, int, Sample]] = []
        self.newest: list[Sample | None] = [None] * len(channels)

    def change(self, i: int, y: float) -> None:
        kind = self.chance.choice(("scale", "shift", "stuck", "", ""))
        self.scale[i] = self.chance.choice((0.25, -1.0)) if kind == "scale" else 1.0
        self.shift[i] = self.chance.choice((1e-3, 0.4)) if kind == "shift" else 0.0
        self.stuck[i] = y if kind == "stuck" else None

    def send(self, k: int, now: int, y: Array, rates: Array, torques: Array) -> list[Sample | None]:
        """The newest samples after those of a tick were sent."""
        chance = self.chance
        if chance.random() < 0.01:
            i = chance.randrange(len(self.channels))
            self.change(i, float(y[i]))
        for i, channel in enumerate(self.channels):
            if chance.random() < self.lost:
                continue
            position = self.scale[i] * (y[i] - 0.2 * T * rates[i]) + self.shift[i]
            position = channel.resolution * round(position / channel.resolution)
            velocity = rates[i] if self.speeds and not channel.encoder else math.nan
            stuck = self.stuck[i]
            if stuck is not None:
                position, velocity = stuck, 0.0 * velocity
            if chance.random() < self.wrong:
                position += chance.choice((1.0, 0.02, math.nan, math.inf, 1e-4))
            if chance.random() < self.wrong / 4:
                velocity = chance.choice((math.nan, math.inf, -velocity))
            torque = math.nan if channel.encoder else torques[i]
            delay = chance.choice((1, 1, 2, 3)) if chance.random() < self.late else 0
            received = now - chance.randrange(TICK // 6) + delay * TICK
            self.under_way.append((k + delay, i, Sample(float(position), float(velocity), float(torque), received)))
        arrived = [each for each in self.under_way if each[0] <= k and each[2].time <= now]
        self.under_way = [each for each in self.under_way if each not in arrived]
        for _, i, sample in arrived:
            self.newest[i] = sample
        return [None if chance.random() < 0.001 else sample for sample in self.newest]


def read(machine: Machine, seed: int, counts: Counter[Found]) -> None:
    """Reads 1 s of a machine that torques move, by C and by the textbook."""
    chance = random.Random(seed)
    channels, plant, m = machine.channels(chance), machine.plant, len(machine.plant.actuators)
    limits, share, estimated = np.full(m, chance.choice((5.0, 20.0))), chance.choice((0.05, 0.3)), chance.random() < 0.5
    options = {"filtered": chance.random() < 0.2, "residual_tolerance": chance.choice((None, None, 1e-3))}
    options["carried"] = chance.choice((1.6 * T, 3 * T, math.inf))
    motion = machine.motion if chance.random() < 0.9 else None
    monitor = TrackingMonitor(machine.observer, channels[:m], limits, share, T, estimated)
    sensing = Sensing(
        machine.model, channels, machine.start, T, tracking=monitor, motion=motion, engine="vm", **options
    )  # type: ignore[arg-type]
    book = Textbook(sensing, plant, motion, T, Windows(monitor, channels[:m], share, T, estimated), **options)  # type: ignore[arg-type]
    wire, q, v, now = Wire(channels, chance), machine.start.q, machine.start.v, 0
    phase, size = np.arange(m), chance.choice((0.02, 0.3)) * limits
    for k in range(1, 400):
        elapsed = chance.choice((TICK // 2, 3 * TICK, 5 * TICK, 0)) if chance.random() < 0.03 else TICK
        u = size * np.sin(0.02 * k * (1 + phase) + phase)
        now += elapsed
        if elapsed:
            q, v = machine.motion(0.0, elapsed / 1e9, q, v, u)
            v = 0.98 * v
        h = sensing.displacements
        samples = wire.send(k, now, h(plant, q), h.rates(plant, q, v, 0.0), u)
        sync, command = (moment if chance.random() < 0.95 else None for moment in (now - TICK // 5, now - TICK // 4))
        args = now / 1e9, now, samples, u if chance.random() < 0.99 else None, sync, command
        measurement, (found, *state, y, speeds, valid) = sense(sensing, *args), book.read(*args)
        assert_same(sensing.struct.c.verdict[0 : sensing.struct.c.verdicts], found)
        for ours, theirs in zip(
            (*measurement.estimate[:2], measurement.positions, measurement.rates), (*state, y, speeds), strict=True
        ):
            assert bits(ours) == bits(theirs)
        assert measurement.valid == valid
        counts.update(each[0] for each in found)


@pytest.mark.parametrize("name", ["two masses", "a motor that acts by the pose", "coordinated robots"])
def test_samples_in_c_are_judged_and_combined_as_the_textbook_does_it(name: str) -> None:
    machines = {
        "two masses": (TwoMassSpring(), np.array([0.0, 0.5]), ["x2"]),
        "a motor that acts by the pose": (Crank(), np.array([0.0, 0.5]), ["x2"]),
        "coordinated robots": (CoordinatedRobots(), robots(0.2), []),
    }
    machine, counts = Machine(*machines[name]), Counter[Found]()
    for seed in range(12):
        read(machine, seed, counts)
    expected = {Found.POSITION, Found.VELOCITY, Found.JUMP, Found.STUCK, Found.SCALE}
    assert set(counts) >= expected | ({Found.CONTRADICTION} if name == "coordinated robots" else set())


def test_samples_of_an_earlier_run_are_freed_when_another_run_takes_the_sensing() -> None:
    sensing = OneJoint(Channel("u1", 1e-3)).sensing
    first, second = np.zeros(1), np.ones(1)
    earlier = weakref.ref(first)
    sensing.share({"position": first})
    sensing.share({"position": second})
    del first
    assert earlier() is None and sensing.struct.c.position[0] == 1.0
