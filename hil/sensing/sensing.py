"""How the state of the machine follows from the samples of a tick.

Design: C computes it, from the samples in the arrays of a struct to the state and to verdicts on what is wrong; here
these become sentences. The state of sensing lives in that struct alone, whether C or Python has read the frames. Each
sample is checked by itself, then extrapolated to the present instant with its speed, and only then are the samples
combined. So one bad sample is simply left out. A channel without a new sample for `OLD` periods follows the model
instead, with the torques that were sent; the safety rules limit how old a sample may become. Where drives are off, and
some answer no more, the model says nothing: their last samples hold.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hil.core.compiled import Calls, Struct
from hil.core.constants import NEVER, Cause, Found
from hil.drives import Feedback
from hil.drives.base import Sample
from hil.loop.clock import SECOND
from hil.loop.tick import FindingKind, Implausibility
from hil.sensing.channels import Channel, Displacements
from hil.sensing.coordinates import Coordinates, require_observability
from hil.sensing.motion import Prediction
from hil.sensing.tracking import TrackingMonitor
from servoctl.engine.ccode import BoundCall
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

OLD = 1.5  # age from which on a channel follows the model instead of its last sample, in periods
SAMPLING = 2  # default time constant of the rate filter, in periods


SAMPLE = "position", "velocity", "torque", "sample_time"  # arrays of the fields of `Sample`
NO_SAMPLE = Sample(math.nan, math.nan, math.nan, NEVER)


REMEDY = (
    "check torque constant, rated_torque, range table, gear and coupling of the drive, sign and zero of encoder nodes, "
    "and the load in the model; or raise hil.safety.tracking"
)

_of_motion = partial(FindingKind, motion=True, by_model=True)

FINDINGS = {
    Found.POSITION: FindingKind("position is not a finite number ({0})"),
    Found.VELOCITY: FindingKind("velocity is not a finite number ({0})"),
    Found.JUMP: FindingKind("encoder jumped: {0:+.4g} {unit} in {1:.3g} ms, at most {2:.3g} {unit} are possible"),
    Found.STUCK: FindingKind(
        "encoder stands still at {0:.6g} {unit} for {1:.3g} s while the model moves by {2:.3g} {unit} (the encoder is "
        "stuck, or the joint is blocked)",
        by_model=True,
    ),
    Found.SCALE: FindingKind(
        "its position moves by {0:+.3g} {unit} in {1:.2g} s, its speed says {2:+.3g} {unit} (check counts per turn, "
        "unit and sign of the speed, in the drive and in the config)"
    ),
    Found.CONTRADICTION: FindingKind(
        "encoders contradict each other: residual {0:+.3g} {unit}, at most {1:.3g} is possible"
    ),
    Found.LOST: _of_motion(
        "its motion shows nothing of the {0:+.3g} {unit} that was sent (no power, safe torque off, a wrong mode, or a "
        "coupling that slips)",
        torqueless=True,
    ),
    Found.AGAINST: _of_motion(
        "it moves against the {0:+.3g} {unit} that was sent, unless a load drives it; it was not proved before",
        reversed=True,
    ),
    Found.NOT_MADE: _of_motion(
        "it reports {0:+.3g} {unit} where {1:+.3g} {unit} was sent (no power, safe torque off, a wrong mode, or a "
        "wrong rated torque or range table)"
    ),
    Found.DISTURBANCE: _of_motion(
        "its motion needs {0:+.3g} {unit} more than the torque sent, at most {1:.3g} {unit} is allowed: {cause}",
        remedy=REMEDY,
    ),
    Found.CHANGE: _of_motion("its motion needs {0:+.3g} {unit} more than {1:g} s before: {cause}", remedy=REMEDY),
}

CAUSES = {
    Cause.NONE: "",
    Cause.BLOCKED: "the joint is blocked: it stands still whatever torque is added (brake, end stop, or its encoder)",
    Cause.PART: "{2:.0f} % of its torque arrives: a coupling that slips, or a wrong constant",
    Cause.ALONE: "a load on this joint alone, or torque that does not arrive",
    Cause.LOAD: "a load that the model does not have",
}


def implausibility(
    verdict: Any, names: Sequence[str], units: Sequence[str], actuators: Mapping[str, str]
) -> Implausibility:
    """The finding of a `sense_verdict`; `names` and `units` are those of the channels, `actuators` name -> unit."""
    kind, channel, stops = FINDINGS[Found(verdict.found)], verdict.channel, bool(verdict.stops)
    numbers = list(verdict.numbers)
    cause = CAUSES[Cause(verdict.cause)].format(*numbers)
    unit = actuators[names[channel]] if kind.motion else units[channel]
    reason = kind.sentence.format(*numbers, unit=unit, cause=cause)
    if stops and kind.remedy:
        reason += f": {kind.remedy}"
    return Implausibility(names[channel], reason, stops, kind)


class Sensing:
    """Computes q and v from the samples of each tick.

    Args:
        channels: What is measured, in the order of the samples.
        start: Start pose from the config: encoders cannot tell which assembly branch the machine is in.
        filtered: Whether speeds are computed from positions even if the drives measure speeds.
        filter_time: Time constant of that filter [s]; None: two periods.
        carried: Longest time for which a sample is carried on at its speed where the model says nothing [s].
        residual_tolerance: Largest residual of redundant displacements [joint unit]; None: by the resolutions.
        motion: Predicts the motion under the last torques; None: speeds stay constant between ticks, and stuck
            encoders are not detected.
        tracking: Checks whether the machine follows `motion`; None: not checked.

    Raises:
        ConfigError: A channel fits no actuator or coordinate, or a degree of freedom is not measured.
        PlantError: The displacements of the motors are not known, or not conjugate to the actuators.
    """

    def __init__(
        self,
        model: Model,
        channels: Sequence[Channel],
        start: State,
        period: float,
        *,
        rank_tolerance: float = 1e-6,
        filtered: bool = False,
        filter_time: float | None = None,
        carried: float = math.inf,
        residual_tolerance: float | None = None,
        motion: Prediction | None = None,
        tracking: TrackingMonitor | None = None,
        engine: str = "auto",
    ) -> None:

        self.displacements = Displacements(model.plant, channels, start)  # what is measured
        self.coordinates = Coordinates(model, self.displacements, rank_tolerance, engine)  # solves for q and v
        require_observability(model, self.coordinates, start)
        self._model, self._names = model, [channel.name for channel in channels]
        self._actuators = dict(model.plant.actuators)  # name -> unit
        self.filtered = filtered  # whether speeds are computed from positions even if the drives measure speeds
        self.tracking = tracking  # checks whether the machine follows its model; None: not checked
        self.filter_time = filter_time or SAMPLING * period  # [s] time constant of that filter, where one is used
        self.calls = Calls() if tracking is None else tracking.calls  # calls of C
        n, m, count = model.n, model.m, len(channels)
        sizes = {"n": n, "m": m, "channels": count, "asked": self.calls.functions.ASKED}
        self.struct = Struct("sensing", sizes, self.calls)  # what C reads and remembers
        c = self.struct.c
        c.n, c.m, c.channels, c.filtered, c.period = n, m, count, filtered, round(period * SECOND)
        c.interval, c.filter_time = period, self.filter_time
        c.old, c.carried = round(OLD * period * SECOND) / SECOND, carried
        c.residual_tolerance = math.nan if residual_tolerance is None else residual_tolerance
        c.tracking = self.struct.ffi.NULL if tracking is None else tracking.struct.c
        c.verdict = self.struct.array("sense_verdict", 2 * count + 2)  # two of each channel, and two of all together
        self._measure(self.struct, model.plant)
        if motion is not None:
            self.struct.connect(c.predict, motion.call.bound)
        self.struct.connect(c.coordinates, self.coordinates.call)
        self.begin(start, 0)

    def _measure(self, struct: Struct, plant: Plant) -> None:
        """Writes the channels, and what they measure."""
        c, h = struct.c, self.displacements
        rows = h.rows or [[] for _ in h.channels]
        entries = [entry for row in rows for entry in row]
        c.factor_index = struct.pointer("int", np.array([j for j, _ in entries], dtype=np.int32))
        c.factor = struct.numbers([factor for _, factor in entries])
        c.channel, first = struct.array("sense_channel", len(h.channels)), 0
        for i, (channel, row) in enumerate(zip(h.channels, rows, strict=True)):
            place = c.channel[i]
            for name in ("resolution", "speed_limit", "leap", "held", "position_error", "speed_error"):
                setattr(place, name, getattr(channel, name))
            place.feedback = list(Feedback).index(channel.feedback)
            place.visible = channel.visible or channel.resolution
            place.weight = h.weights[i]
            place.first_factor, place.factors = first, len(row)
            first += len(row)
        c.constant, c.linear = h.rows is not None, h.linear
        n, count = self._model.n, len(h.channels)
        t, q, v, y, rates = np.zeros(1), np.zeros(n), np.zeros(n), np.zeros(count), np.zeros(count)

        def positions() -> None:
            y[:] = h(plant, q)

        def speeds() -> None:
            rates[:] = h.rates(plant, q, v, float(t[0]))

        struct.connect(c.positions, BoundCall(positions, [q], [y]))
        struct.connect(c.speeds_at, BoundCall(speeds, [t, q, v], [rates]))

    def begin(self, start: State, now: int) -> None:
        """Starts again from a pose."""
        arrays = self.struct.arrays
        for array in arrays.values():
            array.fill(0)
        arrays["q"][:], arrays["v"][:], self.struct.c.now = start.q, start.v, now
        for name in ("sample_time", "accepted_time", "track_time"):
            arrays[name].fill(NEVER)
        for name in ("seen", "received", "syncs", "commands"):
            arrays[name].fill(-1)
        self.struct.c.contradictions = 0
        if self.tracking is not None:
            self.tracking.begin()

    def lead(self, ahead: float, evenly: bool) -> None:
        """Chooses the state that the law gets: so much time ahead [s], or evenly, at the moments when ticks are due."""
        self.struct.c.ahead, self.struct.c.evenly = ahead, evenly

    def share(self, arrays: Mapping[str, Array]) -> None:
        """Reads samples, `position`, `velocity`, `torque` and `sample_time`, and the `command` from these arrays."""
        for name, array in arrays.items():
            self.struct.share(name, array)

    @property
    def findings(self) -> list[Implausibility]:
        """What was wrong in that tick."""
        c, units = self.struct.c, self.displacements.units
        return [implausibility(verdict, self._names, units, self._actuators) for verdict in c.verdict[0 : c.verdicts]]

    def check_start(self, q: Array, samples: Sequence[Sample], tolerances: Sequence[float]) -> list[tuple[str, str]]:
        """Name and explanation of each channel whose sample differs from the start pose by more than its tolerance.

        `q`: start pose, shape (n,); `tolerances`: one per channel [joint unit].
        """
        problems = []
        for channel, unit, expected, sample, tolerance in zip(
            self.displacements.channels,
            self.displacements.units,
            self.displacements(self._model.plant, q).tolist(),
            samples,
            tolerances,
            strict=True,
        ):
            difference = sample.position - expected
            if not abs(difference) <= tolerance:
                sentence = (
                    f"expected {expected:.5g} {unit} at the start pose, measured {sample.position:.5g} {unit}, "
                    f"difference {difference:+.3g} {unit}, start_tolerance {tolerance:g} {unit}"
                )
                problems.append((channel.name, sentence))
        return problems
