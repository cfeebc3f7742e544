"""A simulated run: from a closed loop and a start to a trajectory, recorded as it goes.

Design: rows come in chunks; each is laid out as named columns and handed to the run folder at once, so that whatever
ends the run, what was computed is kept. A run that meets a number that is not finite stops and says where and when.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.closed_loop import Loop, System
from servoctl.errors import PlantError, RunFolderError, ServoctlError
from servoctl.integrate import Chunk, Integrator, integrate
from servoctl.mechanics import plant_values
from servoctl.mechanics.drawing import drawing as draw
from servoctl.run_folder import RunFolder
from servoctl.trajectory import SETTLING_BAND, Trajectory
from servoctl.types import Array, State, Status

EVENTS = 1000
"""Events kept of one run; what comes after is counted only."""

PLACE = 12
"""Coordinates and velocities that an error shows."""

RUNAWAY = 1e6
"""A state beyond this has run away, whatever its unit."""


@dataclass(frozen=True)
class Settings:
    """How to run.

    Attributes:
        duration: [s].
        integrator: How to step.
        period: Of a sampled law [s]; None: the law acts continuously.
        output_step: Spacing of the rows of a continuous run [s]; None: every step.
        seed: Of every random number of the run.
        settling_band: A violation has settled once it stays within this [units of the row].
    """

    duration: float
    integrator: Integrator = field(default_factory=Integrator)
    period: float | None = None
    output_step: float | None = None
    seed: int = 0
    settling_band: float = SETTLING_BAND


class Columns:
    """Names and units of what a run writes, and the columns of a chunk."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        model = loop.system.model
        self._coordinates, self._actuators = dict(model.plant.coordinates), dict(model.plant.actuators)
        self._has_law = loop.system.law is not None

    def units(self) -> dict[str, str]:
        """Column -> unit, where the plant says."""
        units = {"t": "s"}
        for name, unit in self._coordinates.items():
            units |= {f"q.{name}": unit, f"v.{name}": f"{unit}/s" if unit else "1/s"}
            force = {"m": "N", "rad": "N m"}.get(unit, f"J/({unit})" if unit else "")
            units |= {f"passive_force.{name}": force, f"servo_force.{name}": force}
        return units | {f"u.{name}": unit for name, unit in self._actuators.items()}

    def of(self, chunk: Chunk) -> dict[str, Array]:
        """The columns of a chunk, in the order of the run folder."""
        model, slices = self._loop.system.model, self._loop.layout.slices
        n, x = model.n, chunk.x
        names = {
            "u": list(self._actuators),
            "violation": [row.name for row in model.task_rows],
            "violation_rate": [row.name for row in model.task_rows],
            "passive": [row.name for row in model.passive_rows],
            "passive_force": list(self._coordinates) if model.passive_rows else [],
            "servo_force": list(self._coordinates) if self._actuators else [],
        }
        columns = {"t": chunk.t}
        columns |= {f"q.{name}": x[:, i] for i, name in enumerate(self._coordinates)}
        columns |= {f"v.{name}": x[:, n + i] for i, name in enumerate(self._coordinates)}
        for group, members in names.items():
            block = chunk.rows[:, slices[group]]
            columns |= {f"{group}.{name}": block[:, i] for i, name in enumerate(members)}
        if model.passive_rows:
            columns["passive_rank"] = chunk.rows[:, slices["passive_rank"].start].astype(np.int64)
        columns |= {f"memory.{name}": x[:, 2 * n + i] for i, name in enumerate(self._loop.memory_names)}
        single = {name: chunk.rows[:, slices[name].start] for name in ("rank", "residual", "pivot_min", "status")}
        single["status"] = single["status"].astype(np.int64)
        if not self._has_law:
            return columns | {"status": single["status"]}
        single["rank"] = single["rank"].astype(np.int64)
        return columns | single


def simulate_loop(
    loop: Loop,
    start: State,
    settings: Settings,
    said: dict[str, Any] | None = None,
    out: Path | None = None,
    config_text: str = "",
    progress: Callable[[float], None] | None = None,
    drawing: bool = True,
) -> Trajectory:
    """Runs a closed loop and records it.

    Args:
        loop: The closed loop.
        start: Initial state.
        settings: How to run.
        said: What the run says of itself beside what is found here.
        out: Run folder to write; None: in memory only.
        config_text: For `config.yaml` in the run folder.
        progress: Called now and then with the fraction that is done, 0 to 1.
        drawing: Whether the trajectory carries the plant's polylines.

    Returns:
        The trajectory, with `metadata["status"]`: `done`, or `stopped` with the reason in `metadata["error"]`.

    Raises:
        KeyboardInterrupt: After the files are written.
        RunFolderError: The folder cannot be written.
    """
    columns = Columns(loop)
    model = loop.system.model
    tasks: dict[str, list[str]] = {}
    for row in model.task_rows:
        tasks.setdefault(row.group, []).append(row.name)
    said = {**(said or {}), "engine": loop.engine, "tasks": tasks, "settling_band": settings.settling_band}
    if out is None:
        recorded, facts = _run(loop, start, settings, columns, progress, lambda _: None)
        if facts["status"] == "interrupted":
            raise KeyboardInterrupt
        trajectory = Trajectory(recorded, columns.units(), said | facts)
        found, drawn = _afterwards(loop, trajectory, drawing)
        return Trajectory(recorded, columns.units(), said | found | facts, drawn)
    with RunFolder.create(out, config_text, said, columns.units()) as folder:
        recorded, facts = _run(loop, start, settings, columns, progress, folder.append)
        trajectory = Trajectory(recorded, columns.units(), said | facts)
        found, drawn = _afterwards(loop, trajectory)
        closed = folder.close(said | found | facts, drawn)
    if facts["status"] == "interrupted":
        raise KeyboardInterrupt
    return closed


def _run(
    loop: Loop,
    start: State,
    settings: Settings,
    columns: Columns,
    progress: Callable[[float], None] | None,
    record: Callable[[dict[str, Array]], None],
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The columns of the whole run, and what became of it."""
    chunks: list[dict[str, Array]] = []
    interrupted = False
    at: tuple[float, Array] | None = None
    began, evaluations, reached, stopped = time.perf_counter(), loop.evaluations, start.t, None
    x, s = loop.vector(start), settings
    try:
        for chunk in integrate(loop, x, start.t, s.duration, s.integrator, s.period, s.output_step, s.seed):
            chunks.append(columns.of(chunk))
            record(chunks[-1])
            reached, stopped, at = float(chunk.t[-1]) if len(chunk.t) else reached, chunk.stopped, chunk.at
            if progress is not None:
                progress((reached - start.t) / settings.duration)
    except RunFolderError:
        raise
    except ServoctlError as error:
        stopped = str(error)
    except KeyboardInterrupt:
        interrupted = True
    joined = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]} if chunks else {}
    wall = time.perf_counter() - began
    facts: dict[str, Any] = {
        "status": "interrupted" if interrupted else "done" if stopped is None else "stopped",
        "duration": reached - start.t,
        "steps": max(0, len(joined.get("t", ())) - 1),
        "evaluations": loop.evaluations - evaluations,
        "wall_time": wall,
        "realtime_factor": (reached - start.t) / wall,
    }
    if stopped is not None:
        facts["error"] = f"{stopped}{_blame(loop, joined, at)}"
    return joined, facts


def _blame(loop: Loop, columns: dict[str, Array], at: tuple[float, Array] | None) -> str:
    """Which term is not finite, and where the plant was; nothing where the run stopped for another reason."""
    if at is not None:
        state = loop.split(*at)[0]
    elif columns and int(columns["status"][-1]) in (Status.NON_FINITE.code, Status.NOT_POSITIVE.code):
        last = Trajectory(columns)
        state = State(float(last.t[-1]), last.q[-1], last.v[-1])
    else:
        return ""
    plant, size = loop.system.model.plant, float(np.abs(np.concatenate([state.q, state.v])).max(initial=0.0))
    values = {**dict(zip(plant.coordinates, state.q, strict=True))}
    values |= {f"der({name})": rate for name, rate in zip(plant.coordinates, state.v, strict=True)}
    place = ", ".join(f"{name} = {value:.6g}" for name, value in list(values.items())[:PLACE])
    more = f" and {len(values) - PLACE} more" if len(values) > PLACE else ""
    hint = " (it ran away: reduce the step, the period or the gains)" if size > RUNAWAY else ""
    return f": {_bad_terms(loop, state)} at t = {state.t:.6g} s, {place}{more}{hint}"


def _bad_terms(loop: Loop, state: State) -> str:
    """The terms of motion that no acceleration comes from."""
    try:
        m = loop.system.model.matrices(state)
    except PlantError as error:
        return str(error)
    terms = {
        "mass_matrix": m.M, "force": m.Q, "actuation": m.B, "nonideal_force": m.c,
        "passive constraints": np.append(m.passive.A.ravel(), m.passive.b),
        "task": np.append(m.task.A.ravel(), m.task.b),
    }  # fmt: skip
    bad = [name for name, value in terms.items() if not np.isfinite(value).all()]
    if bad:
        return f"{', '.join(bad)} not finite"
    smallest = float(np.linalg.eigvalsh((m.M + m.M.T) / 2)[0])
    return f"smallest eigenvalue of mass_matrix {smallest:.3g}" if smallest <= 0.0 else "the command not finite"


def _afterwards(loop: Loop, trajectory: Trajectory, drawing: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
    """Events, the drift of the energy where nothing from outside acts, and the drawing.

    What the plant fails to give is left out, and said: the run has ended as it has.
    """
    facts: dict[str, Any] = {"events": _events(loop, trajectory)}
    drawn: dict[str, Array] = {}
    left_out = []
    try:
        facts |= _energy_drift(loop.system, trajectory)
    except PlantError as error:
        left_out.append(f"energy drift: {error}")
    try:
        drawn = draw(loop.system.model, trajectory.t, trajectory.q, trajectory.v) if drawing else {}
    except PlantError as error:
        left_out.append(f"drawing: {error}")
    return facts | ({"left_out": left_out} if left_out else {}), drawn


def _energy_drift(system: System, trajectory: Trajectory) -> dict[str, float]:
    if system.law is not None or system.inputs:
        return {}
    states = map(State, trajectory.t.tolist(), trajectory.q, trajectory.v)
    energies = plant_values.energies(system.model.plant, states)
    return {} if energies is None else {"energy_drift": float(np.max(np.abs(energies - energies[0])))}


def _events(loop: Loop, trajectory: Trajectory) -> list[dict[str, Any]]:
    """Changes of rank and of status, each with its time; a start that is not OK is one. Saturation names its inputs."""
    events: list[dict[str, Any]] = []
    law = loop.system.law
    for column in ("rank", "passive_rank", "status"):
        values = trajectory.columns.get(column)
        if values is None:
            continue
        first = values[:1] if column != "status" else np.zeros(1, dtype=int)
        for i in np.flatnonzero(np.diff(np.concatenate([first, values]))):
            before, after = (first[0] if i == 0 else values[i - 1]), values[i]
            pair: list[Any] = [int(before), int(after)]
            if column == "status":
                pair = [Status.from_code(before).name, Status.from_code(after).name]
            event = {"t": float(trajectory.t[i]), "event": column, "from": pair[0], "to": pair[1]}
            if law is not None and pair[1] == Status.SATURATED.name:
                event["at_limit"] = [trajectory.actuators[j] for j in law.at_limit(trajectory.u[i])]
                event["given_up"] = float(trajectory["residual"][i])
            events.append(event)
    events.sort(key=lambda event: float(event["t"]))
    if len(events) > EVENTS:
        more = len(events) - EVENTS
        events = [*events[:EVENTS], {"t": events[EVENTS]["t"], "event": "more", "count": more}]
    return events
