"""Whether a run's law, evaluated again on the logged states, gives the same inputs.

Design: the law is a pure function of time, state and memory, and a row holds all three. On the engine of the run the
result is equal to the bit; on another engine it is equal to rounding, so a tolerance applies, and the result states it.

A torque is known three times: from the law, after the limits, and in the frame. In stage `full` the second equals the
first, or the value that a limit gives. In every working stage the frame is the second, as the drive's codec encodes it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hil.assembly.live_gains import LiveGains
from hil.assembly.settings import HilSettings, hil_settings
from hil.drives import Drive
from hil.drives.base import Node, Sample
from hil.loop import SECOND
from hil.recorder import read_frames
from hil.rig.logbook import LIVE
from hil.safety.plan import WORKING, Phase
from servoctl.assembly.make import make_run
from servoctl.config import load_config
from servoctl.config.load import LoadedConfig
from servoctl.errors import ConfigError, RunFolderError
from servoctl.run_folder import load_run
from servoctl.run_folder.metrics import plain
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import take_engine
from servoctl.simulation.settings import Integrator
from servoctl.types import Array

_WORKING = [phase.number for phase in WORKING]


@dataclass(frozen=True)
class Sent:
    torques: int  # number of torques of stage `full` that were compared with the law's
    other_torques: int  # number of those that neither the law nor a limit explains
    frames: int  # number of torque frames that were compared with the logged torques
    other_frames: int  # number of those that hold another torque
    first: str  # the first difference; empty: no difference


def compare_sent(
    run: Trajectory,
    folder: str | PathLike[str],  # its folder, with `can.blf`
    drives: Sequence[Drive],  # fresh drives as the config makes them
    buses: Sequence[str],  # names of the buses, in the order of their numbers
) -> Sent:
    """Compares the law's torques, the torques sent, and the frames."""
    period = float(run.metadata.get("timing", {}).get("nominal_period_s", 0.0)) or float(np.min(run["elapsed"]))
    torques = other_torques = 0
    first: list[tuple[int, str]] = []
    for drive in drives:
        compared, wrong = _compare_torques(run, drive, period)
        torques, other_torques = torques + int(compared.sum()), other_torques + int(wrong.sum())
        name = drive.settings.name
        first += [
            (
                k,
                f"{name} was sent {run[f'u.{name}'][k]:.9g}, the law gave {run[f'law.{name}'][k]:.9g}, "
                "and no limit explains the difference",
            )
            for k in np.flatnonzero(wrong)[:1].tolist()
        ]
    frames, differing = _compare_frames(run, folder, drives, buses)
    first += differing[:1]
    k, text = min(first, default=(0, ""))
    return Sent(torques, other_torques, frames, len(differing), text and f"row {k}, t = {run.t[k]:.6g} s: {text}")


def _compare_torques(run: Trajectory, drive: Drive, period: float) -> tuple[Array, Array]:
    """Which rows are compared, and which of their torques neither the law nor a limit explains, shape (rows,) each."""
    settings = drive.settings
    law, sent = (run[f"{group}.{settings.name}"] for group in ("law", "u"))
    full = run["stage"] == Phase.FULL.number
    compared = full.copy()
    compared[:1] = False
    before = np.concatenate([[0.0], sent[:-1]])
    # the stages before send steps of the wire with the mean of what the limits let through, up to two steps from it
    slack = np.where(np.concatenate([[False], full[:-1]]), 0.0, 2.0 * np.nan_to_num(drive.quantum()[2]))
    limit = settings.torque_limit
    wanted = np.clip(law, -limit, limit)
    # the previous torque was held for a period, or for less after a late tick
    now = run.t + run["read"]
    held = np.minimum(np.diff(now, prepend=now[0] - period), period)
    shortest = held if run.metadata.get("lockstep") else held / 2
    most = settings.torque_rate_limit * period * (1 + 1e-9) + slack
    limited = np.abs(wanted - before) >= settings.torque_rate_limit * shortest * (1 - 1e-9) - slack
    towards = ((sent - before) * (wanted - before) >= 0) | (np.abs(sent - before) <= slack)
    stepped = limited & (np.abs(sent - before) <= most) & towards
    explained = (sent == wanted) | (stepped & (np.abs(sent) <= limit))
    return compared, compared & ~explained


def _compare_frames(
    run: Trajectory, folder: str | PathLike[str], drives: Sequence[Drive], buses: Sequence[str]
) -> tuple[int, list[tuple[int, str]]]:
    """Number of compared torque frames; row and explanation of each frame that differs from its row."""
    for fresh in drives:
        fresh.take_as_enabled()
    sender = {
        (buses.index(drive.settings.bus), drive.command_bits, drive.command(0.0).id & drive.command_bits): drive
        for drive in drives
    }
    masks = sorted({drive.command_bits for drive in drives})
    torques = {drive.settings.name: run[f"u.{drive.settings.name}"] for drive in drives}
    began, decided = np.round(run.t * SECOND), np.round((run.t + run["read"]) * SECOND)
    stage = run["stage"]
    working = np.isin(stage, _WORKING)
    working[1:] &= working[:-1]  # in the first such tick the drives may not be enabled yet
    compared, differing = 0, []
    for bus, sent, frame, time in read_frames(folder):
        senders = (sender.get((bus, mask, frame.id & mask)) for mask in masks if sent)
        drive = next((each for each in senders if each is not None), None)
        in_frame = None if drive is None else drive.torque_bytes(frame)
        k = int(np.searchsorted(decided, time, "right")) - 1
        if drive is None or in_frame is None or k < 1 or not working[k] or (k + 1 < len(run) and time >= began[k + 1]):
            continue
        compared += 1
        torque = float(torques[drive.settings.name][k])
        try:
            same = in_frame == drive.torque_bytes(drive.command(torque))
        except ValueError:  # the logged torque is not finite, or above the limit
            same = False
        if not same:
            differing.append((k, f"{drive.settings.name} was sent {torque:.9g}, frame {frame} holds another torque"))
    return compared, differing


OTHER_ENGINE = 1e-9  # tolerance on another engine than the run's, relative to the largest |u| of each actuator

CONFIG, FRAMES = "config.yaml", "can.blf"


@dataclass(frozen=True)
class Difference:
    row: int  # row, counted from 0
    t: float  # [s] time of the row
    actuator: str  # name of the actuator
    logged: float  # [actuator unit] value in the run
    recomputed: float  # [actuator unit] value that the law gives now


@dataclass(frozen=True)
class Replay:
    rows: int  # number of compared rows
    skipped: int  # number of rows of a run on drives in which the law was not evaluated
    differing: int  # number of rows in which an input differs by more than the tolerance
    largest: dict[str, float]  # actuator -> largest difference [its unit]; NaN if only one of the two values is NaN
    units: dict[str, str]  # actuator -> unit
    first: Difference | None  # first difference beyond the tolerance; None: no difference
    engine: str  # engine of the recomputation
    logged_engine: str  # engine of the run, or `vm, then c` where it changed during the run
    tolerance: float  # relative to the largest |u| of each actuator; 0: to the bit
    samples: int = 0  # number of drive positions decoded again from `can.blf`; 0 if the folder has no such file
    other_samples: int = 0  # number of those that differ from the logged positions
    sent: Sent | None = None  # comparison of torques and frames sent; None if the run was not on drives
    missing: int = 0  # number of frames that the run recorded and `can.blf` does not hold: the file was cut or deleted

    @property
    def agrees(self) -> bool:
        """Whether everything that was compared is equal."""
        sent = self.sent
        wrong = 0 if sent is None else sent.other_torques + sent.other_frames
        return not (self.differing or self.other_samples or wrong)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values."""
        return dict(plain(dataclasses.asdict(self)))


def replay(
    folder: str | PathLike[str],  # run folder
    # folder of the Python files that its config names, such as `cart.py:Cart`; None: where they were
    classes: str | PathLike[str] | None = None,
    # relative to the largest |u| of each actuator; None: 0 on the run's engine, else `OTHER_ENGINE`
    tolerance: float | None = None,
    progress: Callable[[float], None] | None = None,  # called now and then with the share that is done, 0 to 1
) -> Replay:
    """Recomputes the law's inputs from the states in a run folder, and compares.

    Raises ConfigError if the folder's config is wrong, or has no law. RunFolderError if the folder cannot be read, or
    holds no config or no rows. ColumnError if the rows do not belong to the config.
    """
    folder = Path(folder)
    run = load_run(folder)
    if not len(run):
        raise RunFolderError(f"{folder}: contains no rows (nothing can be recomputed)")
    config = folder / CONFIG
    if not config.is_file() or not config.stat().st_size:
        raise RunFolderError(f"{config}: is missing or empty (only runs of a config can be replayed)")
    loaded = load_config(config).of_folder(None if classes is None else Path(classes))
    if loaded.config.realism is not None and loaded.config.hil is not None and "read" in run.columns:
        loaded = loaded.overridden(["realism="])  # drives log what the law put out, whatever moves behind them
    if loaded.config.realism is not None:
        raise ConfigError(
            f"{loaded.where('realism')}: the logged u is the input after delay and actuators; the run did not log the "
            "output of the law (run it again: the same seed gives the same run)"
        )
    best: Replay | None = None
    for loop, sampled in _loops(loaded, run):
        result = _compared(run, loop, sampled, _gains(loaded, run, loop), tolerance, progress)
        if best is None or result.differing < best.differing:
            best = result
        if not best.differing:
            break
    assert best is not None
    if loaded.config.hil is None or "read" not in run.columns:
        return best
    best = dataclasses.replace(best, missing=_missing_frames(run, folder))
    if not (folder / FRAMES).is_file():
        return best
    settings = hil_settings(loaded, make_run(loaded, "numpy", strict=False, waiting=True).system.model.plant)
    samples, other = _same_samples(settings, run, folder, best.missing > 0)
    drives, _ = settings.build()
    sent = compare_sent(run, folder, drives, list(settings.buses))
    return dataclasses.replace(best, samples=samples, other_samples=other, sent=sent)


def _missing_frames(run: Trajectory, folder: Path) -> int:
    """Number of recorded frames that are not in the file; 0 if the run did not tell how many there were."""
    recorded = (run.metadata.get("recorder") or {}).get("frames", 0)
    there = sum(1 for _ in read_frames(folder)) if recorded and (folder / FRAMES).is_file() else 0
    return max(0, int(recorded) - there)


def _same_samples(settings: HilSettings, run: Trajectory, folder: Path, cut: bool) -> tuple[int, int]:
    """Number of logged positions that can be compared, and how many of them differ; `cut`: frames are missing."""
    drives, _ = settings.build()
    nodes = [[drive for drive in drives if drive.settings.bus == bus] for bus in settings.buses]
    decoded_samples: dict[str, list[Sample]] = {drive.settings.name: [] for drive in drives}
    for node, sample in decoded(folder, nodes):
        decoded_samples[node.settings.name].append(sample)
    compared = other = 0
    begins, ends = (np.round(at * SECOND) for at in (run.t, run.t + run["read"]))
    last = np.inf
    if cut or run.metadata.get("status") == "running":  # or the recorder died: the frames may end before the rows
        last = max((samples[-1].time for samples in decoded_samples.values() if samples), default=0)
    for name, samples in decoded_samples.items():
        logged = run[f"position.{name}"]
        begun, newest = (np.searchsorted([sample.time for sample in samples], at, "right") - 1 for at in (begins, ends))
        positions = np.array([sample.position for sample in samples] + 2 * [np.nan])
        same = positions[newest] == logged
        if not run.metadata.get("lockstep"):  # frames may have arrived after the rig had read, before it said so
            oldest = np.minimum(begun, newest - 1)
            for earlier in range(1, int((newest - oldest).max(initial=0)) + 1):
                same |= positions[np.maximum(newest - earlier, oldest)] == logged
        known = ~np.isnan(logged) & (ends <= last)
        compared += int(known.sum())
        other += int((known & ~same).sum())
    return compared, other


def _loops(loaded: LoadedConfig, run: Trajectory) -> Iterator[tuple[Loop, bool]]:
    """The law on the engine of the run, or on another one if that is not available; and whether it held its inputs.

    Engine `numpy` has two forms: with the plant as written, and with a compiled plant. A run does not record which.
    """
    logged, on_drives = run.metadata.get("engine"), "task_time" in run.columns
    for engine in {"numpy": ("auto", "numpy"), "vm": ("vm",)}.get(str(logged), ("auto",)):
        made = make_run(loaded, engine, strict=False, waiting=on_drives)
        if made.system.law is None:
            raise ConfigError(f"{loaded.where('law')}: the run has no law (u came from the config)")
        if logged == "numpy" and made.loop.engine != "numpy":
            continue
        settings = made.settings
        if on_drives:  # a tick evaluates only the law, with any settings of `run`
            settings = dataclasses.replace(settings, period=settings.period or 1.0, integrator=Integrator("dop853"))
        if logged == "c":
            take_engine(made.loop, made.start, settings, "c")
        yield made.loop, settings.period is not None


def _gains(loaded: LoadedConfig, run: Trajectory, loop: Loop) -> LiveGains | None:
    """The gains that may have changed during the run; None: no gain could.

    Raises RunFolderError if the logged gains are not those of the config.
    """
    logged = list(run.group(LIVE))
    if not logged:
        return None
    allowed = [] if loaded.config.hil is None else list(loaded.config.hil.live)
    if logged != allowed:
        raise RunFolderError(
            f"{LIVE}: the run changed {', '.join(logged)}, but its config allows only {', '.join(allowed) or 'none'} "
            "(a replay needs the config.yaml of the run)"
        )
    return LiveGains(loaded, loop.system.model, loop.system.law)


def _compared(
    run: Trajectory,
    loop: Loop,
    sampled: bool,  # whether the run held its inputs over a period
    live: LiveGains | None,  # gains that may have changed; None: no gain could
    tolerance: float | None,
    progress: Callable[[float], None] | None,
) -> Replay:
    """Evaluates the law as the run did."""
    plant, engine, logged_engine = loop.system.model.plant, loop.engine, str(run.metadata.get("engine"))
    if "to" in run.metadata.get("engine_switch", {}):  # its rows come from two engines
        logged_engine = f"vm, then {logged_engine}"
    actuators = list(plant.actuators)
    group = "law" if run.group("law") else "u"
    logged = np.column_stack([run[f"{group}.{name}"] for name in actuators])
    names = [f"{kind}.{name}" for kind in ("q", "v") for name in plant.coordinates]
    states = np.column_stack([run[name] for name in names + [f"memory.{name}" for name in loop.memory_names]])
    gains = np.column_stack([np.empty((len(run), 0)), *run.group(LIVE).values()])
    times = run.columns.get("task_time", run.t)
    evaluated = ~np.isnan(logged).all(axis=1) if group == "law" else np.ones(len(run), dtype=bool)
    if not evaluated.any():
        raise RunFolderError("law: no row has a u of the law (nothing can be compared)")
    recomputed, rows = np.full_like(logged, np.nan), np.flatnonzero(evaluated)
    end = len(run) - 1 if run.metadata.get("status") == "done" and "task_time" not in run.columns else None
    with np.errstate(all="ignore"):
        for count, k in enumerate(rows.tolist()):
            if live is not None and (values := tuple(gains[k].tolist())) != live.values:
                live.force(values, loop.take_law)
            t, held = float(times[k]), sampled and k != end  # the last row of a simulation belongs to no hold
            row = loop.control(t, states[k]) if held else loop.rates(t, states[k])[1]
            recomputed[k] = row[loop.layout.slices["u"]]
            if progress is not None and count % 256 == 0:
                progress(count / len(rows))
        difference = np.abs(recomputed - logged)
        scale = np.nanmax(np.abs(logged[rows]), axis=0, initial=0.0)
    if tolerance is None:
        tolerance = 0.0 if engine == logged_engine else OTHER_ENGINE
    both_nan = np.isnan(logged) & np.isnan(recomputed)
    same = (logged == recomputed) & (np.signbit(logged) == np.signbit(recomputed))
    wrong = ~(both_nan | same | ((tolerance > 0.0) & (difference <= tolerance * scale)))
    difference[both_nan | same] = 0.0
    indices = np.argwhere(wrong)
    first = None
    if len(indices):
        k, i = (int(index) for index in indices[0])
        first = Difference(k, float(run.t[k]), actuators[i], float(logged[k, i]), float(recomputed[k, i]))
    return Replay(
        rows=len(rows),
        skipped=len(run) - len(rows),
        differing=int(wrong.any(axis=1).sum()),
        largest={name: float(difference[:, i].max(initial=0.0)) for i, name in enumerate(actuators)},
        units=dict(plant.actuators),
        first=first,
        engine=engine,
        logged_engine=logged_engine,
        tolerance=tolerance,
    )


def decoded(folder: str | PathLike[str], nodes: Sequence[Sequence[Node]]) -> Iterator[tuple[Node, Sample]]:
    """Decodes every sample of a run again from the frames in `can.blf`.

    `folder`: run folder. `nodes`: fresh nodes as the config makes them, by index of their bus; they receive the frames.

    Raises OSError if the folder has no `can.blf`.
    """
    for bus, sent, frame, _ in read_frames(folder):
        if sent or frame.error:
            continue
        for node in nodes[bus]:
            if node.takes(frame.id):
                before = node.sample
                node.accept(frame)
                if node.sample is not None and node.sample is not before:
                    yield node, node.sample
