"""The stability limit of the gains over the numbers that a sweep varies.

    growth = 1,  growth: the largest spectral radius of the map of a violation over one period or step h
    (`laws.hold`)

Design: nothing is simulated. The gains of runs with other numbers are evaluated on a separate grid, which is
refined along the limit. Only varied paths on which the gains, the period or the step depend become axes of this grid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from servoctl.assembly.gains import RowGains, all_gains, drives_spacing, task_gains
from servoctl.assembly.run import Run
from servoctl.errors import ServoctlError
from servoctl.study.points import Vary
from servoctl.study.series import run_at
from servoctl.types import Array

GRID = {1: (41, 6), 2: (11, 3)}
"""Number of axes -> points along each axis, and how often the cells that the limit crosses are halved."""

STABILITY_PREFIXES = ("law.", "task.", "run.", "realism.", "hil.", "plant.passive.")
"""Config prefixes that affect stability."""


@dataclass(frozen=True)
class Limit:
    """The growth of the fastest-growing violation, over one or two varied numbers."""

    name: str  # `stability limit`, as the run is simulated, or `stability limit on drives`
    axes: dict[str, Array]  # path -> values
    # factor per period or step, one array axis per path: 1 at the limit; NaN where the config refuses the numbers
    growth: Array

    @property
    def crossings(self) -> list[float]:
        """Values of the path at which the growth crosses 1; empty if there are two paths."""
        if len(self.axes) > 1:
            return []
        (x,), above, crossings = self.axes.values(), self.growth - 1.0, []
        for i in range(len(x) - 1):
            a, b = above[i], above[i + 1]
            if (a < 0.0) != (b < 0.0) and np.isfinite(a) and np.isfinite(b):
                crossings.append(float(x[i] + (x[i + 1] - x[i]) * a / (a - b)))
        return crossings

    def over(self, varies: Sequence[Vary]) -> tuple[Array, Array, Array]:
        """Values of the two paths of a sweep, and the growth over them, shape (first, second).

        The growth is constant along a path that is no axis of the limit.
        """
        x, y = (self.axes.get(vary.path, np.array([vary.low, vary.high])) for vary in varies)
        shape = [len(line) if vary.path in self.axes else 1 for vary, line in zip(varies, (x, y), strict=True)]
        return x, y, np.broadcast_to(self.growth.reshape(shape), (len(x), len(y)))


def limits_of(run: Run, varies: Sequence[Vary]) -> tuple[Limit, ...]:
    """The limits that a picture of the sweep can show: of one varied path, or of two if there are only two."""
    limits = []
    for name, kind in (("stability limit", _simulated), ("stability limit on drives", _on_drives)):
        axes = [vary for vary in varies if vary.path.startswith(STABILITY_PREFIXES) and _matters(run, vary, kind)]
        if len(axes) == 1 or len(axes) == len(varies) == 2:
            limit = _over(run, axes, name, kind)
            if np.any(limit.growth < 1.0) and np.any(limit.growth > 1.0):
                limits.append(limit)
    return tuple(limits)


Kind = Callable[[Run], Iterable[RowGains]]
"""A run -> the gains of each row, with their growth."""


def _over(run: Run, axes: Sequence[Vary], name: str, kind: Kind) -> Limit:
    """The growth over the axes: on a coarse grid first, then on halved cells along the limit."""
    points, halvings = GRID[len(axes)]
    paths = [vary.path for vary in axes]
    growth = np.full([points] * len(axes), np.nan)

    def lines() -> list[Array]:
        return [vary.line(count) for vary, count in zip(axes, growth.shape, strict=True)]

    nodes: Iterable[tuple[int, ...]] = np.ndindex(growth.shape)
    for halving in range(1 + halvings):
        if halving:
            growth, nodes = _halved(growth)
        along = lines()
        for node in nodes:
            at = {path: float(line[i]) for path, line, i in zip(paths, along, node, strict=True)}
            growth[node] = _growth(_gains(run, at, kind))
    return Limit(name, dict(zip(paths, lines(), strict=True)), growth)


def _halved(growth: Array) -> tuple[Array, set[tuple[int, ...]]]:
    """The growth interpolated on cells half as wide, and the new nodes to recompute: those in cells on the limit."""
    fine = growth
    for axis in range(growth.ndim):
        fine = np.moveaxis(fine, axis, 0)
        wide = np.empty((2 * len(fine) - 1, *fine.shape[1:]))
        wide[::2], wide[1::2] = fine, (fine[:-1] + fine[1:]) / 2
        fine = np.moveaxis(wide, 0, axis)
    corners = [growth[tuple(slice(o, n - 1 + o) for o, n in zip(offset, growth.shape, strict=True))]
               for offset in product((0, 1), repeat=growth.ndim)]  # fmt: skip
    crossed = (np.minimum.reduce(corners) < 1.0) & (np.maximum.reduce(corners) >= 1.0)
    near = {
        tuple(int(2 * i + o) for i, o in zip(cell, offset, strict=True))
        for cell in np.argwhere(crossed)
        for offset in product((0, 1, 2), repeat=growth.ndim)
    }
    return fine, {node for node in near if any(i % 2 for i in node)}


def _matters(run: Run, vary: Vary, kind: Kind) -> bool:
    """Whether a varied number changes a gain, a period or a step."""
    samples = [_gains(run, {vary.path: x}, kind) for x in vary.line(3)]
    return any(gains != samples[0] for gains in samples)


def _gains(run: Run, numbers: Mapping[str, float], kind: Kind) -> list[RowGains] | None:
    """The gains of the config with other numbers; None if it refuses them."""
    try:
        return list(kind(run_at(run, numbers, strict=False)))
    except ServoctlError:
        return None


def _growth(gains: list[RowGains] | None) -> float:
    return max((gain.growth for gain in gains or [] if gain.growth is not None), default=np.nan)


def _simulated(run: Run) -> Iterable[RowGains]:
    return all_gains(run.system, run.settings)


def _on_drives(run: Run) -> Iterable[RowGains]:
    spacing = drives_spacing(run.loaded, run.system.model.plant)
    return [] if spacing is None else task_gains(run.system, spacing)
