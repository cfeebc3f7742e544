"""Watches a run for a motion that is not the plant's, whatever the settings.

Three signs end a run, each with a sentence that says what to do:

- the passive rank exceeds what the constraints' geometry allows: drift makes dependent rows look independent;
- the rank of the task rises by drift alone (see `task_rank`);
- where energy is conserved it has drifted by `DRIFT` of the largest kinetic energy seen. The last second is then
  repeated at half the step, or a tenth of the tolerances: an error that falls is the step's, one that does not is the
  equations'.

Design: the violation cannot tell, for a mechanism with a row too many is closed as well as the true one. What a run has
written up to the sign is kept, the row with the sign is its last.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from servoctl.errors import PlantError, ServoctlError
from servoctl.mechanics import plant_values
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.passive_rank import dependent_rows
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.integrate import integrate
from servoctl.simulation.rows import Integrator
from servoctl.simulation.task_rank import TaskRank
from servoctl.types import Array, State

DRIFT = 1e-3
"""Energy may drift by this times the largest kinetic energy seen."""

LOOK_BACK = 1.0
"""How much of a run is repeated [s]."""

FALLS = 0.5
"""A drift that the finer repetition brings below this times what it was is the step's."""

POWER = 1e-6
"""Energy is conserved where it changes by less than this times the kinetic energy in a second."""

PROBE = 1e-5
"""Time step of the differences that tell whether energy is conserved [s]."""

MOST = 100_000
"""A repetition may take so many evaluations more than the run did so far: near singular poses steps become tiny."""

EVERY_ROW, THINNED = 200, 10
"""Kinetic energy is looked at in so many first rows, then in one of so many."""

NAMED = 6
"""Rows that a sentence names."""


class Moment(NamedTuple):
    """A row of the run, with its energy [J]."""

    t: float
    x: Array
    energy: float


class Monitor:
    """Looks at the rows of one run, in order.

    Attributes:
        energies: Mechanical energy of every row so far [J]; empty where the plant does not say, or inputs act.
        failed: Why the plant's energy cannot be computed; None where it can.
    """

    def __init__(self, loop: Loop, start: State, integrator: Integrator) -> None:
        """Takes the loop that runs, where from and how."""
        self._loop, self._start, self._integrator = loop, start, integrator
        self._model = loop.simulated().system.model
        self.energies: list[float] = []
        self.failed: str | None = None
        system = loop.system
        self._has_energy = system.law is None and not system.inputs and self._energy(start) is not None
        self._conserved = self._has_energy and conserves_energy(loop, start)
        self._task_rank = TaskRank(loop)
        self._past: deque[Moment] = deque()
        self._kinetic = 0.0

    def look(self, columns: Mapping[str, Array]) -> tuple[int, str] | None:
        """The first of these rows that a run must not go beyond, and why; None where it may go on.

        Args:
            columns: Rows of a run, as the run folder takes them.
        """
        rows = Trajectory(dict(columns))
        found = self._rank(rows) or self._task_rank.look(rows)
        if self._has_energy:
            for i in range(len(rows) if found is None else found[0]):
                if not self._has_energy:
                    break
                moment = Moment(float(rows.t[i]), np.concatenate([rows.q[i], rows.v[i]]), 0.0)
                sentence = self._energy_row(moment)
                if sentence is not None:
                    return i, sentence
        return found

    def _rank(self, rows: Trajectory) -> tuple[int, str] | None:
        allowed, ranks = self._loop.system.passive.allowed, rows.columns.get("passive_rank")
        if ranks is None or not (ranks > allowed).any():
            return None
        i = int(np.argmax(ranks > allowed))
        more = "shorten run.integrator.step or lower its rtol"
        if not self._loop.system.passive.projection:
            more = "set plant.passive.projection: true"
        return i, (
            f"t = {rows.t[i]:.6g} s: passive rank {ranks[i]}, but the constraints' geometry allows {allowed}: drift "
            f"makes dependent rows ({self._dependent()}) look independent, so the motion is no longer the plant's "
            f"({more}, or raise plant.passive.rank_tolerance above the drift)"
        )

    def _dependent(self) -> str:
        """Names of the rows that depend on each other."""
        names = dependent_rows(self._model, self._start)
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"{', '.join(names[:NAMED])}{more}"

    def _energy(self, state: State) -> float | None:
        """The plant's energy [J]; None where it gives none, or fails, which `failed` then says."""
        try:
            return plant_values.energy(self._model.plant, state, state.q, state.v, state.t)
        except PlantError as error:
            self.failed, self._has_energy = str(error), False
            return None

    def _energy_row(self, moment: Moment) -> str | None:
        """Takes a row; says why the run must end there, if it must."""
        state = self._loop.split(moment.t, moment.x)[0]
        energy = self._energy(state)
        if energy is None:
            return None
        self.energies.append(energy)
        moment = moment._replace(energy=energy)
        if not self._conserved or not np.isfinite(energy):
            return None
        if len(self.energies) <= EVERY_ROW or len(self.energies) % THINNED == 0:
            mass = np.atleast_2d(np.asarray(self._model.plant.mass_matrix(state.q, state.t), dtype=float))
            self._kinetic = max(self._kinetic, 0.5 * float(state.v @ mass @ state.v))
        self._past.append(moment)
        while self._past[0].t < moment.t - LOOK_BACK and len(self._past) > 2:
            self._past.popleft()
        drift = abs(energy - self.energies[0])
        return self._verdict(moment, drift) if drift > DRIFT * self._kinetic > 0.0 else None

    def _verdict(self, moment: Moment, drift: float) -> str:
        """What a finer repetition of the last second says of a drift."""
        first, own = self._past[0], self._integrator
        finer = replace(own, step=own.step / 2, rtol=own.rtol / 10, atol=own.atol / 10)
        again = self._repeated(first, moment.t, finer)
        share = f"{drift:.3g} J, {drift / self._kinetic:.2g} of the largest kinetic energy"
        text = f"t = {moment.t:.6g} s: the energy, which nothing changes, is off by {share}"
        how = f"half the step of {own.step:g} s" if own.method == "rk4" else f"a tenth of rtol {own.rtol:g}"
        falls = again is not None and again < FALLS * abs(moment.energy - first.energy)
        again_text = f"at {how} it drifts less" if falls else f"it drifts as much again at {how}"
        passive = self._loop.system.passive
        if passive.dependent(self._model) and not passive.projection:
            return (
                f"{text}; {again_text}: rows {self._dependent()} depend on each other and drift decides their rank, so "
                "the motion is no longer the plant's (set plant.passive.projection: true)"
            )
        if falls:
            remedy = "shorten run.integrator.step" if own.method == "rk4" else "lower run.integrator.rtol and atol"
            return f"{text}; {again_text}: the step is too long for this motion ({remedy})"
        pose = "a pose where the passive rank drops, a jump in a force, or an energy that is not the plant's own"
        return f"{text}; {again_text}: no step explains it, so the motion is not trustworthy (look for {pose})"

    def _repeated(self, first: Moment, end: float, integrator: Integrator) -> float | None:
        """How far the energy drifts from one row to another time [J]; None where the repetition fails."""
        count, duration = self._loop.evaluations, end - first.t
        last = None
        if duration > 0.0:
            for chunk in integrate(self._loop, first.x, first.t, duration, integrator, None, duration):
                if chunk.stopped is not None or self._loop.evaluations - count > MOST + count:
                    return None
                last = (float(chunk.t[-1]), chunk.x[-1]) if len(chunk.t) else last
        self._loop.evaluations = count
        if last is None:
            return None
        energy = self._energy(self._loop.split(*last)[0])
        return None if energy is None or not np.isfinite(energy) else abs(energy - first.energy)


def conserves_energy(loop: Loop, start: State) -> bool:
    """Whether the energy that a plant states stays constant: nothing dissipates, and nothing depends on time.

    Decided by differences along the motion, at the start and at a random velocity that the constraints allow.

    Args:
        loop: Without law and inputs.
        start: Where from.
    """
    if loop.system.friction is not None:
        return False
    model, random = loop.simulated().system.model, np.random.default_rng(0)
    n = model.n
    try:
        for scale in (0.0, 1.0):
            v = start.v + scale * random.standard_normal(n)
            state = nearest(model, State(start.t, start.q, v), among=[])[0]
            rate = loop.rates(start.t, np.concatenate([state.q, state.v]))[0]
            moved = [
                model.plant.energy(state.q + h * state.v + h * h / 2 * rate[n:], state.v + h * rate[n:], state.t + h)
                for h in (PROBE, -PROBE)
            ]
            if moved[0] is None or moved[1] is None or not np.isfinite(rate).all():
                return False
            kinetic = 0.5 * float(state.v @ np.atleast_2d(model.plant.mass_matrix(state.q, state.t)) @ state.v)
            level = abs(float(moved[0])) + kinetic
            if abs(float(moved[0]) - float(moved[1])) / (2 * PROBE) > POWER * kinetic + 1e-9 * level:
                return False
    except ServoctlError:
        return False
    return True
