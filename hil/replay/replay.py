"""A run's law once more, on the states that the run logged: the same input must come out.

Design: the law is a pure function of time, state and memory, all of which a row holds. On the engine of the run the
result is the same to the bit; on another it is the same to rounding, so there a tolerance applies, and is said.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np

from hil.assembly.live_gains import LiveGains
from hil.assembly.settings import HilSettings, hil_settings
from hil.drives.base import Drive, Node
from hil.drives.protocols import build
from hil.drives.sample import Sample
from hil.loop import SECOND
from hil.recorder import read_frames
from hil.recorder.columns import LIVE
from hil.replay.sent import Sent, compare_sent
from servoctl.assembly.make import make_run
from servoctl.config import load_config
from servoctl.config.load import LoadedConfig
from servoctl.errors import ConfigError, RunFolderError
from servoctl.run_folder import load_run
from servoctl.run_folder.trajectory import Trajectory, plain
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import take_engine
from servoctl.simulation.rows import Integrator
from servoctl.types import Array

OTHER_ENGINE = 1e-9
"""Tolerance where the engine is not the run's, relative to the largest |u| of each actuator."""

CONFIG, FRAMES = "config.yaml", "can.blf"


@dataclass(frozen=True)
class Difference:
    """One value that is not what it was.

    Attributes:
        row: Its row, counted from 0.
        t: Time of the row [s].
        actuator: Name.
        logged: What the run has [actuator unit].
        recomputed: What the law gives now [actuator unit].
    """

    row: int
    t: float
    actuator: str
    logged: float
    recomputed: float


@dataclass(frozen=True)
class Replay:
    """How a run and its law agree.

    Attributes:
        rows: Rows that were compared.
        skipped: Rows of a run on drives in which the law was not asked.
        differing: Rows in which an input differs by more than the tolerance.
        largest: Actuator -> largest difference [its unit]; NaN where one side alone is not a number.
        units: Actuator -> unit.
        first: The first difference beyond the tolerance; None where there is none.
        engine: What recomputed.
        logged_engine: What the run says it used.
        tolerance: Relative to the largest |u| of each actuator; 0: to the bit.
        samples: Positions of drives that `can.blf` gives again; 0 where the folder has none.
        other_samples: Those of them that the run logged otherwise.
        sent: Torques sent that were compared with the law's, and frames with them; None where it was no run on drives.
    """

    rows: int
    skipped: int
    differing: int
    largest: dict[str, float]
    units: dict[str, str]
    first: Difference | None
    engine: str
    logged_engine: str
    tolerance: float
    samples: int = 0
    other_samples: int = 0
    sent: Sent | None = None

    @property
    def agrees(self) -> bool:
        """Whether all that was compared is the same."""
        sent = self.sent
        wrong = 0 if sent is None else sent.other_torques + sent.other_frames
        return not (self.differing or self.other_samples or wrong)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return dict(plain(dataclasses.asdict(self)))


def replay(
    folder: str | PathLike[str],
    classes: str | PathLike[str] | None = None,
    tolerance: float | None = None,
    progress: Callable[[float], None] | None = None,
) -> Replay:
    """Recomputes what the law gave from the states that a run folder holds.

    Args:
        folder: The run folder.
        classes: Folder that class paths like `cart.py:Cart` in its config are relative to; None: the working folder.
        tolerance: Relative to the largest |u| of each actuator; None: 0 on the run's own engine, else `OTHER_ENGINE`.
        progress: Called now and then with the fraction that is done, 0 to 1.

    Raises:
        ConfigError: The folder's config is wrong, or has no law.
        RunFolderError: The folder cannot be read, or holds no config or no rows.
        ColumnError: The rows are not those of the config.
    """
    folder = Path(folder)
    run = load_run(folder)
    if not len(run):
        raise RunFolderError(f"{folder}: holds no rows (there is nothing to recompute)")
    config = folder / CONFIG
    if not config.is_file() or not config.stat().st_size:
        raise RunFolderError(f"{config}: is missing or empty (only runs of a config can be replayed)")
    loaded = load_config(config)
    loaded = dataclasses.replace(loaded, path=Path(classes or ".").absolute() / CONFIG)
    if loaded.config.realism is not None:
        raise ConfigError(
            f"{loaded.where('realism')}: u is what acted, after delay and actuators; what the law answered, the run "
            "did not log (run it again: its seed makes the same run)"
        )
    best: Replay | None = None
    for recompute in _loops(loaded, run):
        found = _compared(run, recompute, tolerance, progress)
        if best is None or found.differing < best.differing:
            best = found
        if not best.differing:
            break
    assert best is not None
    if loaded.config.hil is None or "read" not in run.columns or not (folder / FRAMES).is_file():
        return best
    settings = hil_settings(loaded, make_run(loaded, "numpy", strict=False).system.model.plant)
    samples, other = _same_samples(settings, run, folder)
    drives = [cast(Drive, build(drive, settings.values.period)) for drive in settings.drives]
    sent = compare_sent(run, folder, drives, list(settings.buses))
    return dataclasses.replace(best, samples=samples, other_samples=other, sent=sent)


def _same_samples(settings: HilSettings, run: Trajectory, folder: Path) -> tuple[int, int]:
    """How many logged positions there are to compare with what the frames say, and how many differ."""
    drives = [build(drive, settings.values.period) for drive in settings.drives]
    nodes = [[drive for drive in drives if drive.settings.bus == bus] for bus in settings.buses]
    found: dict[str, list[Sample]] = {drive.settings.name: [] for drive in drives}
    for node, sample in decoded(folder, nodes):
        found[node.settings.name].append(sample)
    compared = other = 0
    ends = np.round((run.t + run["read"]) * SECOND)
    last = np.inf
    if run.metadata.get("status") == "running":  # cut off with its recorder: frames may end before the rows do
        last = max((samples[-1].time for samples in found.values() if samples), default=0)
    for name, samples in found.items():
        logged = run[f"position.{name}"]
        newest = np.searchsorted([sample.time for sample in samples], ends, "right") - 1
        positions = np.array([sample.position for sample in samples] + 2 * [np.nan])
        same = positions[newest] == logged
        if not run.metadata.get("lockstep"):  # a frame may have come in after the rig had looked
            same |= positions[newest - 1] == logged
        known = ~np.isnan(logged) & (ends <= last)
        compared += int(known.sum())
        other += int((known & ~same).sum())
    return compared, other


def _loops(loaded: LoadedConfig, run: Trajectory) -> Iterator["_Law"]:
    """The law on the engine of the run, or on what can be had instead.

    Engine `numpy` has two forms, with the plant as it is written and with its compiled twin; a run does not say which.
    """
    logged, on_drives = run.metadata.get("engine"), "task_time" in run.columns
    for engine in {"numpy": ("auto", "numpy"), "vm": ("vm",)}.get(str(logged), ("auto",)):
        made = make_run(loaded, engine, strict=False, waiting=on_drives)
        if made.system.law is None:
            raise ConfigError(f"{loaded.where('law')}: there is none (u was given, not computed)")
        if logged == "numpy" and made.loop.engine != "numpy":
            continue
        settings = made.settings
        if on_drives:  # a tick evaluates the law alone, whatever `run` says
            settings = dataclasses.replace(settings, period=settings.period or 1.0, integrator=Integrator("dop853"))
        if logged == "c":
            take_engine(made.loop, made.start, settings, "c")
        gains = _gains(loaded, run, made.loop)
        yield _Law(made.loop, settings.period is not None, on_drives, gains)


def _gains(loaded: LoadedConfig, run: Trajectory, loop: Loop) -> LiveGains | None:
    """The gains that may have changed while the run went on; None where none could.

    Raises:
        RunFolderError: The config does not know those that the run has logged.
    """
    logged = list(run.group(LIVE))
    if not logged:
        return None
    known = [] if loaded.config.hil is None else list(loaded.config.hil.live)
    if logged != known:
        raise RunFolderError(
            f"{LIVE}: the run has changed {', '.join(logged)}, its config lets {', '.join(known) or 'nothing'} change "
            "(a replay needs the config.yaml of the run)"
        )
    return LiveGains(loaded, loop.system.model, loop.system.law)


class _Law:
    """Evaluates the law as the run did."""

    def __init__(self, loop: Loop, sampled: bool, on_drives: bool, gains: LiveGains | None) -> None:
        self.loop, self._sampled, self._on_drives, self._gains = loop, sampled, on_drives, gains

    def __call__(self, t: float, x: Array, last: bool, gains: Array) -> Array:
        """u, shape (m,), by these gains; the last row of a simulation belongs to no hold."""
        if self._gains is not None and (values := tuple(gains.tolist())) != self._gains.values:
            self._gains.force(values, self.loop.take_law)
        held = self._sampled and (self._on_drives or not last)
        row = self.loop.control(t, x) if held else self.loop.rates(t, x)[1]
        return row[self.loop.layout.slices["u"]]


def _compared(run: Trajectory, law: _Law, tolerance: float | None, progress: Callable[[float], None] | None) -> Replay:
    plant, engine, logged_engine = law.loop.system.model.plant, law.loop.engine, str(run.metadata.get("engine"))
    actuators = list(plant.actuators)
    group = "law" if run.group("law") else "u"
    logged = np.column_stack([run[f"{group}.{name}"] for name in actuators])
    names = [f"{kind}.{name}" for kind in ("q", "v") for name in plant.coordinates]
    states = np.column_stack([run[name] for name in names + [f"memory.{name}" for name in law.loop.memory_names]])
    gains = np.column_stack([np.empty((len(run), 0)), *run.group(LIVE).values()])
    times = run.columns.get("task_time", run.t)
    asked = ~np.isnan(logged).all(axis=1) if group == "law" else np.ones(len(run), dtype=bool)
    if not asked.any():
        raise RunFolderError("law: gave no u in any row (there is nothing to compare)")
    recomputed, rows = np.full_like(logged, np.nan), np.flatnonzero(asked)
    done = run.metadata.get("status") == "done"
    with np.errstate(all="ignore"):
        for count, k in enumerate(rows.tolist()):
            recomputed[k] = law(float(times[k]), states[k], done and k == len(run) - 1, gains[k])
            if progress is not None and count % 256 == 0:
                progress(count / len(rows))
        difference = np.abs(recomputed - logged)
        scale = np.nanmax(np.abs(logged[rows]), axis=0, initial=0.0)
    if tolerance is None:
        tolerance = 0.0 if engine == logged_engine else OTHER_ENGINE
    nothing = np.isnan(logged) & np.isnan(recomputed)
    same = (logged == recomputed) & (np.signbit(logged) == np.signbit(recomputed))
    wrong = ~(nothing | same | ((tolerance > 0.0) & (difference <= tolerance * scale)))
    difference[nothing | same] = 0.0
    places = np.argwhere(wrong)
    first = None
    if len(places):
        k, i = (int(index) for index in places[0])
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
    """Every sample that the nodes make of the frames in `can.blf`: those of the run, once more.

    Args:
        folder: The run folder.
        nodes: Fresh ones, as the config makes them, by index of their bus; they take the frames in.

    Raises:
        OSError: The folder has no `can.blf`.
    """
    for bus, sent, frame, _ in read_frames(folder):
        if sent or frame.error:
            continue
        for node in nodes[bus]:
            if frame.id in node.identities:
                before = node.sample
                node.accept(frame)
                if node.sample is not None and node.sample is not before:
                    yield node, node.sample
