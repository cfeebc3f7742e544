"""Where gains end that a period or a step bears, over the numbers that a sweep varies.

    growth = 1,  growth the largest spectral radius of a violation's map over h (`laws.gain_limits`)

Design: nothing is simulated. The corrections of a config with other numbers are resolved on the rows of the run that
there is, on a grid of its own that is fine where the limit runs; only paths on which they depend make an axis of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from servoctl.assembly.build import build_correction, build_law
from servoctl.assembly.gains import RowGains, all_gains, drives_spacing, task_gains
from servoctl.assembly.make import settings_of
from servoctl.assembly.problems import Problems
from servoctl.assembly.realism import realistic
from servoctl.assembly.run import Run
from servoctl.config.load import LoadedConfig
from servoctl.errors import ServoctlError
from servoctl.laws.corrections import for_passive, resolve
from servoctl.simulation.system import System
from servoctl.sweep.points import Vary
from servoctl.types import Array

GRID = {1: (41, 6), 2: (21, 3)}
"""Number of axes -> points along each, and how often the cells that the limit crosses are halved."""

GROUNDS = ("law.", "task.", "run.", "realism.", "hil.", "plant.passive.")
"""What gains, periods and steps stand under."""


@dataclass(frozen=True)
class Limit:
    """The growth of the violation that grows most, over one or two varied numbers.

    Attributes:
        name: `stability limit`, as the run is simulated, or `stability limit on drives`.
        axes: Path -> values.
        growth: Per period or step, one axis per path: 1 at the limit; NaN where the config refuses the numbers.
    """

    name: str
    axes: dict[str, Array]
    growth: Array

    @property
    def crossings(self) -> list[float]:
        """Values of the path at which the growth passes 1; none where there are two."""
        if len(self.axes) > 1:
            return []
        (x,), above, found = self.axes.values(), self.growth - 1.0, []
        for i in range(len(x) - 1):
            a, b = above[i], above[i + 1]
            if (a < 0.0) != (b < 0.0) and np.isfinite(a) and np.isfinite(b):
                found.append(float(x[i] + (x[i + 1] - x[i]) * a / (a - b)))
        return found

    def over(self, varies: Sequence[Vary]) -> tuple[Array, Array, Array]:
        """Values of the two paths of a sweep, and the growth over them, shape (first, second)."""
        x, y = (self.axes.get(vary.path, np.array([vary.low, vary.high])) for vary in varies)
        shape = [len(line) if vary.path in self.axes else 1 for vary, line in zip(varies, (x, y), strict=True)]
        return x, y, np.broadcast_to(self.growth.reshape(shape), (len(x), len(y)))


def limits_of(run: Run, varies: Sequence[Vary]) -> tuple[Limit, ...]:
    """The limits that a picture of the sweep can show: those that depend on one of its paths, or on its only two.

    Args:
        run: The config.
        varies: What is varied.
    """
    found = []
    for name, kind in (("stability limit", _simulated), ("stability limit on drives", _on_drives)):
        axes = [vary for vary in varies if vary.path.startswith(GROUNDS) and _matters(run, vary, kind)]
        if len(axes) == 1 or len(axes) == len(varies) == 2:
            limit = _over(run, axes, name, kind)
            if np.any(limit.growth < 1.0) and np.any(limit.growth > 1.0):
                found.append(limit)
    return tuple(found)


Kind = Callable[[Run, LoadedConfig], Iterable[RowGains]]


def _over(run: Run, axes: Sequence[Vary], name: str, kind: Kind) -> Limit:
    points, halvings = GRID[len(axes)]
    paths = [vary.path for vary in axes]
    growth = np.full([points] * len(axes), np.nan)

    def lines() -> list[Array]:
        return [vary.line(count) for vary, count in zip(axes, growth.shape, strict=True)]

    nodes: Iterable[tuple[int, ...]] = np.ndindex(growth.shape)
    for turn in range(1 + halvings):
        if turn:
            growth, nodes = _halved(growth)
        along = lines()
        for node in nodes:
            at = {path: float(line[i]) for path, line, i in zip(paths, along, node, strict=True)}
            growth[node] = _growth(_gains(run, at, kind))
    return Limit(name, dict(zip(paths, lines(), strict=True)), growth)


def _halved(growth: Array) -> tuple[Array, set[tuple[int, ...]]]:
    """The growth on cells half as wide, interpolated, and the nodes to do better: those in cells that it crosses."""
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
    """Whether a number changes what gains or spacings there are."""
    found = [_gains(run, {vary.path: x}, kind) for x in vary.line(3)]
    return any(gains != found[0] for gains in found)


def _gains(run: Run, numbers: Mapping[str, float], kind: Kind) -> list[RowGains] | None:
    """The corrections of the config with other numbers; None where it refuses them."""
    assert run.loaded is not None
    try:
        return list(kind(run, run.loaded.with_numbers(numbers)))
    except ServoctlError:
        return None


def _growth(gains: list[RowGains] | None) -> float:
    found = [] if gains is None else [gain.growth for gain in gains if gain.growth is not None]
    return max(found, default=np.nan)


def _simulated(run: Run, loaded: LoadedConfig) -> Iterable[RowGains]:
    return all_gains(_retuned(run, loaded), settings_of(loaded.config.run))


def _on_drives(run: Run, loaded: LoadedConfig) -> Iterable[RowGains]:
    spacing = drives_spacing(loaded)
    return [] if spacing is None else task_gains(_retuned(run, loaded), spacing)


def _retuned(run: Run, loaded: LoadedConfig) -> System:
    """The run's system with the corrections, and the realism, of another config."""
    system, problems = run.system, Problems(loaded)
    law = build_law(loaded, system.model.plant, problems)
    passive = for_passive(build_correction(loaded.config.plant.passive.correction))
    problems.check()
    damping, stiffness = resolve(system.model.passive_rows, passive, None, "plant.passive.correction")
    stabilisation = replace(system.passive, damping=tuple(damping), stiffness=tuple(stiffness))
    found = replace(system, law=None if law is None else law.bind(system.model), passive=stabilisation)
    return realistic(found, loaded, run.start, problems)
