"""Detects a computed motion that is not the motion of the plant.

Three signs end a run, each with a message that says what to do:

- the passive rank exceeds the rank that the constraints' geometry allows: drift makes dependent rows look independent;
- the rank of the task rises by drift alone (see `TaskRank`);
- the energy is conserved, but has drifted by `DRIFT` of the largest kinetic energy so far.

Design: the violation shows neither, because a mechanism with one constraint too many stays closed too. The rows up to
the sign are kept; the row with the sign is the last.

Where dependent passive rows are corrected instead of projected, the motion is sensitive to every error, and
neither the violation nor the energy shows it: on the shipped parallelogram, a drift of 2e-4 J goes with an angle that
is off by 0.02 rad. The start warns of that.

Rows that depend on each other only where the task holds, such as `c = 0` and `(1 + y) c = 0`, look independent as soon
as drift has moved the state off the task. Their pivot is then as small as the drift, so the inputs that it asks for are
drift divided by drift. The rank at the nearest state that satisfies the task tells the two cases apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from servoctl.engine.decomposition import decompose
from servoctl.errors import PlantError, ServoctlError, listed
from servoctl.mechanics import plant_values
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.mechanics.passive_rank import dependent_rows
from servoctl.mechanics.plant_values import kinetic_energy
from servoctl.mechanics.terms import Terms
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.settings import Settings
from servoctl.types import Array, State

ROW_DRIFT = (
    1e-3  # a state is on the task but for drift where the nearest one is at most this far away, relative to 1 + |q|
)
SATISFIED = 1e-8  # [units of the row] largest violation that the nearest state may keep
CHECKS = 20  # rises of the rank that are looked at in one run: each takes some milliseconds


def judges_rank(loop: Loop) -> bool:
    """Whether a rise of the rank is looked at: not of derived rows (no violation to project), nor with noise."""
    system = loop.system
    return system.following is not None and system.model.plain is system.model and system.realism is None


class TaskRank:
    """Looks at the rank of the task, row by row of one run."""

    def __init__(self, loop: Loop) -> None:
        self._system, self._last, self._left = loop.system, np.inf, CHECKS
        law, self._tolerance = loop.system.following, None
        if law is not None and judges_rank(loop):
            self._tolerance = law.allocation.rank_tolerance

    def look(self, rows: Trajectory) -> tuple[int, str] | None:
        """The first row at which drift has raised the rank, and why the run ends there; None where there is none."""
        ranks = rows.columns.get("rank")
        if self._tolerance is None or ranks is None or not len(ranks):
            return None
        before = np.concatenate([[self._last], ranks[:-1]])
        self._last = float(ranks[-1])
        for i in np.flatnonzero(ranks > before):
            if self._left == 0:
                return None
            self._left -= 1
            sentence = self._sentence(State(float(rows.t[i]), rows.q[i], rows.v[i]), int(ranks[i]), self._tolerance)
            if sentence is not None:
                return int(i), sentence
        return None

    def _sentence(self, state: State, rank: int, tolerance: float) -> str | None:
        model = self._system.model
        try:
            near, left = nearest(model, state)
            at = model.terms(near, self._system.passive.rank_tolerance)
        except ServoctlError:
            return None
        away = float(np.max(np.abs(near.q - state.q) / (1.0 + np.abs(state.q))))
        if not away <= ROW_DRIFT or not float(np.nanmax(np.abs(left.violation), initial=0.0)) <= SATISFIED:
            return None
        there = decompose(at.task_map, tolerance, at.scale).rank
        if there >= rank:
            return None
        return (
            f"t = {state.t:.6g} s: task rank {rank}, but {there} at the nearest state that satisfies the task, "
            f"{away:.1e} away: drift makes dependent rows ({', '.join(_dependent(model, at, tolerance))}) look "
            "independent, so the inputs follow the drift (leave out the rows that the others imply, or raise "
            "law.rank_tolerance above the drift)"
        )


def _dependent(model: Model, at: Terms, tolerance: float) -> Sequence[str]:
    """Names of the rows that add no direction to the rows above them."""
    ranks = [decompose(at.task_map[: i + 1], tolerance, at.scale).rank for i in range(len(at.task_map))]
    return [row.name for row, step in zip(model.task_rows, np.diff(ranks, prepend=0), strict=True) if step == 0]


DRIFT = 1e-3  # largest drift of the energy, relative to the largest kinetic energy so far
POWER = 1e-6  # energy counts as conserved if it changes by less than this times the kinetic energy in a second
PROBE = 1e-5  # [s] time step of the differences that decide whether energy is conserved
EVERY_ROW, THINNED = 200, 10  # kinetic energy is computed in this many first rows, then in one of this many
NAMED = 6  # largest number of constraint rows that a message names


class MotionMonitor:
    """Checks the rows of one run, in order."""

    def __init__(self, loop: Loop, start: State, settings: Settings) -> None:
        self._loop, self._start, self._integrator = loop, start, settings.integrator
        self._model = loop.simulated().system.model
        # mechanical energy of every row so far [J]; empty if the plant has no `energy`, or inputs act
        self.energies: list[float] = []
        self.failed: str | None = None  # why the plant's energy cannot be computed; None if it can
        system, ideal = loop.system, loop.of(replace(loop.system, realism=None))
        self._ideal = ideal  # no input acts where the energy is judged, so nothing is late
        self._has_energy = system.law is None and not system.inputs and self._energy(start) is not None
        self._conserved = self._has_energy and system.machine is None and conserves_energy(loop, start)
        self._task_rank = TaskRank(loop)
        self._kinetic = 0.0

    @property
    def needs_rows(self) -> bool:
        """Whether every row is needed, for the energy."""
        return self._conserved

    def look(self, columns: Mapping[str, Array]) -> tuple[int, str] | None:
        """Index of the first row at which the run must end, and why; None if it goes on.

        Args:
            columns: Further rows of the run: column -> values.
        """
        rows = Trajectory(dict(columns))
        ended = self._rank(rows) or self._task_rank.look(rows)
        if self._has_energy:
            for i in range(len(rows) if ended is None else ended[0]):
                if not self._has_energy:
                    break
                reason = self._energy_row(State(float(rows.t[i]), rows.q[i], rows.v[i]))
                if reason is not None:
                    return i, reason
        return ended

    def _rank(self, rows: Trajectory) -> tuple[int, str] | None:
        allowed, ranks = self._loop.system.passive.allowed, rows.columns.get("passive_rank")
        if ranks is None or not (ranks > allowed).any():
            return None
        i = int(np.argmax(ranks > allowed))
        more = "shorten run.integrator.step or lower its rtol"
        if not self._loop.system.passive.projection:
            more = "set plant.passive.projection: true"
        return i, (
            f"t = {rows.t[i]:.6g} s: mechanism rank {ranks[i]}, but the constraints' geometry allows {allowed}: drift "
            f"makes dependent rows ({self._dependent()}) look independent, so the motion is no longer the plant's "
            f"({more}, or raise plant.passive.rank_tolerance above the drift)"
        )

    def _dependent(self) -> str:
        """Names of passive rows that depend on each other, for a message."""
        return listed(dependent_rows(self._model, self._start), NAMED)

    def _energy(self, state: State) -> float | None:
        """The plant's energy [J]; None if it has none, or fails (`failed` then holds the reason)."""
        try:
            energy = plant_values.value(self._model.plant, "energy", state)
            return None if energy is None else float(energy)
        except PlantError as error:
            self.failed, self._has_energy = str(error), False
            return None

    def _energy_row(self, state: State) -> str | None:
        """Adds a row; returns why the run must end there, or None."""
        energy = self._energy(state)
        if energy is None:
            return None
        self.energies.append(energy)
        if not self._conserved or not np.isfinite(energy):
            return None
        if len(self.energies) <= EVERY_ROW or len(self.energies) % THINNED == 0:
            self._kinetic = max(self._kinetic, kinetic_energy(self._model.plant, state))
        drift = abs(energy - self.energies[0])
        if not drift > DRIFT * self._kinetic > 0.0:
            return None
        if self._depends_on_time(state, energy):
            # a support that starts to move from rest does no work at the start, where `conserves_energy` looks
            self._has_energy, self.energies = False, []
            return None
        return self._explanation(state.t, drift)

    def _depends_on_time(self, state: State, energy: float) -> bool:
        """Whether this state would have another energy or acceleration at the time of the start."""
        loop, t = self._ideal, self._start.t
        x = loop.x_at(state)
        same = np.array_equal(loop.rates(t, x)[0], loop.rates(state.t, x)[0])
        return not same or self._energy(state._replace(t=t)) != energy

    def _explanation(self, t: float, drift: float) -> str:
        share = f"{drift:.3g} J, {drift / self._kinetic:.2g} of the largest kinetic energy"
        text = f"t = {t:.6g} s: the energy, which nothing changes, is off by {share}: the motion is not the plant's"
        passive = self._loop.system.passive
        if passive.dependent and not passive.projection:
            return (
                f"{text}: rows {self._dependent()} depend on each other and drift decides their rank (set "
                "plant.passive.projection: true)"
            )
        pose = "a pose where the mechanism loses rank, a jump in a force, or an energy that is not the plant's own"
        return f"{text} ({self._integrator.remedy}; where that does not help, look for {pose})"


def conserves_energy(loop: Loop, start: State) -> bool:
    """Whether the plant's energy stays constant: nothing dissipates, and nothing depends on time.

    Differences along the motion decide, at the start and at a random velocity that the constraints allow.

    Args:
        loop: Without law and inputs.
    """
    if loop.system.friction is not None:
        return False
    model, random = loop.simulated().system.model, np.random.default_rng(0)
    n = model.n
    try:
        for scale in (0.0, 1.0):
            v = start.v + scale * random.standard_normal(n)
            state = nearest(model, State(start.t, start.q, v), among=[])[0]
            rate = loop.rates(start.t, loop.x_at(state))[0]
            moved = [
                model.plant.energy(state.q + h * state.v + h * h / 2 * rate[n:], state.v + h * rate[n:], state.t + h)
                for h in (PROBE, -PROBE)
            ]
            if moved[0] is None or moved[1] is None or not np.isfinite(rate).all():
                return False
            kinetic = kinetic_energy(model.plant, state)
            level = abs(float(moved[0])) + kinetic
            if abs(float(moved[0]) - float(moved[1])) / (2 * PROBE) > POWER * kinetic + 1e-9 * level:
                return False
    except ServoctlError:
        return False
    return True
