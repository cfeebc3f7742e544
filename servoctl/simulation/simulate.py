"""A simulated run: from a closed loop and a start to a trajectory, recorded while it runs.

Design: rows come in chunks. Each chunk becomes named columns and goes to the run folder at once, so that rows are kept
however the run ends. A run stops at a number that is not finite and reports where and when.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from servoctl.engine.structured import asymmetry, smallest_eigenvalue
from servoctl.errors import PlantError, RunFolderError, ServoctlError, listed
from servoctl.expression import per_second
from servoctl.mechanics.constraint_rows import accelerations
from servoctl.run_folder import RunFolder
from servoctl.run_folder.trajectory import Trajectory, events_of
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.estimated import estimate_unit, shown_parts
from servoctl.simulation.integrate import integrate
from servoctl.simulation.monitor import MotionMonitor
from servoctl.simulation.rows import Chunk
from servoctl.simulation.settings import Settings
from servoctl.types import Array, State, Status

EVENTS = 1000  # largest number of events that are kept of one run; later ones are only counted
SHOWN = 12  # largest number of coordinates and velocities in an error

Ending: TypeAlias = Callable[[Trajectory, dict[str, Any], State | None], dict[str, Any]]
"""(trajectory, facts, state at which a number was not finite) -> changes of `status` and `error`."""


class Columns:
    """Names, units and values of the columns that a run writes."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._coordinates = dict(loop.system.model.plant.coordinates)

    def units(self) -> dict[str, str]:
        """Column -> unit; columns without a unit are left out."""
        units = {"t": "s"}
        for name, unit in self._coordinates.items():
            units |= {f"q.{name}": unit, f"v.{name}": per_second(unit or "-")}
            force = {"m": "N", "rad": "N m"}.get(unit, f"J/({unit})" if unit else "")
            units |= {f"passive_force.{name}": force, f"servo_force.{name}": force}
            for part in shown_parts(self._loop.system.estimator):
                units[f"{part}.{name}"] = estimate_unit(part, unit)
        model = self._loop.system.model
        units |= {f"u.{name}": unit for name, unit in model.plant.actuators.items()}
        passive, task, bounds = model.row_units
        units |= {f"passive.{name}": unit for name, unit in passive.items()}
        units |= {f"violation.{name}": unit for name, unit in task.items()}
        units |= {f"violation_rate.{name}": per_second(unit) for name, unit in task.items()}
        asked, law = accelerations(model.task_rows, task), self._loop.system.law
        for name, unit in asked.items():
            units |= {f"given_up.{name}": unit, f"disturbance.{name}": unit}
        optional = range(len(model.task_rows)) if law is None else law.low_priority_rows
        required = [asked.get(row.name, "") for i, row in enumerate(model.task_rows) if i not in optional]
        if required and all(required):
            units["residual"] = ", ".join(dict.fromkeys(required))
        lack, by_bound = accelerations(model.bound_rows, bounds), self._loop.system.by_bound
        units |= {f"bound_lack.{name}": unit for name, unit in by_bound(lack).items()}
        return units | {f"bound.{name}": unit for name, unit in by_bound(bounds).items()}

    def of(self, chunk: Chunk) -> dict[str, Array]:
        """Columns of a chunk, in the order of the run folder."""
        model, slices = self._loop.system.model, self._loop.layout.slices
        n, x = model.n, chunk.x
        groups = ["u", "bound", "bound_active", "bound_lack", "given_up", "search", "disturbance"]
        groups += [*shown_parts(self._loop.system.estimator), "violation", "violation_rate", "passive"]
        groups += ["passive_force"] * bool(model.passive_rows) + ["servo_force"] * bool(model.plant.actuators)
        columns = {"t": chunk.t}
        columns |= {f"q.{name}": x[:, i] for i, name in enumerate(self._coordinates)}
        columns |= {f"v.{name}": x[:, n + i] for i, name in enumerate(self._coordinates)}
        for group in groups:
            block = chunk.rows[:, slices[group]]
            columns |= {f"{group}.{name}": block[:, i] for i, name in enumerate(self._loop.layout.names[group])}
        if model.passive_rows:
            columns["passive_rank"] = chunk.rows[:, slices["passive_rank"].start].astype(np.int64)
        columns |= {f"memory.{name}": x[:, 2 * n + i] for i, name in enumerate(self._loop.memory_names)}
        single = {name: chunk.rows[:, slices[name].start] for name in ("rank", "residual", "pivot_min", "status")}
        single["status"] = single["status"].astype(np.int64)
        if self._loop.system.law is None:
            return columns | {"status": single["status"]}
        single["rank"] = single["rank"].astype(np.int64)
        return columns | single


def simulate_loop(
    loop: Loop,
    start: State,
    settings: Settings,
    metadata: dict[str, Any] | None = None,
    out: Path | None = None,
    config_text: str = "",
    progress: Callable[[float], None] | None = None,
    drawing: bool = True,
    ending: Ending | None = None,
) -> Trajectory:
    """Runs a closed loop and records it.

    Args:
        metadata: Further metadata of the run.
        out: Run folder to write; None: in memory only.
        config_text: Content of `config.yaml` in the run folder.
        progress: Called with the fraction that is done, 0 to 1, after each chunk.
        drawing: Whether the trajectory carries the plant's polylines.
        ending: Evaluates the run after its end and may change its status; None: nothing does.

    Returns:
        The trajectory, with `metadata["status"]`: `done`, `stopped`, or what `ending` says, the reason in
        `metadata["error"]`.

    Raises:
        KeyboardInterrupt: After the files are written.
        RunFolderError: The folder cannot be written.
    """
    columns, monitor = Columns(loop), MotionMonitor(loop, start, settings)
    units, metadata = columns.units(), {**(metadata or {}), **loop.facts, "settling_band": settings.settling_band}
    with nullcontext() if out is None else RunFolder(out, config_text, metadata, units) as folder:
        recorded, facts, last = _run(loop, start, settings, columns, monitor, progress, folder)
        interrupted = facts["status"] == "interrupted"
        if interrupted and folder is None:
            raise KeyboardInterrupt
        trajectory = Trajectory(recorded, units, metadata | facts)
        facts |= {} if ending is None else ending(trajectory, facts, last)
        results, drawn = _afterwards(loop, trajectory, monitor, drawing)
        whole = replace(trajectory, metadata=metadata | results | facts, drawing=drawn)
        closed = whole if folder is None else folder.close(whole.metadata, drawn)
    if interrupted:
        raise KeyboardInterrupt
    return closed


def _run(
    loop: Loop,
    start: State,
    settings: Settings,
    columns: Columns,
    monitor: MotionMonitor,
    progress: Callable[[float], None] | None,
    folder: RunFolder | None,
) -> tuple[dict[str, Array], dict[str, Any], State | None]:
    """Columns of the whole run, its facts, and the state at which a number was not finite."""
    chunks: list[dict[str, Array]] = []
    interrupted = False
    at: tuple[float, Array] | None = None
    began, evaluations, reached, stopped = time.perf_counter(), loop.evaluations, start.t, None
    switch: dict[str, Any] = {}
    x, wrong = loop.vector(start), None
    try:
        for chunk in integrate(loop, x, start.t, settings):
            rows, stopped, at = columns.of(chunk), chunk.stopped, chunk.at
            wrong = monitor.look(rows)
            if wrong is not None:
                rows, stopped, at = {name: values[: wrong[0] + 1] for name, values in rows.items()}, None, None
            chunks.append(rows)
            if folder is not None:
                folder.append(rows)
            reached = float(rows["t"][-1]) if len(rows["t"]) else reached
            if wrong is not None:
                break
            if progress is not None:
                progress((reached - start.t) / settings.duration)
    except RunFolderError:
        raise
    except ServoctlError as error:
        stopped = str(error)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        switch = loop.end_compilation(finish=not interrupted)
    joined = {name: np.concatenate([chunk.pop(name) for chunk in chunks]) for name in list(chunks[0])} if chunks else {}
    wall = time.perf_counter() - began
    facts: dict[str, Any] = {
        "status": "interrupted" if interrupted else "done" if stopped is None and wrong is None else "stopped",
        "duration": reached - start.t,
        "steps": max(0, len(joined.get("t", ())) - 1),
        "evaluations": loop.evaluations - evaluations,
        "wall_time": wall,
        "realtime_factor": (reached - start.t) / wall,
        "engine": loop.engine,
    } | switch
    last = None if stopped is None else _bad_state(loop, joined, at)
    if wrong is not None:
        facts["error"] = wrong[1]
    elif stopped is not None:
        facts["error"] = stopped if last is None else f"{stopped}{_blame(loop, last)}"
    return joined, facts, last


def _bad_state(loop: Loop, columns: dict[str, Array], at: tuple[float, Array] | None) -> State | None:
    """State at which a term was not finite; None if the run stopped for another reason."""
    if at is not None:
        return loop.split(*at)[0]
    codes = columns.get("status", np.zeros(0))
    if len(codes) and int(codes[-1]) in (Status.NON_FINITE.code, Status.NOT_POSITIVE.code):
        last = Trajectory(columns)
        return State(float(last.t[-1]), last.q[-1], last.v[-1])
    return None


def _blame(loop: Loop, state: State) -> str:
    """Message: which term is not finite, and at which time and state."""
    plant = loop.system.model.plant
    values = {**dict(zip(plant.coordinates, state.q, strict=True))}
    values |= {f"der({name})": rate for name, rate in zip(plant.coordinates, state.v, strict=True)}
    words = listed((f"{name} = {value:.6g}" for name, value in values.items()), SHOWN)
    return f": {_bad_terms(loop, state)} at t = {state.t:.6g} s, {words}"


def _bad_terms(loop: Loop, state: State) -> str:
    """Names of the terms of motion that make the acceleration impossible."""
    beyond = loop.system.beyond(state.t)
    if beyond:
        return "; ".join(beyond)
    try:
        m = loop.system.model.matrices(state)
    except PlantError as error:
        return str(error)
    terms = {
        "mass_matrix": m.M, "force": m.Q, "actuation": m.B, "nonideal_force": m.c,
        "mechanism constraints": np.append(m.passive.A.ravel(), m.passive.b),
        "task": np.append(m.task.A.ravel(), m.task.b),
    }  # fmt: skip
    bad = [name for name, value in terms.items() if not np.isfinite(value).all()]
    if bad == ["task"] and (known := loop.system.model.singularities(m.task)):
        return "; ".join(f"{task}: {sentence}" for task, sentence in known.items())
    if bad:
        return f"{', '.join(bad)} not finite"
    pair = asymmetry(m.M)
    if pair is not None:
        i, j = pair
        return f"mass_matrix not symmetric: [{i}, {j}] is {m.M[i, j]:.6g} and [{j}, {i}] is {m.M[j, i]:.6g}"
    smallest = smallest_eigenvalue(m.M)
    return f"smallest eigenvalue of mass_matrix {smallest:.3g}" if smallest <= 0.0 else "the command not finite"


def _afterwards(
    loop: Loop, trajectory: Trajectory, monitor: MotionMonitor, drawing: bool
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Events, drift of the energy, and the drawing.

    If a method of the plant fails, its part is left out, and `left_out` says why; the run itself is not affected.
    """
    facts: dict[str, Any] = {"events": _events(loop, trajectory)}
    from servoctl.report.drawing import drawing as draw  # after the run, whose start does not wait for it

    drawn: dict[str, Array] = {}
    left_out = []
    if monitor.failed is not None:
        left_out.append(f"energy drift: {monitor.failed}")
    elif monitor.energies:
        facts["energy_drift"] = float(np.max(np.abs(np.array(monitor.energies) - monitor.energies[0])))
    try:
        drawn = draw(loop.system.model, trajectory.t, trajectory.q, trajectory.v) if drawing else {}
    except PlantError as error:
        left_out.append(f"drawing: {error}")
    return facts | ({"left_out": left_out} if left_out else {}), drawn


NEAR = 1e-6  # distance to a limit, relative to it, at which an input counts as clipped: a lag reaches it only in time


def _clipped(loop: Loop, trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """Inputs that the machine clipped at limits that the law does not have."""
    realism, law, u = loop.system.realism, loop.system.law, trajectory.u
    if realism is None or law is None:
        return
    lower, upper = np.array(realism.timing.lower), np.array(realism.timing.upper)
    low, high = u <= lower * (1.0 + NEAR * np.sign(lower)), u >= upper * (1.0 - NEAR * np.sign(upper))
    low[:, law.at_limit(lower)] = high[:, law.at_limit(upper)] = False
    for name, clipped in zip(trajectory.actuators, (low | high).T, strict=True):
        if clipped.any():
            rows = f"{clipped.sum()} of {len(u)} rows"
            text = f"{name} is at realism.saturation in {rows}: the law does not know this limit"
            yield {"t": float(trajectory.t[np.argmax(clipped)]), "event": "clipped", "input": name, "text": text}


def _events(loop: Loop, trajectory: Trajectory) -> list[dict[str, Any]]:
    """Changes of rank and of status, clipped inputs, bounds and funnels, each with its time.

    A saturation has the names of its inputs.

    A first status that is not OK counts as a change.
    """
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
    events += [*_clipped(loop, trajectory), *events_of(trajectory)]
    events.sort(key=lambda event: float(event["t"]))
    if len(events) > EVENTS:
        more = len(events) - EVENTS
        events = [*events[:EVENTS], {"t": events[EVENTS]["t"], "event": "more", "count": more}]
    return events
