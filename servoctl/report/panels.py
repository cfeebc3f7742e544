"""Draws panels over time: coordinates, inputs, violations and bounds."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from servoctl.errors import counted
from servoctl.report.scales import calm_range
from servoctl.report.style import NAMED, QUIET, axis_label, colours, draw_lines, drawable, envelope, time_axis
from servoctl.report.timing import of_task, shade_stages
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec

ROUND_OFF = 1e-9  # rows whose error stays below this are as exact as numbers allow
NEAR = 2.0  # limits are drawn up to this multiple of the largest input

OUTSIDE = "#D98880"  # colour of the values that a bound forbids


def by_unit(trajectory: Trajectory, prefix: str) -> dict[str, dict[str, Array]]:
    """Unit -> name -> values, in the order in which the units first occur."""
    groups: dict[str, dict[str, Array]] = {}
    for name, x in trajectory.group(prefix).items():
        groups.setdefault(trajectory.units.get(f"{prefix}.{name}", ""), {})[name] = x
    return groups


def leave_out_runaway(axes: "Axes", runs: Mapping[str, tuple[Array, Iterable[Array]]]) -> None:
    """Excludes the last rows from the vertical axis if a run diverges there, and writes their values as text.

    Args:
        axes: Axes with the lines; the `gid` of lines of input limits begins with `limit`.
        runs: Name of a run (empty if there is only one) -> its times [s] and its lines.
    """
    lines = {name: [drawable(x) for x in some] for name, (_, some) in runs.items()}
    calm = {name: calm for name, some in lines.items() if (calm := calm_range(some)) is not None}
    if not calm:
        return
    ends = [end for one in calm.values() for end in one[:2]]
    ends += [
        float(end(x))
        for name, some in lines.items()
        if name not in calm
        for x in some
        for end in (np.nanmin, np.nanmax)
        if np.isfinite(x).any()
    ]
    for line in axes.get_lines():
        if str(line.get_gid()).startswith("limit "):
            ends += [float(y) for y in np.asarray(line.get_ydata())]
    margin = 0.08 * (max(ends) - min(ends))
    axes.set_ylim(min(ends) - margin, max(ends) + margin)
    facts = [f"{name} {at.value:.3g} at {runs[name][0][at.row]:.4g} s".strip() for name, at in calm.items()]
    text = f"beyond the axis: {', '.join(facts)}"
    axes.set_title(text, loc="right", fontsize=7, fontweight="normal", color=QUIET, parse_math=False)


def draw_group(figure: "Figure", cell: "SubplotSpec", trajectory: Trajectory, prefix: str, title: str) -> None:
    """Draws a stack of panels of `q`, `v` or `u` over time, one per unit."""
    groups = by_unit(trajectory, prefix)
    shades = colours(trajectory.group(prefix))
    heights = [2 + min(len(lines), 8) for lines in groups.values()]
    stack = cell.subgridspec(len(groups), 1, height_ratios=heights) if len(groups) > 1 else [cell]
    for i, (unit, lines) in enumerate(groups.items()):
        axes = figure.add_subplot(stack[i])
        draw_lines(axes, trajectory.t, lines, shades)
        shade_stages(axes, trajectory)
        if prefix == "u":
            _draw_limits(axes, trajectory, lines, shades)
        axes.set_ylabel(axis_label(prefix, unit))
        _finish(axes, trajectory, lines.values(), "" if i else title, i == len(groups) - 1)


def _finish(axes: "Axes", trajectory: Trajectory, lines: Iterable[Array], title: str, last: bool) -> None:
    """Ranges, title and time axis of a panel in a stack; only the last one names the time."""
    axes.margins(y=0.08)
    low, high = axes.get_ylim()
    if high - low < ROUND_OFF * max(abs(low), abs(high)):  # constant but for round-off, which must not fill the panel
        axes.set_ylim(*sorted((0.95 * low, 1.05 * high) if low > 0.0 else (1.05 * low, 0.95 * high)))
    leave_out_runaway(axes, {"": (trajectory.t, lines)})
    time_axis(axes, trajectory.t)
    if title:
        axes.set_title(title)
    if not last:
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)


def input_limits(trajectory: Trajectory) -> dict[str, tuple[float, float]]:
    """Actuator -> lower and upper limit: those of the law, and tighter ones of the drives."""
    limits = {
        name: (float(low), float(high)) for name, (low, high) in trajectory.metadata.get("law_limits", {}).items()
    }
    for name, limit in trajectory.metadata.get("torque_limits", {}).items():
        low, high = limits.get(name, (-np.inf, np.inf))
        limits[name] = max(low, -float(limit)), min(high, float(limit))
    return limits


def _draw_limits(axes: "Axes", trajectory: Trajectory, inputs: Mapping[str, Array], shades: dict[str, str]) -> None:
    """Draws the limits near the lines, hatched outwards, and names the others.

    Equal limits share one pair of lines.
    """
    from matplotlib.patheffects import withTickedStroke

    known = {name: pair for name, pair in input_limits(trajectory).items() if name in inputs}
    same = len(set(known.values())) == 1
    near = set()
    for name, limit in list(known.items())[: 1 if same else None]:
        for sign, side in zip((-1.0, 1.0), limit, strict=True):
            curves = [np.abs(drawable(x)) for x in inputs.values()] if same else [sign * drawable(inputs[name])]
            if abs(side) <= NEAR * max(np.nanmax(x, initial=0.0) for x in curves):
                near.add(abs(side))
                colour = QUIET if same else shades[name]
                line = axes.axhline(side, color=colour, linewidth=0.7, gid=f"limit {name} {side:g}")
                line.set_path_effects([withTickedStroke(spacing=7, angle=sign * 60.0, length=0.7)])
    sides = {side for limit in known.values() for side in limit if abs(side) not in near}
    if far := sorted({abs(side) for side in sides}):
        signed = [f"±{size:g}" if {-size, size} <= sides else f"{size if size in sides else -size:g}" for size in far]
        text = f"limits far from the inputs: {', '.join(signed[:NAMED])}"
        axes.set_title(text, loc="right", fontsize=7, fontweight="normal", color=QUIET)


def violation_rows(trajectory: Trajectory) -> dict[str, Array]:
    """Column -> violation: of the task rows while the task ran, then of the passive rows; only rows that have one."""
    rows = {f"violation.{name}": of_task(trajectory, x) for name, x in trajectory.group("violation").items()}
    rows |= {f"passive.{name}": x for name, x in trajectory.group("passive").items()}
    return {column: x for column, x in rows.items() if np.any(np.isfinite(x))}


def draw_violations(figure: "Figure", cell: "SubplotSpec", trajectory: Trajectory) -> None:
    """Draws the error of every task row over time, and dashed that of every row of the mechanism, one panel per unit.

    Rows that stay below `ROUND_OFF` are only counted.
    """
    rows = violation_rows(trajectory)
    shown = {column: x for column, x in rows.items() if not np.nanmax(np.abs(drawable(x)), initial=0.0) < ROUND_OFF}
    exact = len(rows) - len(shown)
    few = f"{counted(exact, 'row')} below 1e-9: round-off" if exact else ""
    units: dict[str, dict[str, Array]] = {}
    for column, x in shown.items():
        units.setdefault(trajectory.units.get(column, ""), {})[column] = x
    stack = cell.subgridspec(max(len(units), 1), 1)
    kinds = {column.partition(".")[0] for column in shown}
    title = "Task error" + " (dashed: mechanism constraints)" * (len(kinds) > 1)
    if "passive" in kinds and len(kinds) == 1:
        title = "Error of mechanism constraints"
    shades = colours(shown)
    for i, (unit, lines) in enumerate(units.items()):
        axes = figure.add_subplot(stack[i])
        for column, x in lines.items():
            kind, name = column.split(".", 1)
            draw_lines(axes, trajectory.t, {name: x}, {name: shades[column]}, "-" if kind == "violation" else "--")
        for line in axes.get_lines():
            line.set_linewidth(1.2 if len(shown) <= 8 else 0.7)
        shade_stages(axes, trajectory)
        axes.set_ylabel(axis_label("error", unit))
        _finish(axes, trajectory, lines.values(), "" if i else title, i == len(units) - 1)
    if few and shown:
        axes.annotate(
            few, (1, 0), (0, -36), "axes fraction", "offset points", ha="right", va="top", fontsize=8, color=QUIET
        )
    elif few:
        _write_alone(figure, stack[0], title, few)


def _write_alone(figure: "Figure", cell: "SubplotSpec", title: str, text: str) -> None:
    axes = figure.add_subplot(cell)
    axes.set_title(title)
    axes.axis("off")
    axes.text(0, 0.95, text, transform=axes.transAxes, va="top", color=QUIET)


def draw_bounds(figure: "Figure", cell: "SubplotSpec", trajectory: Trajectory) -> None:
    """Draws h of every bound over time, which stays above the zero line; thick where the bound holds the inputs."""
    lines, active = trajectory.group("bound"), trajectory.group("bound_active")
    shades, axes = colours(lines), figure.add_subplot(cell)
    draw_lines(axes, trajectory.t, lines, shades)
    for name, x in active.items():
        held = np.where(x > 0.5, lines[name], np.nan)
        axes.plot(*envelope(trajectory.t, held), color=shades[name], linewidth=4, alpha=0.5, solid_capstyle="butt")
    shade_stages(axes, trajectory)
    low, high = axes.get_ylim()
    axes.axhspan(min(low, -0.03 * (high - low)), 0.0, color=OUTSIDE, alpha=0.35, linewidth=0)
    axes.axhline(0.0, color=QUIET, linewidth=1.0, gid="limit 0")
    axes.set_ylabel("h, in the unit of each bound")
    axes.set_title("Bounds (thick: the bound holds the inputs)")
    leave_out_runaway(axes, {"": (trajectory.t, lines.values())})
    time_axis(axes, trajectory.t)
