"""Writes the folder of an identification, with its pictures and its page."""

import base64
import html
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from servoctl.assembly import Run
from servoctl.config.load import dump, moved
from servoctl.identification.excitation import Excitation
from servoctl.identification.result import Identification, shortened
from servoctl.report.page import web
from servoctl.report.style import INK, PALETTE, QUIET, axis_label, blank, chosen, drawing_style, write
from servoctl.run_folder.files import write_files
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TALLEST = 40  # most values in the picture of the parameters; the best known are left out first


def pictures(result: Identification) -> Iterator[tuple[str, "Figure"]]:
    """Yields file name and figure of each picture."""
    with drawing_style():
        yield "torque.png", _torques(result)
        yield "parameters.png", _parameters(result)


def _torques(result: Identification) -> "Figure":
    """Per actuator: torque measured, before and after; and below it what stays unexplained."""
    rows, fit = result.fit.rows, result.fit
    errors = {"before": rows.torque_error(fit.unknowns.before), "after": rows.torque_error(fit.x)}
    names = chosen(result.plant.actuators)
    figure = blank(7.2, 0.8 + 2.9 * len(names), f"{result.config}: torques")
    panels = figure.subplots(2 * len(names), 1, sharex=True, height_ratios=[2, 1] * len(names), squeeze=False)[:, 0]
    time, ticks = _axis(rows.t, rows.log)
    for k, name in enumerate(names):
        j = list(result.plant.actuators).index(name)
        above, below = panels[2 * k], panels[2 * k + 1]
        measured = rows.torque[:, j]
        lines = {"measured": measured} | {which: measured + error[:, j] for which, error in errors.items()}
        for (which, y), colour, width in zip(
            lines.items(), (QUIET, PALETTE[1], PALETTE[0]), (2.4, 1.0, 1.0), strict=True
        ):
            above.plot(time, _cut(y, rows.log), color=colour, linewidth=width, label=which)
        above.set_ylabel(axis_label(name, result.plant.actuators[name]), parse_math=False)
        above.legend(fontsize=7, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0)  # above it
        below.plot(time, _cut(errors["after"][:, j], rows.log), color=PALETTE[0], linewidth=1.0)
        below.axhline(0.0, color=INK, linewidth=0.5)
        below.set_ylabel("error after", fontsize=7)
        for axes in (above, below):
            _shade_validation(axes, time, rows.fitted)
    panels[-1].set_xlabel("time of the logs, one after the other [s]; shaded: rows not used for the fit" if ticks else
                          "t [s]; shaded: rows not used for the fit")  # fmt: skip
    return figure


def _axis(t: Array, log: Array) -> tuple[Array, bool]:
    """Times of the rows, several logs one after the other; and whether there are several."""
    several = len(np.unique(log)) > 1
    if not several:
        return t, False
    time, end = np.zeros(len(t)), 0.0
    for number in np.unique(log):
        rows = log == number
        time[rows] = end + t[rows] - t[rows][0]
        end = float(time[rows][-1]) + 0.02 * float(np.ptp(t[rows]))
    return time, True


def _cut(y: Array, log: Array) -> Array:
    """The values with a gap where another log begins."""
    found = y.copy()
    found[1:][np.diff(log) != 0] = np.nan
    return found


def _shade_validation(axes: "Axes", time: Array, fitted: Array) -> None:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], (~fitted).astype(int), [0]])))
    for begin, end in edges.reshape(-1, 2):
        axes.axvspan(time[begin], time[end - 1], color="#EEEEEE", linewidth=0, zorder=0)


def _parameters(result: Identification) -> "Figure":
    """Relative standard deviation of each sum that the logs determine, and what they cannot tell apart."""
    entries = sorted(result.base, key=lambda entry: entry["sigma"] / (abs(entry["value"]) or 1e-300))[-TALLEST:]
    share = [100.0 * entry["sigma"] / (abs(entry["value"]) or np.nan) for entry in entries]
    alone = [group[0] for group in result.unidentifiable if len(group) == 1]
    lines = [f"only act together: {', '.join(group)}" for group in result.unidentifiable if len(group) > 1]
    lines += [f"no effect in these logs: {', '.join(alone)}"] if alone else []
    height = 1.6 + 0.22 * len(entries) + 0.2 * len(lines)
    figure = blank(7.2, height, f"{result.config}: how well the values are known")
    axes = figure.add_subplot()
    known = [(i, value) for i, value in enumerate(share) if np.isfinite(value)]
    shades = [PALETTE[1] if value > 10.0 else PALETTE[0] for _, value in known]
    axes.barh([i for i, _ in known], [value for _, value in known], height=0.6, color=shades)
    axes.axvline(10.0, color=INK, linewidth=0.6)
    if known:
        axes.set_xscale("log")
    axes.set_yticks(range(len(entries)), [shortened(x["sum"]) for x in entries], fontsize=7, parse_math=False)
    axes.set_xlabel("standard deviation [% of the value]; beyond 10 %: poorly determined\n" + "\n".join(
        line if len(line) < 110 else f"{line[:107]}..." for line in lines), fontsize=8, parse_math=False)  # fmt: skip
    return figure


REFERENCE, CONFIG = "excite.csv", "excite.yaml"

CORRECTION = {"baumgarte": {"alpha": 10.0, "beta": 10.0}}


def save_excitation(run: Run, excitation: Excitation, folder: Path) -> list[str]:
    """Writes `excite.csv` and `excite.yaml` into an existing folder.

    Returns:
        Names of the files, the config first.

    Raises:
        RunFolderError: A file cannot be written.
    """
    rows = [",".join(["t", *excitation.coordinates])]
    rows += [",".join(f"{x:.12g}" for x in (t, *q)) for t, q in zip(excitation.t, excitation.q, strict=True)]
    table = "\n".join(rows) + "\n"
    return write_files(folder, [(CONFIG, _config(run, excitation, folder).encode()), (REFERENCE, table.encode())])


def _config(run: Run, excitation: Excitation, folder: Path) -> str:
    """The config of the run with the excitation as its task; plant, realism and drives stay."""
    assert run.loaded is not None
    values: dict[str, Any] = yaml.safe_load(dump(moved(run.loaded.config, run.loaded.folder, folder)))
    path, _, name = str(values["plant"].get("class", "")).rpartition(":")
    if path.endswith(".py"):  # absolute, so that a log of this config finds the class from anywhere
        values["plant"]["class"] = f"{(folder / path).resolve()}:{name}"
    names = list(run.system.model.plant.coordinates)
    start = {name: float(x) for name, x in zip(names, run.start.q, strict=True)}
    law = values.get("law")
    limits = law.get("limits") if isinstance(law, dict) else None
    duration = float(excitation.t[-1])
    kept = {key: values[key] for key in ("plant", "realism", "estimation", "hil") if values.get(key) is not None}
    run_values, step = values["run"], float(excitation.t[1] - excitation.t[0])
    spacing = {} if run_values.get("period") else {"output_step": min(run_values.get("output_step") or step, step)}
    config = {
        **kept,
        "initial": {"q": start, "v": 0.0},
        "references": {"excite": {"file": REFERENCE, "columns": list(excitation.coordinates), "spline": "quintic"}},
        "task": [
            {"name": f"excite_{name}_task", "holonomic": f"{name} - excite_{name}"} for name in excitation.coordinates
        ],
        "law": {"correction": CORRECTION, **({} if limits is None else {"limits": limits})},
        "run": {**run_values, "duration": duration, **spacing},
    }
    text = yaml.safe_dump(config, sort_keys=False, width=10_000, allow_unicode=True)
    return f"# a motion that tells the parameters of {run.name} apart; next: servoctl run or hil, then identify\n{text}"


def _png(figure: "Figure") -> bytes:
    file = io.BytesIO()
    write(figure, file)
    return file.getvalue()


def _page(result: Identification, drawn: Mapping[str, bytes]) -> str:
    """A page that needs no network: findings, verdict, torques per joint, values with their standard deviations."""
    groups = result.finding_groups
    findings = "".join(f"<li><b>{kind} of {where}</b>: {html.escape(text)}</li>" for kind, where, text in groups)
    *values, torques = result.tables
    images = [
        f'<p><img style="max-width: 100%" alt="{name}" src="data:image/png;base64,{base64.b64encode(x).decode()}"></p>'
        for name, x in drawn.items()
    ]
    parts = [
        f"<h1>{html.escape(result.config)}: identified from {html.escape(', '.join(result.runs))}</h1>",
        f"<h2>Findings about the log</h2><ul>{findings}</ul>" if findings else "",
        f"<h2>Verdict</h2><p>{html.escape(result.verdict)}</p>",
        "<h2>What the log determines</h2>",
        *(_table(*one) for one in values),
        f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in result.without_value)}</ul>",
        "<h2>Rms of the torque, and of what the model does not explain</h2>",
        _table(*torques),
        *images,
    ]
    style = (
        f"{web('style.css')} body {{ max-width: 60em; margin: 2em auto; padding: 0 1em; }} td {{ padding: 0 1em 0 0; }}"
    )
    title = html.escape(result.config)
    head = f'<head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>'
    return f'<!DOCTYPE html>\n<html lang="en">{head}<body>{"".join(parts)}</body></html>\n'


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [("th", header), *(("td", row) for row in rows)]
    cells = ["".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line) for tag, line in lines]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


IDENTIFIED, MACHINE, RESULT, PAGE = "identified.yaml", "machine.yaml", "identification.json", "report.html"


def save(result: Identification, folder: Path) -> list[str]:
    """Writes `identified.yaml`, `machine.yaml` for a simulated log, pictures, page and, last, `identification.json`.

    Args:
        result: The result.
        folder: An existing folder.

    Returns:
        Names of the files.

    Raises:
        RunFolderError: A file cannot be written. Each file is written in full or not at all.
    """
    files = {IDENTIFIED: to_paste(result).encode()}
    kept = {} if result.machine is None else result.machine.sections(result.numbers, result.friction is not None)
    if kept:
        files[MACHINE] = f"# keeps the simulated machine of the log as it was\n{_as_yaml(kept)}".encode()
    drawn = {name: _png(figure) for name, figure in pictures(result)}
    text = json.dumps(result.to_dict(), indent=2) + "\n"
    return write_files(
        folder, [*(files | drawn).items(), (PAGE, _page(result, drawn).encode()), (RESULT, text.encode())]
    )


def to_paste(result: Identification) -> str:
    """The section `plant` of a config with the identified values, for `--set-file`."""
    plant: dict[str, Any] = {"parameters": result.plant_parameters} if result.plant_parameters else {}
    if result.armature is not None:
        plant["armature"] = result.armature
    if result.friction is not None:
        plant["friction"] = result.friction
    return f"# identified from {', '.join(result.runs)}: {result.verdict}\n{_as_yaml({'plant': plant})}"


def _as_yaml(values: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(values, sort_keys=False, width=10_000, default_flow_style=None)
    return text
