"""The look of all pictures: palette, labels at the ends of lines, and thinning of long runs.

Design: figures use matplotlib's object interface inside `drawing_style`, so the user's settings have no effect and do
not change. Lines are labelled at their right end in their colour, instead of a legend.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import numpy as np

from servoctl.report.scales import Scale, least_and_greatest
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

DPI = 160  # [dots per inch] resolution of pictures for a screen

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#882255")
"""Colours that colour-blind people can distinguish: six from Okabe and Ito, two from Paul Tol."""

INK, QUIET = "#222222", "#6B6B6B"
NAMED = 8  # up to this many lines of a panel are all labelled; of more lines, `NAMED - 2` evenly chosen ones are
BUCKETS = 1500  # number of slices of a long run, about two per pixel; each is drawn by its least and greatest value
TO_BE_NAMED = "to be named"  # marks a panel whose lines `name_lines` labels
HUGE = 1e150  # larger values are not drawn: axis limits would overflow
STYLE = Path(__file__).with_name("pictures.mplstyle")  # settings of matplotlib for all pictures


@contextlib.contextmanager
def drawing_style() -> Iterator[None]:
    """Uses matplotlib's defaults and `STYLE` inside the context, and restores the user's settings after it."""
    import matplotlib.style

    with matplotlib.style.context(["default", STYLE]):
        yield


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name: from the palette, or for many names from a map from dark to light."""
    names = list(names)
    if len(names) <= len(PALETTE):
        return dict(zip(names, PALETTE, strict=False))
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    shades = colormaps["viridis"](np.linspace(0.0, 0.9, len(names)))
    return {name: to_hex(shade) for name, shade in zip(names, shades, strict=True)}


def blend(colour: str, weight: float) -> str:
    """A colour mixed with white: weight 1 is the colour, 0 is white."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (1.0 - weight * (1.0 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def axis_label(symbol: str, unit: str) -> str:
    """A symbol with its unit, as in `u [N m]`."""
    unit = unit.replace("^2", "²").replace("^3", "³")
    return f"{symbol} [{unit}]" if unit else symbol


def drawable(x: Array) -> Array:
    """The values as floats, NaN where they are too large for an axis."""
    x = np.asarray(x, dtype=float)
    return np.where(np.abs(x) < HUGE, x, np.nan)


def chosen(names: Iterable[str]) -> list[str]:
    """The names that fit into a panel: all, or evenly chosen ones from first to last."""
    names = list(names)
    if len(names) <= NAMED:
        return names
    return [names[i] for i in np.linspace(0, len(names) - 1, NAMED - 2).round().astype(int)]


def envelope(t: Array, x: Array) -> tuple[Array, Array]:
    """The points of a long line that are visible: first, last, and the least and greatest value of every bucket.

    A line of up to four points per bucket is returned unchanged. A bucket of NaN stays a gap.

    Args:
        t: Times, shape (rows,).
        x: Values, shape (rows,).
    """
    rows = len(x)
    if rows <= 4 * BUCKETS:
        return t, x
    index = np.unique([0, *least_and_greatest(x, -(-rows // BUCKETS)), rows - 1])
    return t[index], x[index]


def draw_lines(axes: "Axes", t: Array, lines: dict[str, Array], shades: dict[str, str], linestyle: str = "-") -> None:
    """Draws each line over time; its `gid` is its name, for `name_all_lines`."""
    axes.set_gid(TO_BE_NAMED)
    width = 1.5 if len(lines) <= 3 else 1.2 if len(lines) <= NAMED else 0.7
    for name, x in lines.items():
        points = envelope(t, drawable(x))
        marker = "o" if len(t) == 1 else ""
        axes.plot(*points, linestyle, color=shades[name], linewidth=width, gid=name, marker=marker, markersize=4)


def time_axis(axes: "Axes", t: Array) -> None:
    """Makes the time axis span the run."""
    axes.set_xlabel("t [s]")
    if len(t) > 1 and t[-1] > t[0]:
        axes.set_xlim(float(t[0]), float(t[-1]))


def show_scale(axes: "Axes", scale: Scale, axis: Literal["x", "y"] = "y") -> None:
    """Sets the scale of an axis, and writes how many values lie outside."""
    log = scale.kind == "log"
    (axes.set_yscale if axis == "y" else axes.set_xscale)(scale.kind)
    if not scale.below + scale.above:
        return
    margin = (scale.high / scale.low) ** 0.08 if log else 0.08 * (scale.high - scale.low)
    ends = (scale.low / margin, scale.high * margin) if log else (scale.low - margin, scale.high + margin)
    (axes.set_ylim if axis == "y" else axes.set_xlim)(*ends)
    sides = [(scale.below, "below"), (scale.above, "above")]
    text = ", ".join(f"{count} {side} this axis" for count, side in sides if count)
    axes.set_title(text, loc="right", fontsize=7, fontweight="normal", color=QUIET)


FEW_DECADES = 2.5  # on an axis of fewer, 2 and 5 of each decade have their numbers too


def log_scale(axes: "Axes", axis: Literal["x", "y"] = "x") -> None:
    """Makes an axis logarithmic, with plain numbers that do not run into each other."""
    from matplotlib.ticker import LogLocator

    scaled = axes.xaxis if axis == "x" else axes.yaxis

    def number(x: float, _: object) -> str:
        return f"{x:g}" if np.ptp(np.log10(scaled.get_view_interval())) < FEW_DECADES else ""

    (axes.set_xscale if axis == "x" else axes.set_yscale)("log")
    scaled.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    scaled.set_major_formatter("{x:g}")
    scaled.set_minor_formatter(number)


def blank(width: float, height: float, title: str = "", dpi: float = DPI) -> "Figure":
    """A figure of this size [in] without a window, with automatic layout, and a title at its upper left corner."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure((width, height), layout="constrained", dpi=dpi)
    FigureCanvasAgg(drawn)
    if title:
        drawn.suptitle(title, x=0.012, ha="left", parse_math=False)
    return drawn


def write(drawn: "Figure", file: Path | BinaryIO) -> None:
    """Writes a figure at the resolution `DPI`: as PNG, or as PDF if the name ends so."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if isinstance(file, Path) and file.suffix == ".pdf":
        drawn.savefig(file, dpi=DPI)
    else:
        drawn.set_dpi(DPI)
        FigureCanvasAgg(drawn).print_png(file)  # type: ignore[no-untyped-call]


def name_all_lines(drawn: "Figure") -> None:
    """Writes the names of the lines at their right ends in every panel, and lays the figure out.

    The labels exist before the layout, which gives them room; their heights depend on those of the panels. So nothing
    lays the figure out again, which would take longer than to draw it.
    """
    labels = {axes: _labels(axes) for axes in drawn.axes if axes.get_gid() == TO_BE_NAMED}
    if (engine := drawn.get_layout_engine()) is not None:
        engine.execute(drawn)
        drawn.set_layout_engine("none")
    for axes, texts in labels.items():
        _place_labels(axes, texts)


def _labels(axes: "Axes") -> list["Text"]:
    """Texts right of a panel, one above the other: of its named lines, or of evenly chosen ones below `and 5 more`."""
    named = {line.get_gid(): line for line in axes.get_lines()}
    lines = {name: line for name, line in named.items() if name and not name.startswith(("limit ", "first stop"))}
    names = chosen(lines)
    texts = {name: str(lines[name].get_color()) for name in names if np.isfinite(_values(lines[name])).any()}
    if len(names) < len(lines):
        texts = {f"and {len(lines) - len(names)} more": QUIET, **texts}
    return [
        axes.text(
            1.035, height, _short(name), color=colour, fontsize=8, va="center", transform=axes.transAxes,
            parse_math=False, gid=name,
        )
        for height, (name, colour) in zip(np.linspace(0.0, 1.0, len(texts)), texts.items(), strict=True)
    ]  # fmt: skip


def _short(name: str) -> str:
    """The two ends of a long name, which would take the room of the panel."""
    return name if len(name) <= 40 else f"{name[:20]}...{name[-17:]}"


def _values(line: "Line2D") -> Array:
    return np.asarray(line.get_ydata(), dtype=float)


def _place_labels(axes: "Axes", texts: list["Text"]) -> None:
    """Moves the labels of a panel that is laid out to the ends of their lines, spread so that none covers another."""
    lines = {str(line.get_gid()): line for line in axes.get_lines()}
    ends = []
    for text in texts:
        line = lines.get(str(text.get_gid()))
        if line is None:  # and 5 more
            ends.append((-1.0, text))
            continue
        y = _values(line)
        y = y[np.isfinite(y)]
        end = y[-1] if axes.get_yscale() == "linear" else np.median(y[-(1 + len(y) // 50) :])
        height = axes.transAxes.inverted().transform(axes.transData.transform((0.0, end)))[1]
        ends.append((float(np.clip(height, 0.0, 1.0)), text))
    ends.sort(key=lambda end: end[0])
    gap = 11.0 * axes.figure.dpi / 72 / axes.bbox.height  # [panel heights] a line of text of 8 points
    for (end, text), height in zip(ends, spread([max(end, 0.0) for end, _ in ends], gap), strict=True):
        text.set_y(height)
        if end >= 0.0:
            axes.plot(
                [1.0, 1.025], [end, height], color=text.get_color(), linewidth=0.7, transform=axes.transAxes,
                clip_on=False, scalex=False, scaley=False,
            )  # fmt: skip


def spread(wanted: list[float], gap: float) -> list[float]:
    """Positions nearest to the wanted ones (ascending, 0 to 1) at least a gap apart; closer if there is no room."""
    from scipy.optimize import isotonic_regression

    count = len(wanted)
    gap = min(gap, 1.0 / max(count - 1, 1))
    slots = gap * np.arange(count)
    rising = isotonic_regression(np.array(wanted) - slots).x if count else slots
    positions: list[float] = (np.clip(rising, 0.0, 1.0 - (count - 1) * gap) + slots).tolist()
    return positions
