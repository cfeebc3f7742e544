"""The row of a tick: its columns, those of a simulated run and those that only drives have, and what writes it.

Design: a column is stated once, by its name, its unit and the number that it shows. C copies these numbers into a row
and counts the durations of a tick's parts (`log_tick` in `hil/core/c/tick.c`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hil.assembly.setup import RigSetup
from hil.core.controller import Controller
from hil.drives.settings import GAUGES
from hil.loop import Tick
from hil.loop.tick import TickTimes
from hil.loop.timing import COUNTS, PARTS, TickStatistics
from hil.rig.ticks_in_c import TicksInC
from hil.safety.plan import LET_GO, Phase
from hil.safety.stages import Stages
from servoctl.config.load import unit_of
from servoctl.expression import per_second
from servoctl.simulation.rows import Chunk
from servoctl.simulation.simulate import Columns
from servoctl.types import Array

STAGES = [mode.value for mode in Phase]  # names of the numbers in the column `stage`
LIVE = "live"  # group of the columns with the gains in force, named by their paths in the config

TIMES = {"elapsed": "s", "task_time": "s", "lateness": "s", "skipped": "", "stage": "", "read": "s"}
"""Columns with the times of a tick -> their units, in the order in which C computes them."""


class Column(NamedTuple):
    name: str
    unit: str  # empty if it has none
    shown: Any  # address of the number that it shows


class Logbook:
    """Rows and timing of a run: a `tick_log` of `hil/core/c/tick.h` with its arrays.

    Args:
        setup: Gains that may change, and nodes.
        emulated: Whether there is a simulated plant whose true state is known.
    """

    def __init__(self, setup: RigSetup, ticks: TicksInC, controller: Controller, emulated: bool) -> None:
        self._ticks, self._loop, self._live = ticks, controller.loop, setup.live_gains
        loop, layout, plant = self._loop, self._loop.layout, self._loop.system.model.plant
        # all numbers of a tick (time, state with memory, command and other values of the loop's row), and views of them
        numbers = np.zeros(1 + loop.size + layout.size)
        begins = 1 + loop.size, 1 + loop.size + layout.command_size
        state, self.command, self.values = numbers[1 : begins[0]], numbers[begins[0] : begins[1]], numbers[begins[1] :]
        times = np.zeros(len(TIMES))
        columns = [*self._of_loop(numbers), *self._shown(TIMES, times), *self._of_drives(setup, controller)]
        names = [node.settings.name for node in setup.nodes]
        self.timing = timing = TickStatistics(ticks.period, names)
        # column -> unit of those that only a simulated plant has: see `Emulator.truth`
        coordinates, actuators = dict(plant.coordinates), dict(plant.actuators)
        truth = {
            **{f"true_q.{name}": unit for name, unit in coordinates.items()},
            **{f"true_v.{name}": per_second(unit or "-") for name, unit in coordinates.items()},
            **{f"true_u.{name}": unit for name, unit in actuators.items()},
            **{f"{kind}.{name}": "" for kind in ("true_on", "true_brake") for name in actuators},
        }
        # column -> unit, in order
        self.units: Mapping[str, str] = {
            **{column.name: column.unit for column in columns},
            **(truth if emulated else {}),
            **{f"{LIVE}.{gain.path}": unit_of(gain.path) for gain in self._live.gains},
        }
        self._row = np.zeros(len(self.units))  # of the last tick
        values = loop.log_call(state, self.command, self.values)
        self.struct = log = ticks.ffi.new("tick_log *")
        self._when = ticks.ffi.new("tick_times *")
        log.columns, log.copied, log.block = len(self._row), len(columns), COUNTS
        log.column = ticks.array("const double *", len(columns))
        for i, column in enumerate(columns):
            log.column[i] = column.shown
        log.state, log.command, log.inputs = len(state), len(self.command), layout.slices["u"].start
        log.parameters, log.task, log.nominal = values.parameters, Phase.FULL.number, timing.nominal
        disturbance = layout.slices["disturbance"]
        log.disturbance, log.disturbances = disturbance.start, disturbance.stop - disturbance.start
        log.numbers, log.times = ticks.pointer("double", numbers), ticks.pointer("double", times)
        log.marks = ticks.ffi.from_buffer("long long[]", timing.marks)
        ticks.connect(log.values, values.call)
        for name, counts in zip((*PARTS, "ages"), timing.counts, strict=False):
            setattr(log, name, ticks.pointer("unsigned long long", counts))
        log.unused = ticks.pointer("double", self._row)

    def _of_loop(self, numbers: Array) -> Iterator[Column]:
        """The columns that a simulated run has too."""
        base, count = Columns(self._loop), 1 + self._loop.size
        # each number of a tick gets its index as value: the value in a column is then the index of its source
        indices = np.arange(len(numbers), dtype=float)
        source = base.of(Chunk(indices[:1], indices[None, 1:count], indices[None, count:]))
        units, address = base.units(), self._ticks.pointer("double", numbers)
        return (Column(name, units.get(name, ""), address + int(index[0])) for name, index in source.items())

    def _of_drives(self, setup: RigSetup, controller: Controller) -> Iterator[Column]:
        """The columns that only a run on drives has, but for times and for those of a simulated plant."""
        ticks, shown = self._ticks, self._shown
        x, actuators = ticks.arrays, dict(self._loop.system.model.plant.actuators)
        yield from shown({f"law.{name}": unit for name, unit in actuators.items()}, controller.row)
        yield from shown({f"age.{node.settings.name}": "s" for node in setup.nodes}, ticks.measured["age"])
        joints = list(zip(actuators, setup.units, strict=False))
        yield from shown({f"position.{name}": unit for name, unit in joints}, x["position"])
        yield from shown({f"speed.{name}": per_second(unit or "-") for name, unit in joints}, x["velocity"])
        yield from shown({f"torque.{name}": unit for name, unit in actuators.items()}, x["torque"])
        yield from shown({f"sent.{name}": unit for name, unit in actuators.items()}, x["carried"])
        yield Column("encoder_residual", "", ticks.ffi.addressof(setup.sensing.struct.c[0], "residual"))
        for gauge in GAUGES:
            for i, drive in enumerate(setup.drives):
                if gauge.quantity in drive.shows:
                    name = f"{gauge.name}.{drive.settings.name}"
                    yield from shown({name: gauge.unit}, ticks.measured[gauge.name][i:])

    def _shown(self, units: Mapping[str, str], numbers: Array) -> Iterable[Column]:
        """Columns with these units that show these numbers, in order."""
        address = self._ticks.pointer("double", numbers)
        return [Column(name, unit, address + i) for i, (name, unit) in enumerate(units.items())]

    def enter(self, stages: Stages, tick: Tick, times: TickTimes, true: Sequence[float], counts: bool = True) -> Array:
        """The row of a tick, shape (columns,), which the next one overwrites.

        Args:
            times: When its parts ended.
            true: True state of a simulated plant; empty without one.
            counts: Whether the durations of its parts count.
        """
        when, log, row = self._when, self.struct, self._row
        when.deadline, when.began, when.elapsed, when.skipped = tick.deadline, tick.began, tick.elapsed, tick.skipped
        when.task_time, when.counts, log.stage = stages.task_time, counts, stages.mode.number
        log.let_go = stages.mode in LET_GO
        when.read, when.decided, when.written = times
        self._ticks.functions.log_tick(self._ticks.c, log, when, log.unused)
        self._ticks.raise_failure()
        self.written(1)
        row[len(row) - len(true) - len(self._live.values) :] = [*true, *self._live.values]
        return row

    def written(self, ticks: int) -> None:
        """Takes note of ticks whose rows C has written."""
        self._loop.evaluations += ticks
