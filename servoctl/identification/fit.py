"""Least squares for the unknowns, with the values before as a weak prior.

    least  |W (x - x0) + r0|^2 / s^2 + |D^-1 (x - x0)|^2,      D = size of each unknown,   s: what the rows leave

Design: the prior decides only what the rows do not: of unknowns that only act together it takes the smallest relative
change, and what the motion does not excite stays as it was, with a standard deviation that says so. Rows of different
coordinates are weighted by their own residuals.
"""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from servoctl.assembly import Run
from servoctl.config.overrides import Override
from servoctl.errors import ConfigError, ServoctlError
from servoctl.identification.findings import Finding, delay_findings, findings_of_files, is_long
from servoctl.identification.log import Log, read_logs, read_tables, simulated_machine
from servoctl.identification.result import Identification
from servoctl.identification.rows import (
    SHARE,
    Equations,
    FitRows,
    Raw,
    cutoff_of,
    decimated,
    highest_of,
    raw_rows,
    thinned,
)
from servoctl.identification.solution import Fit, Solved
from servoctl.identification.unknowns import Unknowns, select, sizes
from servoctl.mechanics.actuator_parameters import armature_of, with_armature
from servoctl.types import Array

ITERATIONS = 30  # most Gauss-Newton steps for parameters that enter nonlinearly
CONVERGED = 1e-10  # a step this small relative to the size of the unknowns ends the iteration
LATE = 1e-6  # [s] a change of the delays this small ends the iteration
SAMPLES = 20  # rows at which linearity is tested, about
LINEAR = 1e-9  # regressors this much alike, relative to their largest entry, are the same: the equations are linear
SIGNIFICANT = 4.0  # friction below this many standard deviations is taken as 0

ROWS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12)
"""Bandwidths of the rows that are tried, relative to that of the positions; noise grows with frequency."""

PER_UNKNOWN = 4  # fewest rows per unknown
COARSER = 0.7  # cut-off frequency, relative to its own, at which the fit is repeated to see what the filter costs
STANDSTILL = 0.01  # changes of torque below this share of the torque are no excitation


def fit(equations: Equations, logs: Sequence[Log], cutoff: float, pruned: bool) -> Fit:
    """Fits the unknowns, and the delays of logs that are not sure.

    Args:
        equations: The plant's equations, with what is unknown.
        logs: The logs.
        cutoff: Cut-off frequency of the positions [Hz].
        pruned: Whether friction that is not significant is left out; negative friction always is.

    Raises:
        ConfigError: The logs determine nothing, or are too short.
    """
    unknowns, at = equations.unknowns, equations.unknowns.before
    delays, free = np.array([log.delay for log in logs]), np.array([not log.sure for log in logs])
    raw = raw_rows(equations, logs, at, cutoff)
    linear, freedom = _linear(equations, raw[0], at), equations.freedom
    rows, width = _best_rows(unknowns, raw, delays, cutoff, freedom, free)
    size = sizes(unknowns, rows.known, rows.regressor)
    for _ in range(ITERATIONS):
        solved = Solved(unknowns, rows, size, free)
        step = float(np.max(np.abs(solved.x - at) / size, initial=0.0))
        late = float(np.max(np.abs(solved.shift), initial=0.0))
        if linear and late <= LATE:
            break
        delays = delays + solved.shift
        if not linear:
            at = solved.x
            raw = raw_rows(equations, logs, at, cutoff)
        rows = thinned(raw, delays, width, freedom)
        if step < CONVERGED or (linear and not free.any()):
            break
    # the delay is known by now; its column would only blur the standard deviations of friction
    coarse = _coarser(equations, logs, at, delays, cutoff, width) or rows
    while True:
        solved, other = (Solved(unknowns, each, size, np.zeros_like(free)) for each in (rows, coarse))
        solved.moved = other.x - solved.x
        out = _not_significant(unknowns, solved, SIGNIFICANT if pruned else 0.0)
        if out is None:
            return solved.result(delays, width)
        unknowns, size = unknowns.without(out), np.delete(size, out)
        rows, coarse = (replace(each, regressor=np.delete(each.regressor, out, axis=2)) for each in (rows, coarse))


def _linear(equations: Equations, raw: Raw, x: Array) -> bool:
    """Whether the equations are linear in the unknowns: their regressor is the same at other values."""
    every = max(1, len(raw.motion) // SAMPLES)
    motion = raw.motion.at(slice(None, None, every))
    here, there = (equations.along(motion, values).regressor for values in (x, 1.3 * x + 0.1))
    return bool(np.abs(there - here).max() <= LINEAR * np.abs(here).max())


def _coarser(
    equations: Equations, logs: Sequence[Log], at: Array, delays: Array, cutoff: float, width: float
) -> FitRows | None:
    """The rows with a lower cut-off frequency of the positions; None if a log is too short for it."""
    try:
        return thinned(raw_rows(equations, logs, at, COARSER * cutoff), delays, width, equations.freedom)
    except ConfigError:
        return None


def _best_rows(
    unknowns: Unknowns, raw: Sequence[Raw], delays: Array, cutoff: float, freedom: int, free: Array
) -> tuple[FitRows, float]:
    """The rows at the bandwidth with the smallest standard deviations, and that bandwidth [Hz]."""
    best: tuple[float, FitRows, float] | None = None
    for share in ROWS:
        try:
            rows = thinned(raw, delays, share * cutoff, freedom)
        except ConfigError:
            if best is None:
                raise
            break
        if best is not None and rows.fitted.sum() * freedom < PER_UNKNOWN * len(unknowns.names):
            break
        size = sizes(unknowns, rows.known, rows.regressor)
        if best is None:
            _require_motion(unknowns, rows)
        solved = Solved(unknowns, rows, size, free)
        score = float(np.mean(np.minimum(solved.sigma / size, 1.0) ** 2))
        if best is None or score < best[0]:
            best = score, rows, share * cutoff
    assert best is not None
    return best[1:]


def _require_motion(unknowns: Unknowns, rows: FitRows) -> None:
    """Raises ConfigError if the log stands still, as far as unknowns that have a value before can tell."""
    count = unknowns.bodies
    moving = rows.regressor[rows.fitted][:, :, :count] * unknowns.before[:count]
    changes = np.sqrt(np.mean((moving - moving.mean(axis=0)) ** 2, axis=(0, 1)))
    left = rows.residual(unknowns.before)[rows.fitted]
    force = np.sqrt(np.mean(moving.sum(axis=2) ** 2)) + np.sqrt(np.mean(left**2))
    if unknowns.before[:count].any() and changes.max() < STANDSTILL * force:
        raise ConfigError(
            "the log has no excitation: the machine hardly moves, so that torques hardly depend on its parameters "
            "(make a motion with `servoctl excite CONFIG`, run it, and identify that run)"
        )


def _not_significant(unknowns: Unknowns, solved: Solved, least: float) -> int | None:
    """Index of the friction to leave out next: the least significant; None if all are significant.

    One at a time: two that only act together with a third, such as the viscous friction of two joints and a damping of
    both, are each uncertain by far, and one of them becomes certain when the other is left out.

    Args:
        unknowns: What is unknown.
        solved: Its values.
        least: Smallest friction that is kept [standard deviations].
    """
    first = unknowns.bodies
    sigma = np.hypot(solved.sigma, solved.moved)[first:]
    ratio = solved.x[first:] / np.maximum(sigma, 1e-300)
    return None if not len(ratio) or ratio.min() >= least else first + int(np.argmin(ratio))


@np.errstate(all="ignore")  # numbers that are not finite are reported by name
def identify(
    runs: str | PathLike[str] | Sequence[str | PathLike[str]],
    parameters: Sequence[str] | None = None,
    bandwidth: float | None = None,
    classes: str | PathLike[str] | None = None,
    config: str | PathLike[str] | None = None,
    overrides: Sequence[Override] = (),
) -> Identification:
    """Identifies parameters, rotors and friction from logs.

    Args:
        runs: Logs of one machine: run folders, simulated or on drives, or tables (CSV, Parquet) of a machine that
            another program moved.
        parameters: Names such as `m1`, `tool_m`, `friction`, `friction.viscous.u1`; None: all parameters in which the
            equations of motion are linear, and the friction that the logs show.
        bandwidth: Cut-off frequency of the positions [Hz]; None: eight times the bandwidth of the motion.
        classes: Folder of Python files such as `arm.py:Arm` in the config of a run; None: where they were.
        config: The config of the plant of tables, with a section `log` that names their columns; tables that are not
            there are looked for beside it.
        overrides: Changes of that config: `PATH=VALUE`, as after `--set`, and paths of files, as after `--set-file`.

    Raises:
        ConfigError: A table has no config, or its columns are wrong.
        ConfigError: A log has no torques, no excitation, a value that is not finite, or is too short, or belongs to
            another plant; a name of a parameter is wrong.
        RunFolderError: A folder cannot be read.
        PlantError: The plant's code cannot be differentiated.
    """
    paths = []
    for path in [runs] if isinstance(runs, str | PathLike) else runs:
        if not isinstance(path, str | PathLike):
            raise ConfigError(f"identify: expected paths of run folders or tables, got {path!r}")
        paths.append(Path(path))
    run, logs, columns = _read(paths, None if classes is None else Path(classes), config, overrides)
    machine = run.system.model.plant
    cutoff, highest = cutoff_of(logs) if bandwidth is None else bandwidth, max(highest_of(log.h) for log in logs)
    if not 0.0 < cutoff <= highest:
        expected = f"a frequency above 0 and up to {highest:g} Hz, {0.5 * SHARE:g} of the rate of the rows"
        raise ConfigError(f"--bandwidth {cutoff:g}: expected {expected}")
    logs = [decimated(log, cutoff) for log in logs]
    findings: list[Finding] = []
    if columns is not None:
        if armature_of(machine) is None:
            machine = with_armature(machine, [0.0] * len(machine.actuators))
        findings, machine, mended = findings_of_files(machine, logs, cutoff, columns)
        scales = {new.h / old.h for new, old in zip(mended, logs, strict=True)}
        cutoff = cutoff / scales.pop() if len(scales) == 1 else cutoff_of(mended)
        logs = mended
    unknowns, left_out = select(machine, parameters)
    plant = unknowns.plant
    if not unknowns.names:
        raise ConfigError(f"{type(plant).__name__} has no parameter that a log can identify")
    equations = Equations(unknowns)

    try:
        found = fit(equations, logs, cutoff, parameters is None)
    except np.linalg.LinAlgError as error:
        raise ServoctlError(f"{paths[0]}: the fit failed: {error}") from error
    # where only some parameters are free, a delay may stand for the others
    judged = columns is not None and parameters is None and all(one.kind != "delay" for one in findings)
    if judged and any(is_long(delay, logs) for delay in found.delays):
        still = fit(equations, [replace(log, sure=True) for log in logs], cutoff, pruned=True)
        late = delay_findings(found, still, list(plant.actuators))
        found, findings = found if late else still, findings + late
    shown = set(found.unknowns.names)
    missing = tuple(name for name in unknowns.names if name not in shown)
    return Identification(
        run.name, tuple(map(str, paths)), plant, found, left_out, missing, cutoff,
        None if columns is not None else simulated_machine(run), tuple(findings), parameters is not None,
    )  # fmt: skip


def _read(
    paths: Sequence[Path],
    classes: Path | None,
    config: str | PathLike[str] | None,
    overrides: Sequence[Override],
) -> tuple[Run, list[Log], dict[str, str] | None]:
    """The run and the logs of run folders, or of tables with the columns that they use."""
    tables = [path for path in paths if not path.is_dir()]
    if config is None and tables:
        raise ConfigError([
            f"{path}: {'not a run folder' if path.exists() else 'no such file or folder'} (name the config of a table: "
            "--config CONFIG)"
            for path in tables
        ])  # fmt: skip
    if config is None and overrides:
        raise ConfigError(
            "--set, --set-file: a run folder has its own config (they change that of --config, for tables)"
        )
    if config is None:
        return *read_logs(paths, classes), None
    if len(tables) < len(paths):
        folder = next(path for path in paths if path.is_dir())
        raise ConfigError(f"{folder}: a folder beside --config, which is for tables (a run folder has its own config)")
    return read_tables(paths, config if isinstance(config, str) else Path(config), overrides)
